"""The Machine's commands as calls to one I/O node.

May know: the NodeClient port. One rule: in order for each transfer and each replica, side by side otherwise; a call that the node refused
is an event, a call that was lost is not: the node's next report tells what came of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from stager.adapters.ionode import IoNode, is_lost
from stager.model.errors import InvalidInput, StagerError, Transient
from stager.planning.transport import STRIPE_BYTES
from stager.ports import Body, Put
from stager.runtime.allowances import NodeAllowances, NotAskedError
from stager.runtime.credentials import CredentialBook
from stager.runtime.outstanding import Outstanding
from stager.runtime.peering import PeerTeller
from stager.runtime.together import Together
from stager.runtime.wire_events import node_event
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.tasks import Tasks
from stager.wire.node import TransferAnswer

log = logging.getLogger(__name__)
CALLS_MAX = 32
# A connection that nobody used may have been cut off meanwhile; to ask anew costs one small call.
READY_AGAIN_S = 30.0
S_AGO_MAX = 2**32 - 1
ToNode = (
    cmd.Fetch
    | cmd.AssembleStripes
    | cmd.CopyReplica
    | cmd.Upload
    | cmd.Reprioritize
    | cmd.CancelTransfer
    | cmd.DeleteReplica
    | cmd.EraseSpill
)
Lost = Callable[[StagerError], None]
Clock = Callable[[], float]


class NodeCalls:
    """`lost` is told when the node, not the call, failed. `apart`: it is on another host."""

    def __init__(
        self,
        node: str,
        client: IoNode,
        put: Put,
        outstanding: Outstanding,
        book: CredentialBook,
        lost: Lost,
        clock: Clock,
        peers: PeerTeller,
        allowances: NodeAllowances,
        apart: bool = False,
    ) -> None:
        self.node, self.client, self.put, self.clock, self.apart = node, client, put, clock, apart
        self.outstanding, self.book, self.lost, self.peers, self.allowances = outstanding, book, lost, peers, allowances
        self.origins: dict[str, asyncio.Task[None]] = {}
        # The last call of each transfer, replica and place; all of them are in `tasks`.
        self.newest: dict[str, asyncio.Task[None]] = {}
        self.tasks = Tasks()
        self.readied: dict[str, tuple[float, int]] = {}
        self.slots = asyncio.Semaphore(CALLS_MAX)
        self.transfer_calls = Together(self._ask_transfers)
        self.delete_calls = Together(self._ask_deletes)
        # Transfers that the node goes on with, and whose limits cannot be told before their credentials are there.
        self.untold: set[str] = set()

    def carry_out(self, command: ToNode) -> None:
        key_of, call = CALLS[type(command)]
        if isinstance(command, cmd.CancelTransfer):
            self.allowances.withdraw(command.transfer)
        key = key_of(command)
        task = self.newest[key] = self.tasks.start(f"a call to node {self.node}", self._in_turn(self.newest.get(key), call, command))
        task.add_done_callback(lambda done: self._ended(key, done))

    async def _in_turn(self, before: asyncio.Task[None] | None, call: Callable[..., Coroutine[Any, Any, None]], command: ToNode) -> None:
        if before is not None:
            await asyncio.wait([before])
        await call(self, command)

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        if self.newest.get(key) is task:
            del self.newest[key]

    async def quiet(self) -> None:
        """Waits until no call is under way."""
        while self.newest:
            await asyncio.wait(self.newest.values())

    async def close(self) -> None:
        self.transfer_calls.close()
        self.delete_calls.close()
        await self.allowances.close()
        await self.peers.close()
        await self.tasks.close()

    def _is_lost(self, problem: StagerError) -> bool:
        if is_lost(problem) or problem.code == "stale_epoch":
            self.lost(problem)
            return True
        return False

    async def origin_id(self, run: str, name: str) -> str:
        """The origin's id at the node, told to this incarnation before it is used. Raises InvalidInput for one that it cannot reach."""
        return (await self._origin(run, name))[0]

    async def _origin(self, run: str, name: str) -> tuple[str, dict[str, Any]]:
        workflow = self.outstanding.workflows[run]
        if self.apart and workflow.origins[name].beside_workflow:
            text = f"the I/O node {self.node} is on another host, and {workflow.origins[name].url} is a directory beside the workflow"
            raise InvalidInput(f"{text}; name an origin that all nodes reach, as sftp or S3", code="origin_elsewhere", subject=name)
        known = self.book.known(run, name)
        origin_id, config = known if known is not None else await asyncio.to_thread(self.book.work_out, run, name, workflow)
        telling = self.origins.get(origin_id)
        if telling is None or (telling.done() and (telling.cancelled() or telling.exception() is not None)):
            telling = self.origins[origin_id] = asyncio.create_task(self.client.put_origin(origin_id, config))
        await asyncio.shield(telling)
        return origin_id, config

    async def allowed_origin(self, run: str, name: str, what: str) -> str:
        """As `origin_id`, when this may be asked of the node there. Raises NotAskedError where it is not to be asked any more."""
        origin_id, config = await self._origin(run, name)
        await self.allowances.require(origin_id, config, what)
        return origin_id

    async def take_up(self, transfers: Sequence[cmd.Fetch | cmd.AssembleStripes | cmd.Upload]) -> None:
        """The node goes on with these, which an earlier contact asked for. Those whose credentials are not here have what the node was told
        last, until they are brought.
        """
        for command in transfers:
            try:
                origin_id, config = await self._origin(command.run, command.origin)
            except StagerError as problem:
                log.info("node %s: transfer %s has no new allowance for now: %s", self.node, command.transfer, problem.message)
                self.untold.add(command.transfer)
                continue
            self.untold.discard(command.transfer)
            if command.transfer in self.outstanding.transfers:
                self.allowances.take_up(origin_id, config, command.transfer)

    async def get_ready(self, run: str, job: str) -> None:
        """Has the node log in where the finals of this job, which begins, will go."""
        workflow = self.outstanding.workflows.get(run)
        begun = workflow.jobs.get(job) if workflow is not None else None
        if workflow is None or begun is None:
            return
        destinations = (workflow.files[output.lfn].destination for output in begun.outputs)
        places = Counter(destination.location.origin for destination in destinations if destination is not None)
        for origin, files in places.items():
            try:
                origin_id, config = await self._origin(run, origin)
                if self.allowances.is_there(origin_id, config):
                    await self._ready_origin(origin_id, files)
            except StagerError as problem:
                log.debug("node %s: not ready for the finals of %s: %s", self.node, job, problem.message)

    async def _ready_origin(self, origin_id: str, files: int) -> None:
        told_at, told = self.readied.get(origin_id, (-math.inf, 0))
        if self.clock() - told_at < READY_AGAIN_S and files <= told:
            return
        self.readied[origin_id] = self.clock(), files
        async with self.slots:
            await self.client.get_ready(origin_id, files)

    async def put_transfer(self, command: cmd.Fetch | cmd.AssembleStripes | cmd.CopyReplica | cmd.Upload | cmd.Reprioritize) -> None:
        wanted = self.outstanding.transfers.get(command.transfer)
        if wanted is None:
            return
        try:
            if isinstance(wanted, cmd.CopyReplica):
                # Not with others: the node answers when the nodes that it sends on to are ready.
                async with self.slots:
                    await self.peers.require(wanted.source)
                    body = copy_body(wanted, command.priority)
                    answer = await self.client.put_transfer(command.transfer, body, command_id=command.id)
            else:
                origin_id = await self.allowed_origin(wanted.run, wanted.origin, command.transfer)
                if isinstance(wanted, cmd.AssembleStripes):
                    await self.peers.require_all(part.node for part in wanted.parts)
                body = transfer_body(wanted, origin_id, command.priority)
                if isinstance(wanted, cmd.Upload) and wanted.replaces and await self.is_ours(origin_id, wanted):
                    body["on_exists"] = "replace"
                elif isinstance(wanted, cmd.Upload) and wanted.made_at is not None:
                    body["made_s_ago"] = made_s_ago(wanted.made_at, self.clock())
                answer = await self.transfer_calls.ask((command.transfer, body, command.id))
        except NotAskedError:
            return
        except StagerError as problem:
            if not self._is_lost(problem):
                self.put(failed_at(self.node, command.id, command.transfer, problem))
            return
        except Exception as problem:
            log.exception("node %s was not asked for transfer %s", self.node, command.transfer)
            defect = Transient(f"a defect of stager: {type(problem).__name__}", code="internal", subject=command.transfer)
            self.put(failed_at(self.node, command.id, command.transfer, defect))
            return
        end = answer.end()
        if end is not None and (event := node_event(self.node, end)) is not None:
            self.put(event)

    async def _ask_transfers(self, asked: Sequence[tuple[str, Body, str]]) -> Sequence[TransferAnswer | StagerError]:
        if len(asked) > 1:
            return await self.client.put_transfers(asked)
        return [await self.client.put_transfer(transfer, body, command_id=command_id) for transfer, body, command_id in asked]

    async def _ask_deletes(self, asked: Sequence[tuple[str, str, str]]) -> Sequence[StagerError | None]:
        return await self.client.delete_replicas(asked)

    async def is_ours(self, origin_id: str, upload: cmd.Upload) -> bool:
        """Whether what is at its destination now is the earlier making that we left there."""
        async with self.slots:
            (entry,) = await self.client.stat(origin_id, [upload.path])
        return entry.token == upload.replaces

    async def cancel_transfer(self, command: cmd.CancelTransfer) -> None:
        try:
            async with self.slots:
                await self.client.cancel_transfer(command.transfer, command_id=command.id)
        except StagerError as problem:
            # Unknown to the node: it was never asked, so it is called off already.
            if not self._is_lost(problem):
                self.put(ev.TransferCancelled(at=0.0, cause=command.id, node=self.node, transfer=command.transfer))

    async def delete_replica(self, command: cmd.DeleteReplica) -> None:
        try:
            await self.delete_calls.ask((command.file, command.generation, command.id))
        except StagerError as problem:
            if self._is_lost(problem):
                return
            if problem.code != "replica_busy":
                log.warning("node %s: replica %s of %s cannot be deleted: %s", self.node, command.generation, command.file, problem.message)
            facts = {"node": self.node, "file": command.file, "generation": command.generation}
            self.put(ev.ReplicaBusy(at=0.0, cause=command.id, **facts))

    async def erase_spill(self, command: cmd.EraseSpill) -> None:
        """A spill that cannot be erased now is tried again at the next contact, and named in the log."""
        try:
            origin_id = await self.allowed_origin(command.run, command.origin, command.id)
            async with self.slots:
                await self.client.erase(origin_id, command.path, command.token or None, command_id=command.id)
        except NotAskedError:
            return
        except StagerError as problem:
            if not self._is_lost(problem):
                log.warning("the spilled file %s at the origin %s is not erased: %s", command.path, command.origin, problem.message)
            return
        finally:
            self.allowances.over(command.id)
        self.put(ev.SpillErased(at=0.0, cause=command.id, origin=command.origin, path=command.path))


