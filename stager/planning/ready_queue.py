"""The line in which jobs stand while a schedule is made: those whose inputs are there, in the plan's order, and the room that jobs under
way take.

May know: planning's shape. One rule: time only goes forward; what has been let go is never asked about again.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from stager.planning.plan import DIRECT
from stager.planning.shape import Shape


class ReadyQueue:
    """`ready`: places in the plan's order of jobs that can begin as soon as there is a core; `coming`: (from when on, place) of those whose
    parents have all been given a time.
    """

    __slots__ = ("_arrival_s", "_position", "_ready_s", "_shape", "_waits", "coming", "ready")

    def __init__(self, shape: Shape, position: list[int], arrival_s: list[float]) -> None:
        self._shape, self._position, self._arrival_s = shape, position, arrival_s
        self._waits = [len(above) for above in shape.parents]
        self._ready_s = [0.0] * len(position)
        self.ready: list[int] = []
        self.coming = [(self._there_s(job), position[job]) for job, above in enumerate(shape.parents) if not above]
        heapify(self.coming)

    def _there_s(self, job: int) -> float:
        """When its external files are."""
        arrival_s = self._arrival_s
        return max([arrival_s[file] for file in self._shape.inputs[job]], default=0.0)

    def move_up(self, now_s: float) -> None:
        while self.coming and self.coming[0][0] <= now_s:
            heappush(self.ready, heappop(self.coming)[1])

    def ended(self, job: int, finish_s: float) -> None:
        """Its end is known: children that wait for nobody else are."""
        for child in self._shape.children[job]:
            if finish_s > self._ready_s[child]:
                self._ready_s[child] = finish_s
            self._waits[child] -= 1
            if not self._waits[child]:
                heappush(self.coming, (max(self._ready_s[child], self._there_s(child)), self._position[child]))


class SpaceInTime:
    """The space that one node has for the jobs that run there: their outputs as reserved, and each input once. A file that lies there
    between jobs is not counted: it can be spilled.
    """

    __slots__ = ("_capacity_bytes", "_held_until_s", "_leaving", "_used_bytes")

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes, self._used_bytes = capacity_bytes, 0
        self._leaving: list[tuple[float, int]] = []
        self._held_until_s: dict[int, float] = {}

    def needed(self, shape: Shape, job: int, now_s: float) -> int:
        """Beside what others hold already."""
        held, needed = self._held_until_s, shape.reserve[job]
        for file in shape.inputs[job]:
            if shape.access[file] is not DIRECT and held.get(file, 0.0) <= now_s:
                needed += shape.size[file]
        return needed

    def earliest_s(self, needed_bytes: int, now_s: float) -> float:
        """When so much fits, not before now. A job that is alone always fits."""
        leaving = self._leaving
        while leaving and leaving[0][0] <= now_s:
            self._used_bytes -= heappop(leaving)[1]
        if self._used_bytes + needed_bytes <= self._capacity_bytes or not leaving:
            return now_s
        used = self._used_bytes
        for leaves_s, size in sorted(leaving):
            used -= size
            if used + needed_bytes <= self._capacity_bytes:
                return leaves_s
        return max(leaving)[0]

    def take(self, shape: Shape, job: int, needed_bytes: int, finish_s: float) -> None:
        self._used_bytes += needed_bytes
        heappush(self._leaving, (finish_s, needed_bytes))
        held = self._held_until_s
        for file in shape.inputs[job]:
            if finish_s > held.get(file, 0.0):
                held[file] = finish_s


def spaces_of(shape: Shape, capacities_bytes: list[int]) -> list[SpaceInTime]:
    """None of them where all files fit into each node together."""
    if sum(shape.size) <= min(capacities_bytes):
        return []
    return [SpaceInTime(capacity_bytes) for capacity_bytes in capacities_bytes]
