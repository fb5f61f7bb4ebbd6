"""How long it takes until a replica that is to go has made room, from what deletes took.

May know: the model's statistics and links. One rule: what the deletes do not show is None; nothing is made up here.

A delete's time is all of it: from the command to the word of its end. So the scheduler's own pace is in it: how long what a node says waits
for its turn. Where room is short, jobs wait for that again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stager.model.copying import usual
from stager.model.link import Move, run_weights
from stager.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Deleting:
    """`latency_s`: what a delete takes. None: nobody saw it."""

    latency_s: float | None = None

    def of(self, topology: Topology) -> Topology:
        """With nodes that delete so."""
        if self.latency_s is None:
            return topology
        nodes = [replace(node, delete_latency_s=self.latency_s, delete_measured=True) for node in topology.nodes]
        return replace(topology, nodes=tuple(nodes))


def deleting_of(moves: Iterable[Move]) -> Deleting:
    """From deletes on any node, in any order, told of as moves; the newest runs count most."""
    ordered = sorted(moves, key=lambda move: (move.ended_at, move.begun_at, move.run))
    weights = run_weights(ordered)
    return Deleting(usual([(move.took_s, weights[move.run]) for move in ordered]))
