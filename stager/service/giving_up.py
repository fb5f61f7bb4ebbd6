"""Nodes and hosts that have been silent for as long as the administrator allows are given up, without a person's word.

May know: the Machine's state (read only), the inbox. One rule: only silence that this scheduler has heard itself counts, and a node is
given up only where nothing else explains its silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stager.model.units import format_duration
from stager.ports import Put
from stager.scheduler import events as ev
from stager.scheduler.node_entry import HostEntry, NodeEntry
from stager.scheduler.state import State
from stager.service.inquiry import Inquiry

LOOK_EVERY_S = 5.0
CAUSE = "gone_after"
NODE, POOL = "node", "pool"


@dataclass(frozen=True, slots=True)
class Patience:
    """`after_s` None: nothing is given up by itself. `began_at`: when this scheduler began, by the Machine's clock. `is_silent`: a node by
    this name does not answer, nor refuse. `hears_hosts`: that tenant's pool answers, so that a host's silence is its own. `explained`:
    when a silence was last seen to have another reason, of a node or of all hosts of a tenant's pool: it counts from then on alone.
    """

    after_s: float | None
    began_at: float
    is_silent: Callable[[str], bool]
    hears_hosts: Callable[[str], bool]
    explained: dict[tuple[str, str], float] = field(default_factory=dict)

    def of_node(self, node: NodeEntry) -> float | None:
        """When it is given up, if it stays silent. None: it is not."""
        if self.after_s is None or node.reachable or node.gone or not node.incarnation or not self.is_silent(node.id):
            return None
        return max(node.since, self.began_at, self.explained.get((NODE, node.id), 0.0)) + self.after_s

    def of_host(self, host: HostEntry) -> float | None:
        if self.after_s is None or host.answers or not self.hears_hosts(host.tenant):
            return None
        return max(host.lost_at, self.began_at, self.explained.get((POOL, host.tenant), 0.0)) + self.after_s

    def due(self, state: State, now: float) -> Iterator[ev.NodeGone | ev.HostGone]:
        why = f"no answer for {format_duration(self.after_s or 0.0)} (gone_after)"
        for node in state.nodes.values():
            if not self.is_silent(node.id):
                self.explained[NODE, node.id] = now
            for tenant in {host.tenant for host in node.hosts.values() if not self.hears_hosts(host.tenant)}:
                self.explained[POOL, tenant] = now
            at = self.of_node(node)
            if at is not None and at <= now:
                yield ev.NodeGone(at=0.0, cause=CAUSE, node=node.id, why=why)
            for host in node.hosts.values():
                at = self.of_host(host)
                if at is not None and at <= now:
                    yield ev.HostGone(at=0.0, cause=CAUSE, host=host.id, why=why)


NEVER_GIVES_UP = Patience(None, 0.0, lambda node: False, lambda tenant: False)


async def give_up(patience: Patience, inquiry: Inquiry, state: State, clock: Callable[[], float], put: Put) -> None:
    """For ever: what is due is put."""
    while patience.after_s is not None:
        await asyncio.sleep(min(LOOK_EVERY_S, patience.after_s / 4))
        for event in await inquiry.ask(lambda: list(patience.due(state, clock()))):
            put(event)
