"""Links that flows share max-min fairly: WAN links of origins and disks of nodes.

May know: nothing but numbers. One rule: flows of one weight over the same links are one group with one rate, so a change costs O(groups)
and O(log flows), never O(flows).
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf
from typing import Any

from msgspec import Struct

# Flows that would end within this many bytes of each other end together: less than what a float can tell apart in a long run.
CLOSE_BYTES = 1e-3
SHARES_KEPT = 10_000


class Flow(Struct, eq=False):
    """`begun` and `target` are the service per flow of its group at which it begins and ends."""

    group: Group
    begun: float
    target: float
    subject: Any
    alive: bool = True


class Group:
    """All flows of one weight over one path. `served` counts the bytes that each of them got since the group was last empty; `limits` are
    the links of the path that have a capacity; `carried` the bytes of all that have ended. `number`: its place among all groups. `ends`:
    (target, order, flow), of which the first one is alive.
    """

    __slots__ = ("carried", "count", "ends", "limits", "number", "path", "rate", "served", "weight")

    def __init__(self, number: int, path: tuple[str, ...], limits: tuple[str, ...], weight: int) -> None:
        self.number, self.path, self.limits, self.weight = number, path, limits, weight
        self.rate, self.served, self.count = 0.0, 0.0, 0
        self.carried = 0.0
        self.ends: list[tuple[float, int, Flow]] = []


class Links:
    """Links without a capacity of their own do not limit."""

    def __init__(self, bytes_per_s: Mapping[str, float], now: float = 0.0) -> None:
        self.bytes_per_s = dict(bytes_per_s)
        self._groups: dict[tuple[tuple[str, ...], int], Group] = {}
        self._active: list[Group] = []
        # Links that flows have passed, in the order in which they were first used.
        self._passed: dict[str, None] = {}
        # Flows of each group, by its number; and what rates all active groups had with so many.
        self._flows: list[int] = []
        self._shares: dict[tuple[int, ...], list[tuple[Group, float]]] = {}
        self._now, self._count = now, 0
        self._stale = False
        self._next: tuple[float, Group | None] = (inf, None)

    def start(self, now: float, path: tuple[str, ...], size_bytes: float, subject: Any, weight: int = 1) -> Flow:
        """A flow of this size over these links, from now on. Of a link that it shares it gets as much as so many others of weight 1."""
        self._move_to(now)
        group = self._groups.get((path, weight))
        if group is None:
            limits = tuple(link for link in path if link in self.bytes_per_s)
            group = self._groups[path, weight] = Group(len(self._flows), path, limits, weight)
            self._flows.append(0)
            self._shares.clear()
            self._passed |= dict.fromkeys(limits)
        if not group.count:
            group.served = 0.0
            group.ends.clear()
            self._active.append(group)
        flow = Flow(group, group.served, group.served + size_bytes, subject)
        self._count += 1
        heappush(group.ends, (flow.target, self._count, flow))
        group.count += 1
        self._flows[group.number] += 1
        self._stale = True
        return flow

    def set_rate(self, now: float, link: str, bytes_per_s: float) -> None:
        """From now on. The bytes that it has carried are counted at the rate that it has in the end."""
        if self.bytes_per_s.get(link) != bytes_per_s:
            self._move_to(now)
            self.bytes_per_s[link] = bytes_per_s
            self._shares.clear()
            self._stale = True

    def stop(self, now: float, flow: Flow) -> None:
        """Called off; one that has ended already is left alone."""
        if flow.alive:
            self._move_to(now)
            self._end(flow, min(flow.group.served, flow.target))

    def weigh(self, now: float, flow: Flow, weight: int) -> Flow:
        """The rest of it, with another weight from now on."""
        self._move_to(now)
        left_bytes = max(0.0, flow.target - flow.group.served)
        self._end(flow, min(flow.group.served, flow.target))
        return self.start(now, flow.group.path, left_bytes, flow.subject, weight)

    def next_at(self) -> float:
        """When the next flow ends, if nothing else changes."""
        if self._stale:
            self._share()
            self._stale = False
            now, soonest, first = self._now, inf, None
            for group in self._active:
                if not group.ends or group.rate <= 0:
                    continue
                left = group.ends[0][0] - group.served
                at = now + left / group.rate if left > 0 else now
                if at < soonest:
                    soonest, first = at, group
            self._next = (soonest, first)
        return self._next[0]

    def take_ended(self, now: float) -> list[Any]:
        """Subjects of the flows that have ended by now."""
        first_at, first = self._next if not self._stale else (inf, None)
        self._move_to(now)
        ended: list[Any] = []
        for group in tuple(self._active):
            ends = group.ends
            while ends and (ends[0][0] <= group.served + CLOSE_BYTES or (group is first and first_at <= now)):
                first = None if group is first else first
                flow = ends[0][2]
                self._end(flow, flow.target)
                ended.append(flow.subject)
        return ended

    def busy_s(self) -> dict[str, float]:
        """For how long each link with a capacity would have been used at its full rate, by the flows that have ended."""
        busy_s = dict.fromkeys(self.bytes_per_s, 0.0)
        for group in self._groups.values():
            for link in group.limits:
                busy_s[link] += group.carried / self.bytes_per_s[link]
        return busy_s

    def _end(self, flow: Flow, served: float) -> None:
        group = flow.group
        flow.alive = False
        group.count -= 1
        self._flows[group.number] -= 1
        group.carried += served - flow.begun
        ends = group.ends
        while ends and not ends[0][2].alive:
            heappop(ends)
        if not group.count:
            self._active.remove(group)
        self._stale = True

    def _move_to(self, now: float) -> None:
        if now <= self._now:
            return
        if self._stale:
            self._share()
        passed_s = now - self._now
        for group in self._active:
            group.served += group.rate * passed_s
        self._now = now

    def _share(self) -> None:
        """The same numbers of flows get the same rates: a run comes back to few of them again and again."""
        flows = tuple(self._flows)
        shares = self._shares.get(flows)
        if shares is not None:
            for group, rate in shares:
                group.rate = rate
            return
        self._fill()
        if len(self._shares) < SHARES_KEPT:
            self._shares[flows] = [(group, group.rate) for group in self._active]

    def _users(self) -> dict[str, int]:
        """The weights of all flows that pass each link, of those that any passes."""
        users = dict.fromkeys(self._passed, 0)
        for group in self._active:
            for link in group.limits:
                users[link] += group.weight * group.count
        return {link: count for link, count in users.items() if count}

    def _fill(self) -> None:
        """Water filling: the link that gives its flows least settles their rate, and so on with what is left."""
        users = self._users()
        left = {link: self.bytes_per_s[link] for link in users}
        waiting = self._active
        while waiting:
            share, narrowest = inf, ""
            for link, count in users.items():
                if count and (each := left[link] / count) < share:
                    share, narrowest = max(0.0, each), link
            others = []
            for group in waiting:
                if narrowest and narrowest not in group.limits:
                    others.append(group)
                    continue
                group.rate = share * group.weight
                for link in group.limits:
                    users[link] -= group.weight * group.count
                    left[link] -= group.rate * group.count
            waiting = others
