"""Queues of jobs, one for each tenant and priority.

May know: nothing. One rule: an entry may be out of date, and is checked when it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain

Queued = tuple[int, str, str]
Lane = tuple[str, int]


@dataclass(slots=True)
class Lanes:
    """The jobs of a node that wait for one thing: (order key, run, job), in a heap for each tenant and priority. None of these is empty."""

    by_lane: dict[Lane, list[Queued]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.by_lane.values()))

    def __bool__(self) -> bool:
        return bool(self.by_lane)

    def __iter__(self) -> Iterator[Queued]:
        return chain.from_iterable(self.by_lane.values())

    def push(self, lane: Lane, entry: Queued) -> None:
        heappush(self.by_lane.setdefault(lane, []), entry)

    def pop(self, lane: Lane) -> Queued:
        queue = self.by_lane[lane]
        entry = heappop(queue)
        if not queue:
            del self.by_lane[lane]
        return entry

    def keep(self, wanted: Callable[[Queued], bool]) -> None:
        kept = {lane: [entry for entry in queue if wanted(entry)] for lane, queue in self.by_lane.items()}
        self.by_lane = {lane: queue for lane, queue in kept.items() if queue}
        for queue in self.by_lane.values():
            heapify(queue)

    def clear(self) -> None:
        self.by_lane.clear()
