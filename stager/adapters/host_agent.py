"""The side of a compute host: attempts that a scheduler asks for, carried out by the worker: beside an I/O node that shares this host's
files, or with a ticket for one that does not.

May know: the worker, the node's calls. Nothing of Dask: `host_preload` is what Dask calls. One rule: two calls for one attempt join, and a
directory that exists is adopted, so that Dask may call as often as it likes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
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
from stager.model.errors import StagerError, Transient
from stager.model.keep_limits import KeepLimits
from stager.tasks import Tasks
from stager.wire import node as said
from stager.worker import AttemptResult, AttemptSpec, AttemptWaiting, NodePort, Outcome, Place, Sight, Worker
from stager.worker.attempt import lost_fault
from stager.worker.collecting import Needed, collected
from stager.worker.place import log_paths, read_json, safe_name, write_json

Body = Mapping[str, object]
Ending = AttemptResult | AttemptWaiting
IDENTITY = "scratch.json"
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

    async def carry_out(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Cancelling it leaves the attempt alone."""
        call = msgspec.convert(asked, Call)
        if call.epoch < self.worker.epoch:
            return untold(stale_epoch(call.epoch, self.worker.epoch))
        self.worker.epoch = call.epoch
        mine = self.under_way.get(call.attempt)
        if mine is None:
            mine = self.under_way[call.attempt] = self.tasks.start(f"attempt {call.attempt}", self._answer(call))
            mine.add_done_callback(lambda _: self.under_way.pop(call.attempt, None))
        return await asyncio.shield(mine)

    async def _answer(self, call: Call) -> dict[str, Any]:
        try:
            return told(await self._ending(call)) | {"printed": self._printed(call.attempt)}
        except StagerError as problem:
            return untold(problem)

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

    async def kill(self, attempt: str) -> None:
        """One that has not begun never will."""
        self.called_off.add(attempt)
        await self.worker.kill(attempt)

    async def forget(self, attempts: Collection[str]) -> None:
        for attempt in attempts:
            self.called_off.discard(attempt)
            self.nodes.forget(attempt)
            if attempt not in self.under_way:
                await asyncio.to_thread(self.worker.forget, attempt)

    async def sweep(self, outstanding: Collection[str]) -> None:
        """All but these are over, whatever this host knows of them: it may have been away."""
        known = await asyncio.to_thread(os.listdir, self.scratch / "attempts") if (self.scratch / "attempts").is_dir() else []
        for attempt in [each for each in known if each not in outstanding and each not in self.under_way]:
            if self.worker.sight_of(attempt) is Sight.LIVING:
                await self.worker.kill(attempt)
            else:
                await self.forget([attempt])

    async def collect(self, images: Collection[str], environments: Collection[str], *, cache: bool, dry_run: bool) -> dict[str, Any]:
        """What it keeps for later jobs. `images`, `environments`: files that it may yet make some of."""
        needed = Needed(frozenset(images), frozenset(environments)) if cache else None
        return plain(await collected(self.worker, needed, dry_run=dry_run))

    async def read_log(self, run: str, job: str, number: int, ending: str, after: int) -> tuple[int, bytes]:
        """What an attempt has printed behind so many bytes, a piece of it; and how much it is in all."""
        path = self.scratch / "logs" / safe_name(run) / f"{safe_name(job)}.{number}.{ending}"
        return await asyncio.to_thread(piece_of, path, after)


def piece_of(path: Path, after: int) -> tuple[int, bytes]:
    try:
        with path.open("rb") as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            stream.seek(after)
            return size_bytes, stream.read(LOG_PIECE_BYTES_MAX)
    except FileNotFoundError:
        return 0, b""


def identity_of(scratch: Path) -> str:
    """Written once: who finds another one there has another disk before it."""
    file = scratch / IDENTITY
    known = read_json(str(file))
    if known is None:
        known = {"id": secrets.token_hex(8)}
        write_json(str(file), known)
    return str(known["id"])


def facts_of(said: Mapping[str, Any]) -> HostFacts:
    return msgspec.convert(said, HostFacts)


def told_facts(agent: HostAgent) -> dict[str, Any]:
    return plain(agent.facts)
