"""How many cores, and how much memory, attempts took of one node in time, or of the hosts beside it.

May know: when attempts began and ended. One rule: a node is full when the widest of its attempts would not fit beside what runs, on none
of its hosts: a job that has to wait there may stand behind that one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf

from stager.planning.policy import Limits
from stager.scheduler.run_times import Attempted
from stager.scheduler.steps import Steps


def no_limits(_: float) -> Limits:
    return Limits()


class NodeLoad:
    __slots__ = ("_at", "_cores", "_limits_at", "_memory_bytes", "_times", "_widest_bytes", "_widest_cores")

    def __init__(self, attempts: Sequence[Attempted], limits_at: Callable[[float], Limits]) -> None:
        self._limits_at = limits_at
        self._widest_cores = max([each.cores for each in attempts], default=1)
        self._widest_bytes = max([each.memory_bytes for each in attempts], default=0)
        self._times: list[float] = []
        self._cores: list[int] = []
        self._memory_bytes: list[int] = []
        cores = memory_bytes = 0
        for at, changes in groupby(sorted([change for each in attempts for change in changes_of(each)]), key=lambda change: change[0]):
            for _, more_cores, more_bytes in changes:
                cores, memory_bytes = cores + more_cores, memory_bytes + more_bytes
            self._times.append(at)
            self._cores.append(cores)
            self._memory_bytes.append(memory_bytes)

    def changes(self, since: float, until: float) -> list[float]:
        return self._times[bisect_right(self._times, since) : bisect_left(self._times, until)]

    def is_full(self, time: float) -> bool:
        found = bisect_right(self._times, time) - 1
        return found >= 0 and self._is_full(found)

    def used(self, time: float) -> tuple[int, int]:
        """(cores, bytes of memory) then."""
        found = bisect_right(self._times, time) - 1
        return (self._cores[found], self._memory_bytes[found]) if found >= 0 else (0, 0)

    def _is_full(self, index: int) -> bool:
        limits = self._limits_at(self._times[index])
        if self._cores[index] + self._widest_cores > limits.cores:
            return True
        if limits.memory_bytes is None or not self._cores[index]:
            return False
        return self._memory_bytes[index] + self._widest_bytes > limits.memory_bytes

    def full_since(self, time: float, earliest: float) -> float:
        """Since when it has been full without a break until then, not before `earliest`. `time` itself, where it was not."""
        found = bisect_left(self._times, time) - 1
        since = time
        while found >= 0 and since > earliest and self._is_full(found):
            since = max(earliest, self._times[found])
            found -= 1
        return since


def changes_of(attempt: Attempted) -> Iterator[tuple[float, int, int]]:
    """(when, cores and memory more or less). While its outputs wait for space it takes none."""
    cores, memory_bytes = attempt.cores, attempt.memory_bytes
    yield attempt.begun_at, cores, memory_bytes
    for since, until in attempt.space_waits:
        yield since, -cores, -memory_bytes
        yield until, cores, memory_bytes
    if attempt.ended_at is not None:
        yield attempt.ended_at, -cores, -memory_bytes


class HostsLoad:
    """The same of a node with hosts. Without one that is open it is full."""

    def __init__(self, node: str, attempts: Sequence[Attempted], hosts: Mapping[str, Steps]) -> None:
        self._node, self._hosts = node, hosts
        here = [each for each in attempts if each.node == node]
        self._widest_cores = max([each.cores for each in here], default=1)
        self._widest_bytes = max([each.memory_bytes for each in here], default=0)
        on_host: dict[str, list[Attempted]] = {host: [] for host in hosts}
        for each in attempts:
            if each.host in on_host:
                on_host[each.host].append(each)
        self._loads = {host: NodeLoad(ran, no_limits) for host, ran in on_host.items()}

    def changes(self, since: float, until: float) -> list[float]:
        found = [time for load in self._loads.values() for time in load.changes(since, until)]
        found += [time for steps in self._hosts.values() for time in steps.changes(since, until)]
        return sorted(dict.fromkeys(found))

    def is_full(self, time: float) -> bool:
        for host, steps in self._hosts.items():
            node, size = steps.at(time, None) or ("", None)
            if node != self._node or size is None:
                continue
            cores, memory_bytes = self._loads[host].used(time)
            most_bytes = inf if size.memory_bytes is None else size.memory_bytes
            if cores + self._widest_cores <= size.cores and memory_bytes + self._widest_bytes <= most_bytes:
                return False
        return True

    def full_since(self, time: float, earliest: float) -> float:
        since = time
        for mark in reversed([earliest, *self.changes(earliest, time)]):
            if not self.is_full(mark):
                break
            since = mark
        return since
