"""The side of a compute host: attempts that a scheduler asks for, carried out by the worker: beside an I/O node that shares this host's
files, or with a ticket for one that does not.

May know: the worker, the node's calls. Nothing of Dask: `host_preload` is what Dask calls. One rule: two calls for one attempt join, and a
directory that exists is adopted, so that Dask may call as often as it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stager.adapters.attempt_tickets import spec_of
from stager.adapters.briefs import brief_from
from stager.adapters.host_words import Call, HostFacts, Step, plain, stale_epoch, told, untold
from stager.adapters.ionode import IoNode
from stager.adapters.node_process import RENDEZVOUS
from stager.adapters.remote_node import RemoteNode, Ticket
from stager.model.errors import ErrorClass, Fault, StagerError, Transient
from stager.model.keep_limits import KeepLimits
from stager.tasks import Tasks
from stager.wire import node as said
from stager.worker import AttemptResult, AttemptSpec, AttemptWaiting, NodePort, Outcome, Place, Sight, Worker
from stager.worker.attempt import lost_fault
from stager.worker.collecting import Needed, collected
from stager.worker.place import log_paths, publish_json, read_json, safe_name, write_json
from stager.worker.reaper import wait_until_free

log = logging.getLogger(__name__)

Body = Mapping[str, object]
Ending = AttemptResult | AttemptWaiting
IDENTITY = "scratch.json"
# Which scheduler has this host.
OWNER = "scheduler.json"
LOG_PIECE_BYTES_MAX = 1 << 20


class LinkedNode:
    """An I/O node that shares this host's files: found by its store, called on its socket."""

    def __init__(self, node_id: str, store: Path) -> None:
        self.node_id, self.store = node_id, store
        self.client = IoNode(store, "", epoch=0)

    def contact(self, epoch: int) -> None:
        """With the incarnation that lives now. Raises Transient where there is none."""
        try:
            found = msgspec.json.decode((self.store / RENDEZVOUS).read_bytes())
            token = Path(found["token_file"]).read_text().strip()
            self.client.meet(Path(found["socket"]), token, found["incarnation"])
        except (OSError, ValueError, KeyError) as problem:
            raise Transient(f"the I/O node {self.node_id} is not there: {self.store}: {problem}", code="connection_lost") from problem
        if found.get("node_id") != self.node_id:
            text = f"the store {self.store} is of the I/O node {found.get('node_id')}, and not of {self.node_id}"
            raise Transient(text, code="connection_lost")
        self.client.epoch = epoch


class AgentNodes:
    """The NodePort of the host's worker: each attempt's calls go to its node. A reservation is named as its attempt."""

    def __init__(self, linked: Mapping[str, LinkedNode], remote: RemoteNode) -> None:
        self.linked, self.remote = linked, remote
        self.of_attempts: dict[str, NodePort] = {}

    def meet(self, attempt: str, node: str, epoch: int, ticket: Ticket | None) -> None:
        """Raises Transient where the node cannot be asked, Refused where a ticket is needed that this host does not have."""
        if ticket is not None:
            self.remote.meet(ticket)
        if not self.linked:
            self.remote.require(attempt)
            self.of_attempts[attempt] = self.remote
            return
        if (found := self.linked.get(node)) is None:
            raise Transient(f"this host is not beside the I/O node {node}; start its worker with --node {node}", code="connection_lost")
        found.contact(epoch)
        self.of_attempts[attempt] = found.client

    def forget(self, attempt: str) -> None:
        self.of_attempts.pop(attempt, None)
        self.remote.forget(attempt)

    async def put_reservation(self, reservation_id: str, size_bytes: int) -> None:
        await self.of_attempts[reservation_id].put_reservation(reservation_id, size_bytes)

    async def stage_in(self, attempt_id: str, body: Body) -> said.StagedIn:
        return await self.of_attempts[attempt_id].stage_in(attempt_id, body)

    async def stage_out(self, attempt_id: str, body: Body) -> said.StagedOut:
        return await self.of_attempts[attempt_id].stage_out(attempt_id, body)

    async def release(self, attempt_id: str, body: Body) -> said.Released:
        return await self.of_attempts[attempt_id].release(attempt_id, body)