def failed_at(node: str, cause: str, transfer: str, why: StagerError) -> ev.TransferFailed:
    return ev.TransferFailed(at=0.0, cause=cause, node=node, transfer=transfer, fault=why.fault())


def by_transfer(command: cmd.Fetch | cmd.AssembleStripes | cmd.CopyReplica | cmd.Upload | cmd.Reprioritize | cmd.CancelTransfer) -> str:
    return command.transfer


def by_replica(command: cmd.DeleteReplica) -> str:
    return f"{command.file}/{command.generation}"


def by_place(command: cmd.EraseSpill) -> str:
    return f"{command.origin}:{command.path}"


CALLS: dict[type, tuple[Callable[[Any], str], Callable[..., Coroutine[Any, Any, None]]]] = {
    cmd.Fetch: (by_transfer, NodeCalls.put_transfer),
    cmd.AssembleStripes: (by_transfer, NodeCalls.put_transfer),
    cmd.CopyReplica: (by_transfer, NodeCalls.put_transfer),
    cmd.Upload: (by_transfer, NodeCalls.put_transfer),
    cmd.Reprioritize: (by_transfer, NodeCalls.put_transfer),
    cmd.CancelTransfer: (by_transfer, NodeCalls.cancel_transfer),
    cmd.DeleteReplica: (by_replica, NodeCalls.delete_replica),
    cmd.EraseSpill: (by_place, NodeCalls.erase_spill),
}


