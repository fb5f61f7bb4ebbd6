"""How fast files go from one I/O node to another, from what copies took.

May know: the model's statistics and links. One rule: what the copies do not show is None; nothing is made up here.

A copy's time is all of it: from the command to the word of its end. So what the scheduler and both nodes take for each is in it, and what
others beside it take of them. That is what a job waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stager.model.link import SMALL_BYTES, Move, run_weights
from stager.model.robust import median
from stager.model.topology import Topology

# Fewer copies say less than the default does.
SAMPLES_MIN = 5
# Bytes have to take that much longer than the rest, before they tell of the rate.
MATTERS_S = 0.02


@dataclass(frozen=True, slots=True)
class Copying:
    """`latency_s`: what a copy takes beside its bytes. None: nobody saw it."""

    latency_s: float | None = None
    bytes_per_s: float | None = None

    def of(self, topology: Topology) -> Topology:
        """With nodes that copy so."""
        nodes = topology.nodes
        if self.latency_s is not None:
            nodes = tuple([replace(node, copy_latency_s=self.latency_s, copy_measured=True) for node in nodes])
        if self.bytes_per_s is not None:
            nodes = tuple([replace(node, network_bytes_per_s=self.bytes_per_s, network_measured=True) for node in nodes])
        return replace(topology, nodes=nodes)


def copying_of(moves: Iterable[Move]) -> Copying:
    """From copies between any two nodes, in any order; the newest runs count most."""
    ordered = sorted(moves, key=lambda move: (move.ended_at, move.begun_at, move.run))
    weights = run_weights(ordered)
    latency_s = usual([(move.took_s, weights[move.run]) for move in ordered if move.moved_bytes <= SMALL_BYTES])
    return Copying(latency_s, rate_of(ordered, weights, latency_s or 0.0))


def rate_of(moves: Sequence[Move], weights: dict[str, float], latency_s: float) -> float | None:
    """By what large copies took beyond that. One that took hardly longer was too small to tell."""
    beyond = [(move, move.took_s - latency_s) for move in moves if move.moved_bytes > SMALL_BYTES]
    return usual([(move.moved_bytes / took_s, weights[move.run]) for move, took_s in beyond if took_s >= max(MATTERS_S, latency_s)])


def usual(seen: Sequence[tuple[float, float]]) -> float | None:
    return median(*zip(*seen, strict=True)) if len(seen) >= SAMPLES_MIN else None
