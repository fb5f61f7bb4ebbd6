"""Changes that a client asks for: answered once the journal holds what follows from them.

May know: the run service. One rule: an answer that something was taken comes after the journal holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from stager import wire
from stager.adapters.run_records import RunRecord
from stager.model.errors import Refused
from stager.model.workflow import Workflow
from stager.scheduler import events as ev
from stager.service.inquiry import Inquiry
from stager.service.lifetime import Lifetime
from stager.service.node_view import NodeWatch
from stager.service.other_hosts import OtherHosts
from stager.service.run_service import OWNER, RunService, Sender

T = TypeVar("T")
# Called once the journal holds what was asked for.
Told = Callable[[], None]


class Commits:
    """On the event loop's thread."""

    def __init__(self, inquiry: Inquiry, lifetime: Lifetime) -> None:
        self.inquiry, self.lifetime = inquiry, lifetime

    async def taken(self, ask: Callable[[Told], T]) -> T:
        """Asks on the driving thread, and answers once the journal holds what follows."""
        loop = asyncio.get_running_loop()
        durable: asyncio.Future[None] = loop.create_future()

        def told() -> None:
            loop.call_soon_threadsafe(lambda: None if durable.done() else durable.set_result(None))

        answer = await self.inquiry.ask(lambda: ask(told))
        waiting = asyncio.create_task(self.lifetime.ended.wait())
        either: list[asyncio.Future[Any]] = [durable, waiting]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not durable.done():
            raise Refused("the scheduler ended before it took this; start it again and ask again", code="draining")
        return answer


class RunCommands:
    """The commands of the run service, on the event loop's thread."""

    def __init__(
        self,
        inquiry: Inquiry,
        commits: Commits,
        run_service: RunService,
        clock: Callable[[], float],
        nodes: NodeWatch,
        other_hosts: OtherHosts,
    ) -> None:
        self.inquiry, self.commits, self.run_service, self.clock, self.nodes = inquiry, commits, run_service, clock, nodes
        self.other_hosts = other_hosts

    async def submit(self, request: wire.SubmitRequest, sender: Sender = OWNER) -> str:
        """The run's id. What its plan places on a node that was not asked yet is not placed elsewhere before that was tried."""
        await self.nodes.tried()
        await self.other_hosts.require_seen(request)
        return await self.commits.taken(lambda told: self.run_service.submit(request, self.clock(), told, sender))

    async def taken_before(self, key: str, sender: Sender) -> RunRecord | None:
        """The run that this submit has made already. Raises Refused if it was another request."""
        return await self.inquiry.ask(lambda: self.run_service.taken_before(key, sender))

    async def workflow_of(self, run: str) -> Workflow | None:
        """None: it is over, and not known any more."""
        return await self.inquiry.ask(lambda: self.run_service.workflow_of(run))

    async def add_key(self, key: str, run: str, tenant: str) -> None:
        await self.inquiry.ask(lambda: self.run_service.add_key(key, run, tenant))

    async def resume(self, run: str, request: wire.ResumeRequest) -> list[str]:
        """The differences from now on."""
        return await self.commits.taken(lambda told: self.run_service.resume(run, request, told))

    async def end(self, run: str, event: type, by: str = ev.BY_REQUEST) -> None:
        """Drain, stop or cancel."""
        await self.commits.taken(lambda told: self.run_service.end(run, event, told, by))
