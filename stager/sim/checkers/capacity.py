"""No node ever holds more than it can; no more cores are in use than there are. One rule: sums are taken from the node's truth, anew each
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stager.sim.checkers.quiet import QuietChecker
from stager.sim.world import Violation

if TYPE_CHECKING:
    from stager.sim.attempts import Trying
    from stager.sim.world import SimWorld


BUSY = ("reading", "computing")


def is_native(world: SimWorld, trying: Trying) -> bool:
    """An engine's task takes no core of stager's."""
    return not world.runs[trying.command.run].workflow.engine


class CapacityChecker(QuietChecker):
    """`shrunk` nodes may hold more than a capacity that was lowered later, but may not grow."""

    def __init__(self) -> None:
        self.used_max: dict[str, int] = {}
        self.cores_max = 0

    def after(self, world: SimWorld) -> None:
        if world.overfull:
            raise Violation(f"at {world.clock.now:.3f}: {world.overfull}")
        for node in world.nodes.values():
            used = sum(replica.size_bytes for replica in node.replicas.values())
            reserved = sum(node.reservations.values())
            if (used, reserved) != (node.used_bytes, node.reserved_bytes):
                raise Violation(f"node {node.id}: {used} + {reserved} held, the accounting says {node.used_bytes} + {node.reserved_bytes}")
            before = self.used_max.get(node.id, 0)
            if used + reserved > node.capacity_bytes and used + reserved > before:
                raise Violation(f"node {node.id}: {used} used + {reserved} reserved of {node.capacity_bytes}")
            self.used_max[node.id] = used + reserved
        limit = world.limits.cores
        for node in () if world.hosts else world.nodes.values():
            busy = [
                trying
                for trying in world.executor.open.values()
                if is_native(world, trying) and trying.node is node and trying.state in BUSY
            ]
            cores = sum(min(trying.job.cores, limit) for trying in busy)
            self.cores_max = max(self.cores_max, cores)
            if cores > limit:
                raise Violation(f"node {node.id}: {cores} cores busy of {limit}")
