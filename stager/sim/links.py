"""Links that flows share max-min fairly: WAN links of origins and disks of nodes.

May know: nothing but numbers. One rule: flows over the same links are one group with one rate, so a change costs O(groups) and O(log
flows), never O(flows).
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf
from typing import Any

# Flows that would end within this many bytes of each other end together: less than what a float can tell apart in a long run.
CLOSE_BYTES = 1e-3


class Flow:
    """`target` is the service per flow of its group at which it ends."""

    __slots__ = ("alive", "group", "subject", "target")

    def __init__(self, group: Group, target: float, subject: Any) -> None:
        self.group, self.target, self.subject, self.alive = group, target, subject, True


class Group:
    """All flows over one path. `served` counts the bytes that each of them got since the group was last empty."""

    __slots__ = ("count", "ends", "path", "rate", "served")

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path, self.rate, self.served, self.count = path, 0.0, 0.0, 0
        self.ends: list[tuple[float, int, Flow]] = []

    def top(self) -> Flow | None:
        while self.ends and not self.ends[0][2].alive:
            heappop(self.ends)
        return self.ends[0][2] if self.ends else None


class Links:
    """Links without a capacity of their own do not limit."""

    def __init__(self, bytes_per_s: Mapping[str, float], now: float = 0.0) -> None:
        self.bytes_per_s = dict(bytes_per_s)
        self._groups: dict[tuple[str, ...], Group] = {}
        self._active: list[Group] = []
        self._now, self._count = now, 0
        self._stale = False
        self._next: tuple[float, Group | None] = (inf, None)

    def start(self, now: float, path: tuple[str, ...], size_bytes: float, subject: Any) -> Flow:
        """A flow of this size over these links, from now on."""
        self._move_to(now)
        group = self._groups.get(path)
        if group is None:
            group = self._groups[path] = Group(path)
        if not group.count:
            group.served = 0.0
            group.ends.clear()
            self._active.append(group)
        flow = Flow(group, group.served + size_bytes, subject)
        self._count += 1
        heappush(group.ends, (flow.target, self._count, flow))
        group.count += 1
        self._stale = True
        return flow

    def stop(self, now: float, flow: Flow) -> None:
        """Called off; one that has ended already is left alone."""
        if flow.alive:
            self._move_to(now)
            self._end(flow)

    def next_at(self) -> float:
        """When the next flow ends, if nothing else changes."""
        if self._stale:
            self._share()
            self._stale = False
            soonest, first = inf, None
            for group in self._active:
                at = self._ends_at(group)
                if at < soonest:
                    soonest, first = at, group
            self._next = (soonest, first)
        return self._next[0]

    def take_ended(self, now: float) -> list[Any]:
        """Subjects of the flows that have ended by now."""
        first_at, first = self._next if not self._stale else (inf, None)
        self._move_to(now)
        ended: list[Any] = []
        for group in list(self._active):
            flow = group.top()
            while flow is not None and (flow.target <= group.served + CLOSE_BYTES or (group is first and first_at <= now)):
                first = None if group is first else first
                self._end(flow)
                ended.append(flow.subject)
                flow = group.top()
        return ended

    def _end(self, flow: Flow) -> None:
        flow.alive = False
        flow.group.count -= 1
        if not flow.group.count:
            self._active.remove(flow.group)
        self._stale = True

    def _ends_at(self, group: Group) -> float:
        flow = group.top()
        if flow is None or group.rate <= 0:
            return inf
        left = flow.target - group.served
        return self._now + left / group.rate if left > 0 else self._now

    def _move_to(self, now: float) -> None:
        if now <= self._now:
            return
        if self._stale:
            self._share()
        for group in self._active:
            group.served += group.rate * (now - self._now)
        self._now = now

    def _share(self) -> None:
        """Water filling: the link that gives its flows least settles their rate, and so on with what is left."""
        open_groups = self._active
        if len(open_groups) == 1:
            only = open_groups[0]
            only.rate = min((self.bytes_per_s.get(link, inf) for link in only.path), default=inf) / only.count
            return
        left: dict[str, float] = {}
        users: dict[str, int] = {}
        for group in open_groups:
            for link in group.path:
                if link in self.bytes_per_s:
                    left[link] = self.bytes_per_s[link]
                    users[link] = users.get(link, 0) + group.count
        waiting = list(open_groups)
        while waiting:
            share, link = min(((max(0.0, left[name]) / count, name) for name, count in users.items() if count), default=(inf, ""))
            settled = [group for group in waiting if link in group.path] if link else waiting
            for group in settled:
                group.rate = share
                for name in group.path:
                    if name in users:
                        users[name] -= group.count
                        left[name] -= share * group.count
            waiting = [group for group in waiting if group not in settled]
