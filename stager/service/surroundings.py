"""The facts about their scheduler that the executors need. One rule: they ask; what they tell goes into the inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from stager.model.errors import InvalidInput, StagerError, Transient
from stager.model.workflow import Workflow
from stager.runtime.clock import SteadyClock
from stager.runtime.credentials import CredentialBook
from stager.runtime.mounting import mounted
from stager.runtime.node_link import NodeLink
from stager.runtime.outstanding import Outstanding
from stager.scheduler import commands as cmd
from stager.service.inquiry import Inquiry, Pulse
from stager.service.known_runs import KnownRuns
from stager.wire.node import ClosedAttempt
from stager.worker.node_port import UNASKED_CODES

if TYPE_CHECKING:
    from stager.adapters.attempt_tickets import Door

ASK_AGAIN_S = 0.2


class DiskPromises:
    """The bytes that the embedded node may still take of the disk of the state directory. `storage_bytes`: of that for objects."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, node: str, storage_bytes: int) -> None:
        self.inquiry, self.runs, self.node, self.storage_bytes = inquiry, runs, node, storage_bytes

    async def owed_bytes(self) -> int:
        return await self.inquiry.ask(self._cache_bytes) + self.storage_bytes

    def _cache_bytes(self) -> int:
        """On the driving thread. 0: the Machine has not met it yet."""
        node = self.runs.state.nodes.get(self.node)
        return 0 if node is None else max(0, node.capacity_bytes - node.present_bytes)


class Surroundings:
    """On the event loop's thread."""

    def __init__(
        self,
        outstanding: Outstanding,
        book: CredentialBook,
        tenant_of: Callable[[str], str],
        links: Mapping[str, NodeLink],
        promises: DiskPromises,
        pulse: Pulse,
        clock: SteadyClock,
    ) -> None:
        self.outstanding, self.book, self.tenant_of = outstanding, book, tenant_of
        self.links, self.promises, self.pulse, self.clock = links, promises, pulse, clock

    def workflow(self, run: str) -> Workflow:
        return self.outstanding.workflows[run]

    def env(self, run: str) -> Mapping[str, str] | None:
        return self.book.env.get(run)

    def is_a_tenants(self, run: str) -> bool:
        return bool(self.tenant_of(run))

    async def reachable(self, node: str) -> bool:
        """One that this scheduler has no link to may be there after its next start, and is waited for as one that is away. False: it is
        gone for good.
        """
        while (link := self.links.get(node)) is None or not link.up:
            if node in self.outstanding.gone:
                return False
            await self.pulse.happening(self.pulse.changed)
        return True

    def door(self, node: str) -> Door:
        """Raises Transient where the node does not answer now, InvalidInput for one that hosts cannot reach."""
        # Most schedulers have no pool, and start sooner without this.
        from stager.adapters.attempt_tickets import Door

        link = self.links.get(node)
        if link is None or not link.up:
            raise Transient(f"the I/O node {node} does not answer now", code="connection_lost", subject=node)
        peer = link.source.peer_address()
        if peer is None:
            text = f"the I/O node {node} listens to this machine alone, and the hosts beside it share no files with it"
            raise InvalidInput(f"{text}; start `stager worker` with --node {node}=STORE", code="not_reached", subject=node)
        return Door(link.client, peer)

    async def owed_bytes(self) -> int:
        return await self.promises.owed_bytes()

    async def mounted(self, node: str, run: str, origin: str, path: str) -> str:
        return await mounted(self.links[node].calls, run, origin, path)

    def at(self, wall: float) -> float:
        return self.clock.of_wall(wall)

    def attempts_on(self, host: str) -> Collection[str]:
        return [command.attempt for command in self.outstanding.attempts.values() if command.host == host]

    def is_host_gone(self, attempt: str) -> bool:
        return attempt in self.outstanding.hostless

    async def close_attempt(self, command: cmd.StartAttempt, *, ticketed: bool) -> ClosedAttempt | None:
        """An answer that it knows nothing of the attempt is as good, and that it is gone for good."""
        while await self.reachable(command.node):
            client = self.links[command.node].client
            body = {"sandbox_dir": f"/attempts/{command.attempt}", "remove_sandbox": False, "reservation_id": command.attempt}
            try:
                if ticketed:
                    return await client.close_attempt(command.attempt)
                await client.release(command.attempt, body)
                return None
            except StagerError as problem:
                if problem.code not in UNASKED_CODES:
                    return None
                await asyncio.sleep(ASK_AGAIN_S)
        return None
