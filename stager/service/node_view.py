"""The word of the node and the executor right now, for views. One rule: telemetry: late or missing answers change nothing but the
picture.
"""

from __future__ import annotations

import asyncio
import contextlib

from stager import wire
from stager.adapters.executor_local import LocalExecutor
from stager.model.errors import Fault, Refused, StagerError
from stager.runtime.node_link import NodeLink
from stager.runtime.outstanding import Outstanding
from stager.wire.node import NodeTransfer

DEADLINE_S = 2.0


class NodeWatch:
    """On the event loop's thread."""

    def __init__(self, link: NodeLink, executor: LocalExecutor, outstanding: Outstanding) -> None:
        self.link, self.executor, self.outstanding = link, executor, outstanding

    async def telemetry(self) -> dict[str, NodeTransfer]:
        """Transfers as the node sees them; empty if it cannot be asked now."""
        if self.link.up and self.outstanding.transfers:
            with contextlib.suppress(TimeoutError, StagerError):
                async with asyncio.timeout(DEADLINE_S):
                    return {entry.transfer_id: entry for entry in await self.link.client.transfers()}
        return {}

    async def nodes(self) -> list[wire.NodeView]:
        """As the node says now, else as it said last."""
        if self.link.up:
            with contextlib.suppress(TimeoutError, StagerError):
                async with asyncio.timeout(DEADLINE_S):
                    self.link.about = await self.link.client.node()
        about = self.link.about
        view = wire.NodeView(node=self.link.node, connected=self.link.up)
        if about is not None:
            view = wire.NodeView(
                node=self.link.node,
                connected=self.link.up,
                incarnation=about.incarnation,
                pid=about.pid,
                capacity_bytes=about.capacity_bytes,
                used_bytes=about.used_bytes,
                reserved_bytes=about.reserved_bytes,
                can_link=about.can_link,
            )
        return [view]

    def troubles(self, run: str) -> list[Fault]:
        """The troubles that keep a run waiting beside its own faults."""
        faults = [self.link.problem] if self.link.problem is not None and not self.link.up else []
        parked = sum(command.run == run for command in self.executor.parked.values())
        if parked:
            text = f"{parked} jobs wait for variables of the submitter's environment, which a restart forgot; run `stager resume {run}`"
            faults.append(Refused(text, code="env_unknown", subject=run).fault())
        return faults