class HostAgent:
    """On the event loop of the process that Dask asks."""

    def __init__(
        self,
        facts: HostFacts,
        scratch: Path,
        linked: Mapping[str, Path],
        binary: str,
        cgroup: str = "",
        keep: KeepLimits | None = None,
    ) -> None:
        self.facts, self.scratch = facts, scratch
        self.nodes = AgentNodes({node: LinkedNode(node, store) for node, store in linked.items()}, RemoteNode(binary))
        self.worker = Worker(scratch, self.nodes, binary=binary, inherited={}, cgroup=cgroup, keep=keep)
        self.tasks = Tasks()
        self.under_way: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self.called_off: set[str] = set()

    def look(self, scheduler: str) -> dict[str, Any]:
        """What it is, or why it is nothing for this scheduler. Empty: whoever asks speaks for one that it knows."""
        if scheduler and not is_host_of(self.scratch, scheduler):
            text = f"it works for another scheduler, whose attempts are in {self.scratch / 'attempts'}"
            advice = "start a `stager worker` with another --name and --scratch for this one, or that one anew when it has no attempts left"
            return {"refused": f"{text}: {advice}"}
        return plain(self.facts)

    def obeys(self, epoch: int) -> bool:
        """A scheduler that another one came after has no say here any more, whatever it still believes."""
        if epoch < self.worker.epoch:
            log.warning("a scheduler of epoch %d asks, and this host obeys epoch %d: nothing is done for it", epoch, self.worker.epoch)
            return False
        self.worker.epoch = epoch
        return True

    async def carry_out(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Cancelling it leaves the attempt alone."""
        call = msgspec.convert(asked, Call)
        if not self.obeys(call.epoch):
            return untold(stale_epoch(call.epoch, self.worker.epoch))
        mine = self.under_way.get(call.attempt)
        if mine is None:
            mine = self.under_way[call.attempt] = self.tasks.start(f"attempt {call.attempt}", self._answer(call))
            mine.add_done_callback(lambda _: self.under_way.pop(call.attempt, None))
        return await asyncio.shield(mine)

    async def _answer(self, call: Call) -> dict[str, Any]:
        try:
            return told(await self._ending(call)) | {"printed": self._printed(call.attempt), "now_s": time.time()}
        except StagerError as problem:
            return untold(problem)
        except OSError as problem:
            return self._not_written(call.attempt, problem)

    def _not_written(self, attempt: str, problem: OSError) -> dict[str, Any]:
        """The disk with the sandboxes is full, or broken. What has begun is asked about again; what has not is tried again, maybe on
        another host.
        """
        text = f"{problem.filename or self.scratch} on host {self.facts.host}: {problem.strerror or problem}"
        if read_json(Place.of(self.scratch, attempt).attempt) is not None:
            return untold(Transient(text, code="connection_lost"))
        fault = Fault(ErrorClass.TRANSIENT, "start_failed", f"it could not be started: {text}", attempt)
        return told(AttemptResult(attempt_id=attempt, outcome=Outcome.FAILED, fault=fault))

    def _printed(self, attempt: str) -> dict[str, int]:
        """The sizes of its logs, so that nobody asks for empty ones."""
        said = read_json(Place.of(self.scratch, attempt).attempt)
        if said is None:
            return {}
        paths = log_paths(self.scratch, AttemptSpec.from_json(said))
        return {path.rpartition(".")[2]: os.path.getsize(path) for path in paths if os.path.exists(path)}

    async def _ending(self, call: Call) -> Ending:
        attempt, worker = call.attempt, self.worker
        if call.scratch != self.facts.scratch:
            return AttemptResult(attempt_id=attempt, outcome=Outcome.LOST, fault=lost_fault(attempt))
        if call.called_off:
            self.called_off.add(attempt)
        begun = read_json(Place.of(self.scratch, attempt).attempt) is not None
        if not begun and attempt in self.called_off:
            return AttemptResult(attempt_id=attempt, outcome=Outcome.KILLED)
        self.nodes.meet(attempt, call.node, call.epoch, call.ticket)
        if call.step is Step.COMMIT:
            return await worker.commit(attempt, call.reserve_bytes)
        if call.step is Step.ABANDON:
            return await worker.abandon(attempt)
        if call.step is Step.ADOPT or begun:
            if attempt in self.called_off:
                await worker.kill(attempt)
            return await worker.adopt(attempt)
        spec = await (brief_from(call.brief, attempt) if call.ticket is None else self._brief_at_node(attempt))
        # It may have been called off meanwhile.
        if attempt in self.called_off:
            return AttemptResult(attempt_id=attempt, outcome=Outcome.KILLED)
        return await worker.run(spec)

    async def _brief_at_node(self, attempt: str) -> AttemptSpec:
        return spec_of(await self.nodes.remote.brief(attempt))

    async def kill(self, attempt: str, epoch: int) -> None:
        """One that has not begun never will."""
        if self.obeys(epoch):
            await self._kill(attempt)

    async def _kill(self, attempt: str) -> None:
        self.called_off.add(attempt)
        await self.worker.kill(attempt)

    async def forget(self, attempts: Collection[str], epoch: int) -> None:
        """They are over. What still runs of them, since their host was given up, is ended and goes then: its cores are others'."""
        if self.obeys(epoch):
            await self._forget(attempts)

    async def _forget(self, attempts: Collection[str]) -> None:
        for attempt in attempts:
            if attempt in self.under_way or self.worker.sight_of(attempt) is Sight.LIVING:
                await self._kill(attempt)
                self.tasks.start(f"the end of what is left of attempt {attempt}", self._drop_ended(attempt))
            else:
                await self._drop(attempt)

    async def _drop_ended(self, attempt: str) -> None:
        if (mine := self.under_way.get(attempt)) is not None:
            await asyncio.wait([mine])
        # One that was only being staged in has none.
        with contextlib.suppress(FileNotFoundError):
            await wait_until_free(Place.of(self.scratch, attempt).lock)
        await self._drop(attempt)

    async def _drop(self, attempt: str) -> None:
        self.called_off.discard(attempt)
        self.nodes.forget(attempt)
        await asyncio.to_thread(drop, self.worker, attempt)

    async def sweep(self, outstanding: Collection[str], epoch: int) -> None:
        """All but these are over, whatever this host knows of them: it may have been away. What is under way may be newer than that."""
        if not self.obeys(epoch):
            return
        known = await asyncio.to_thread(os.listdir, self.scratch / "attempts") if (self.scratch / "attempts").is_dir() else []
        await self._forget([each for each in known if each not in outstanding and each not in self.under_way])

    async def collect(self, images: Collection[str], environments: Collection[str], *, cache: bool, dry_run: bool) -> dict[str, Any]:
        """What it keeps for later jobs. `images`, `environments`: files that it may yet make some of."""
        needed = Needed(frozenset(images), frozenset(environments)) if cache else None
        return plain(await collected(self.worker, needed, dry_run=dry_run))

    async def read_log(self, run: str, job: str, number: int, ending: str, after: int) -> tuple[int, bytes]:
        """What an attempt has printed behind so many bytes, a piece of it; and how much it is in all."""
        path = self.scratch / "logs" / safe_name(run) / f"{safe_name(job)}.{number}.{ending}"
        return await asyncio.to_thread(piece_of, path, after)


def drop(worker: Worker, attempt: str) -> None:
    """Its logs too: what its scheduler wanted of them it has, and nobody else asks for them."""
    said = read_json(Place.of(worker.state_dir, attempt).attempt)
    # One that was cut short by a power cut says nothing.
    with contextlib.suppress(KeyError, TypeError, ValueError):
        for path in log_paths(worker.state_dir, AttemptSpec.from_json(said)) if said is not None else ():
            Path(path).unlink(missing_ok=True)
    worker.forget(attempt)


def piece_of(path: Path, after: int) -> tuple[int, bytes]:
    try:
        with path.open("rb") as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            stream.seek(after)
            return size_bytes, stream.read(LOG_PIECE_BYTES_MAX)
    except FileNotFoundError:
        return 0, b""


def identity_of(directory: Path, name: str = IDENTITY) -> str:
    """Written once: who finds another one there has another disk before it."""
    file = directory / name
    known = read_json(str(file))
    if known is None:
        known = {"id": secrets.token_hex(8)}
        write_json(str(file), known)
    return str(known["id"])


def is_host_of(scratch: Path, scheduler: str) -> bool:
    """The first that asks has it: two would end each other's attempts, since each takes what it does not know of for over."""
    file = str(scratch / OWNER)
    known = read_json(file)
    if known is None:
        publish_json(file, {"id": scheduler})
    return known is None or known.get("id") == scheduler


def set_free(scratch: Path) -> None:
    """Before it is served: where no attempt is left, the next scheduler may be another one. Directories of runs without logs go."""
    for directory in (scratch / "logs").glob("*/"):
        with contextlib.suppress(OSError):
            directory.rmdir()
    with contextlib.suppress(FileNotFoundError, OSError):
        (scratch / "attempts").rmdir()
    if not (scratch / "attempts").exists():
        (scratch / OWNER).unlink(missing_ok=True)


def facts_of(said: Mapping[str, Any]) -> HostFacts:
    return msgspec.convert(said, HostFacts)
