"""The word of the nodes and the executor right now, for views. One rule: telemetry: late or missing answers change nothing but the
picture.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from stager import wire
from stager.adapters.executor_engine import Executors
from stager.adapters.node_place import NO_TOKEN_CODE
from stager.model.errors import ErrorClass, Fault, Refused, StagerError, Transient
from stager.model.units import counted
from stager.runtime.node_link import NodeLink
from stager.runtime.outstanding import Outstanding
from stager.wire.node import NodeTransfer

DEADLINE_S = 2.0


class NodeWatch:
    """On the event loop's thread. All nodes are asked at once, so that one that is slow costs no more than the deadline. `embedded`: the
    one that this scheduler starts itself.
    """

    def __init__(
        self,
        links: Mapping[str, NodeLink],
        embedded: str,
        executors: Executors,
        outstanding: Outstanding,
        tenant_of: Callable[[str], str] = lambda run: "",
    ) -> None:
        self.links, self.embedded, self.executors, self.outstanding = links, embedded, executors, outstanding
        self.tenant_of = tenant_of

    def unreachable(self) -> list[str]:
        """The nodes that cannot be asked now."""
        return [link.node for link in self.links.values() if not link.up]

    def any_reachable(self) -> bool:
        return any(link.up for link in self.links.values())

    def answers(self, node: str) -> bool:
        link = self.links.get(node)
        return link is not None and link.up

    def is_silent(self, node: str) -> bool:
        """It neither answers nor refuses, nor is there anything to be mended before it is spoken to, as a certificate that has expired,
        which may be our own. And it is none that the scheduler starts itself.
        """
        link = self.links.get(node)
        if node == self.embedded or link is None:
            return node != self.embedded
        return not (link.up or link.excluded or (link.problem is not None and is_to_mend(link.problem)))

    async def tried(self) -> None:
        """Each node was met, or cannot be now. Not for longer than the deadline."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE_S):
                for link in self.links.values():
                    await link.tried.wait()

    async def telemetry(self) -> dict[str, NodeTransfer]:
        """Transfers as the nodes see them, without those of a node that cannot be asked now."""
        if not self.outstanding.transfers:
            return {}
        asked = [transfers_now(link) for link in self.links.values() if link.up]
        return {entry.transfer_id: entry for entries in await asyncio.gather(*asked) for entry in entries}

    async def nodes(self) -> list[wire.NodeView]:
        """As each node says now, else as it said last."""
        return await asyncio.gather(*(node_now(link, embedded=link.node == self.embedded) for link in self.links.values()))

    def troubles(self, run: str) -> list[Fault]:
        """The troubles that keep a run waiting beside its own faults."""
        faults = [link.problem for link in self.links.values() if not link.up and link.problem is not None and self._is_needed(run, link)]
        pool = self.executors.pool_of(self.tenant_of(run))
        if pool is not None and not pool.answers:
            text = f"the pool of hosts at {pool.address} does not answer, and jobs wait for it: {pool.problem or 'not asked yet'}"
            faults.append(Transient(text, code="pool_away", subject=run).fault())
        if parked := self.executors.parked(run):
            what = counted(parked, "job", "waits", "wait")
            text = f"{what} for variables of the submitter's environment, which a restart forgot; run `stager resume {run}`"
            faults.append(Refused(text, code="env_unknown", subject=run).fault())
        return faults

    def _is_needed(self, run: str, link: NodeLink) -> bool:
        """Another node may do what this one does not, but for what was begun there."""
        if not self.any_reachable():
            return True
        begun = (*self.outstanding.attempts.values(), *self.outstanding.transfers.values())
        return any(command.run == run and command.node == link.node for command in begun)


def is_to_mend(problem: Fault) -> bool:
    """It does not pass by itself."""
    return problem.error_class is not ErrorClass.TRANSIENT or problem.code == NO_TOKEN_CODE


async def transfers_now(link: NodeLink) -> list[NodeTransfer]:
    """None, where it does not answer in time."""
    with contextlib.suppress(TimeoutError, StagerError):
        async with asyncio.timeout(DEADLINE_S):
            return await link.client.transfers()
    return []


async def node_now(link: NodeLink, *, embedded: bool) -> wire.NodeView:
    if link.up:
        with contextlib.suppress(TimeoutError, StagerError):
            async with asyncio.timeout(DEADLINE_S):
                link.about = await link.client.node()
    problem = link.problem.message if link.problem is not None and not link.up else ""
    view = wire.NodeView(
        node=link.node, connected=link.up, embedded=embedded, excluded=link.excluded, problem=problem, address=link.address
    )
    about = link.about
    if about is None:
        return view
    return view.model_copy(
        update={
            "incarnation": about.incarnation,
            "pid": about.pid,
            "capacity_bytes": about.capacity_bytes,
            "used_bytes": about.used_bytes,
            "reserved_bytes": about.reserved_bytes,
            "can_link": about.can_link,
            "store_id": about.store_id,
        }
    )