def made_s_ago(made_at: float, now: float) -> int:
    """In whole seconds, rather too many: in doubt what is at the destination stays."""
    return min(S_AGO_MAX, max(0, math.ceil(now - made_at)))


def copy_body(command: cmd.CopyReplica, priority: int) -> dict[str, Any]:
    """docs/formats/ionode-api.md, Transfers: copies between nodes."""
    return {
        "kind": "copy",
        "file_id": command.file,
        "generation": command.transfer,
        "sources": [{"node_id": command.source, "generation": command.source_generation}],
        "expected": {"size_bytes": command.size_bytes, "blake3": command.blake3 or None},
        "priority": priority,
    }


def transfer_body(command: cmd.Fetch | cmd.AssembleStripes | cmd.Upload, origin_id: str, priority: int) -> dict[str, Any]:
    """docs/formats/ionode-api.md, Transfers."""
    place = {"origin_id": origin_id, "path": command.path}
    if isinstance(command, cmd.Upload):
        return {
            "kind": "upload",
            "file_id": command.reads or command.file,
            "generation": command.generation,
            "destination": place,
            "on_exists": "replace" if command.replace else "fail",
            "verify": "auto",
            "priority": priority,
            "make_executable": command.executable,
        }
    stripe = command.stripe if isinstance(command, cmd.Fetch) else None
    expected = {
        "size_bytes": command.size_bytes if stripe is None else stripe.file_bytes,
        "token": command.token or None,
        "blake3": command.blake3 or None,
        "sha256": command.sha256 or None,
    }
    fetch: dict[str, Any] = {
        "kind": "fetch",
        "file_id": command.file,
        "generation": command.transfer,
        "source": place,
        "expected": expected,
        "priority": priority,
        "executable": command.executable,
    }
    if stripe is not None:
        fetch["stripe"] = {"index": stripe.index, "count": stripe.count, "stripe_bytes": stripe.stripe_bytes}
    if isinstance(command, cmd.AssembleStripes):
        held_by = [{"node_id": part.node, "generation": part.transfer} for part in command.parts]
        fetch["parts"] = {"stripe_bytes": STRIPE_BYTES, "held_by": held_by}
    return fetch
