"""What each of several I/O nodes may use of an origin's limits: its allowance.

May know: nothing; times are told. One rule: what all nodes may be using together is never more than there is, so one has less before
another has more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple


class Allowance(NamedTuple):
    """None: nobody set a limit."""

    bytes_per_s: int | None = None
    connections: int | None = None

    @property
    def is_limited(self) -> bool:
        return self.bytes_per_s is not None or self.connections is not None

    @property
    def is_usable(self) -> bool:
        return self.bytes_per_s != 0 and self.connections != 0

    def exceeds(self, other: Allowance) -> bool:
        return any(mine is not None and mine > (theirs or 0) for mine, theirs in zip(self, other, strict=True))

    def least(self, other: Allowance) -> Allowance:
        return Allowance(*(None if mine is None else min(mine, theirs or 0) for mine, theirs in zip(self, other, strict=True)))

    def most(self, other: Allowance) -> Allowance:
        return Allowance(*(None if mine is None else max(mine, theirs or 0) for mine, theirs in zip(self, other, strict=True)))

    def without(self, other: Allowance) -> Allowance:
        """Nothing, where the other is more."""
        return Allowance(*(None if mine is None else max(0, mine - (theirs or 0)) for mine, theirs in zip(self, other, strict=True)))

    def plus(self, other: Allowance) -> Allowance:
        return Allowance(*(None if mine is None else mine + (theirs or 0) for mine, theirs in zip(self, other, strict=True)))


def divided(limits: Allowance, nodes: Sequence[str]) -> dict[str, Allowance]:
    """Equal parts, in the order of their turns: the first have what is left over, and no more nodes than connections have any."""
    served = nodes if limits.connections is None else nodes[: limits.connections]
    parts = [[None] * len(served) if most is None else equal_parts(most, len(served)) for most in limits]
    return {node: Allowance(*part) for node, part in zip(served, zip(*parts, strict=True), strict=True)}


def equal_parts(most: int, count: int) -> list[int]:
    return [most // count + (number < most % count) for number in range(count)]


@dataclass(slots=True)
class Held:
    """What a node may be using, until then. `sure`: it said so itself. `assumed`: nobody here told it, so it may be all there is."""

    allowance: Allowance
    until: float
    sure: bool
    assumed: bool = False


@dataclass(slots=True)
class Demand:
    """`asked`: what the node was asked to do there; `waiting`: what it will be asked."""

    asked: set[str] = field(default_factory=set)
    waiting: dict[str, None] = field(default_factory=dict)
    kept_until: float = -inf

    @property
    def is_some(self) -> bool:
        return bool(self.asked or self.waiting)


class Division:
    """Of one origin's limits among nodes, by what is wanted of each there. A node keeps its part for `keep_s` after it was idle."""

    def __init__(self, limits: Allowance, keep_s: float = 0.0) -> None:
        self.limits, self.keep_s, self.now = limits, keep_s, -inf
        self.nothing = limits.without(limits)
        self.held: dict[str, Held] = {}
        # In the order of their turns.
        self.demands: dict[str, Demand] = {}

    def want(self, node: str, what: str) -> None:
        demand = self.demands.setdefault(node, Demand())
        if what not in demand.asked:
            demand.waiting[what] = None

    def is_asked(self, node: str, what: str) -> bool:
        demand = self.demands.get(node)
        return demand is not None and what in demand.asked

    def asked(self, node: str, what: str) -> None:
        """It was asked for before this began."""
        self.demands.setdefault(node, Demand()).asked.add(what)

    def over(self, node: str, what: str) -> None:
        """It has ended, or is not wanted any more. A node that was served goes behind those that wait."""
        demand = self.demands.get(node)
        if demand is None:
            return
        demand.asked.discard(what)
        demand.waiting.pop(what, None)
        if demand.asked:
            return
        demand.kept_until = self.now + self.keep_s
        most, others = self.limits.connections, sum(other.is_some for other in self.demands.values() if other is not demand)
        if most is not None and others >= most:
            self.demands[node] = self.demands.pop(node)

    def lost(self, node: str) -> None:
        """Nothing is wanted of it any more. It may go on with what it was asked."""
        self.demands.pop(node, None)

    def fresh(self, node: str) -> None:
        """It was started anew, and knows of nothing."""
        self.lost(node)
        self.held.pop(node, None)

    def pass_to(self, now: float) -> None:
        self.now = now
        self.held = {node: held for node, held in self.held.items() if held.until > now}
        self.demands = {node: demand for node, demand in self.demands.items() if demand.is_some or demand.kept_until > now}

    @property
    def starves(self) -> bool:
        """More nodes want something than there are connections."""
        return self.limits.connections is not None and sum(demand.is_some for demand in self.demands.values()) > self.limits.connections

    def targets(self) -> dict[str, Allowance]:
        """Nothing is taken away from a node in the middle of what it was asked, where that leaves it none."""
        wanting = [node for node, demand in self.demands.items() if demand.is_some]
        busy = [node for node in wanting if self.demands[node].asked]
        kept = [node for node, demand in self.demands.items() if not demand.is_some]
        return divided(self.limits, [*busy, *(node for node in wanting if node not in busy), *kept])

    def fewer(self) -> dict[str, Allowance]:
        """What nodes are to have that have more than their part, or of which nobody knows. Where nobody wants anything they keep it."""
        targets = self.targets()
        if not targets:
            return {}
        parts = {node: self.nothing if held.assumed else targets.get(node, self.nothing) for node, held in self.held.items()}
        over = {node: held.allowance.least(parts[node]) for node, held in self.held.items()}
        return {node: part for node, part in over.items() if self.held[node].allowance.exceeds(part)}

    def more(self) -> dict[str, Allowance]:
        """What nodes are to have that have less, as far as others do not have it still."""
        free = self.limits
        for held in self.held.values():
            free = free.without(held.allowance)
        grown = {}
        for node, target in self.targets().items():
            has = self.held[node].allowance if node in self.held else self.nothing
            part = has.plus(target.without(has).least(free))
            if part.exceeds(has):
                free = free.without(part.without(has))
                grown[node] = part
        return grown

    def assume(self, node: str, until: float) -> None:
        """Another scheduler may have told it of anything."""
        self.held[node] = Held(self.limits, until, False, True)

    def telling(self, node: str, allowance: Allowance) -> None:
        """From now on it may have heard of it, and may not."""
        held = self.held.get(node)
        self.held[node] = Held(allowance if held is None else allowance.most(held.allowance), inf, False)

    def told(self, node: str, allowance: Allowance, connections: int, until: float) -> None:
        """`connections`: those that it has still."""
        still = allowance._replace(connections=connections) if allowance.connections is not None else allowance
        self.held[node] = Held(allowance.most(still), until, True)

    def not_told(self, node: str, until: float) -> None:
        held = self.held[node]
        self.held[node] = Held(held.allowance, until, False)

    def released(self) -> list[tuple[str, str]]:
        """What nodes may be asked now. Where others wait, a node is asked for more when it is done with what it has."""
        ready = []
        for node in self.targets():
            held, demand = self.held.get(node), self.demands[node]
            if held is None or not held.sure or not held.allowance.is_usable or (demand.asked and self.starves):
                continue
            ready += [(node, what) for what in demand.waiting]
            demand.asked.update(demand.waiting)
            demand.waiting.clear()
        return ready

    def next_at(self) -> float:
        """When something changes by itself."""
        kept = [demand.kept_until for demand in self.demands.values() if not demand.is_some]
        return min((*(held.until for held in self.held.values()), *kept), default=inf)
