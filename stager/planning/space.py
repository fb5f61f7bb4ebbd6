"""Space over the serial order: how many bytes are in use while each position of the order runs.

May know: the model and the plan. One rule: a range is half-open, [lo, hi) of positions; add and max cost O(log n) and never walk the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from stager.model.workflow import Graph, Workflow
from stager.planning.plan import Access, Plan
from stager.planning.same_place import first_names

LOWEST = -(1 << 62)


class SpaceProfile:
    """A sequence of ints with range add and range maximum.

    A segment tree on two flat lists, walked from the leaves up. `extra[i]` was added to all leaves below i and is never pushed down;
    `top[i]` is the maximum below i with `extra[i]` but without its ancestors'. One unused leaf stands at either end, so that the walk needs
    no special case.
    """

    __slots__ = ("_asked", "_extra", "_size", "_top", "length")

    def __init__(self, base: Sequence[int]) -> None:
        self.length = len(base)
        size = 1 << (self.length + 1).bit_length()
        self._size = size
        self._extra = [0] * size
        top = [LOWEST] * (2 * size)
        top[size + 1 : size + 1 + self.length] = list(base)
        for index in range(size - 1, 0, -1):
            left, right = top[2 * index], top[2 * index + 1]
            top[index] = left if left > right else right
        self._top = top
        # The range that was asked about last, and its maximum: who waits for room asks again and again.
        self._asked = (0, 0, 0)

    def values(self) -> list[int]:
        """Of every position, in order: a profile made of them is this one."""
        # What was added above a leaf counts below it, from the root down.
        above = [0] * (2 * self._size)
        for index in range(1, self._size):
            above[2 * index] = above[2 * index + 1] = above[index] + self._extra[index]
        first = self._size + 1
        return [self._top[leaf] + above[leaf] for leaf in range(first, first + self.length)]

    def add(self, lo: int, hi: int, delta: int) -> None:
        """Adds delta to every position of [lo, hi); an empty range changes nothing."""
        if lo >= hi or not delta:
            return
        if lo < 0 or hi > self.length:
            raise IndexError(f"[{lo}, {hi}) is not within [0, {self.length})")
        top, extra, size = self._top, self._extra, self._size
        left, right = lo + size, hi + size + 1
        self._asked = (0, 0, 0)
        while left ^ right != 1:
            if not left & 1:
                top[left + 1] += delta
                if left < size:
                    extra[left + 1] += delta
            if right & 1:
                top[right - 1] += delta
                if right < size:
                    extra[right - 1] += delta
            left >>= 1
            right >>= 1
            one, two = top[2 * left], top[2 * left + 1]
            top[left] = (one if one > two else two) + extra[left]
            one, two = top[2 * right], top[2 * right + 1]
            top[right] = (one if one > two else two) + extra[right]
        left >>= 1
        while left:
            one, two = top[2 * left], top[2 * left + 1]
            highest = (one if one > two else two) + extra[left]
            if highest == top[left]:
                # Nothing changes above it either: most ranges are short, and the peak is elsewhere.
                return
            top[left] = highest
            left >>= 1

    def max(self, lo: int, hi: int) -> int:
        """The largest value in [lo, hi); 0 for an empty range."""
        if lo >= hi:
            return 0
        if lo < 0 or hi > self.length:
            raise IndexError(f"[{lo}, {hi}) is not within [0, {self.length})")
        if self._asked[0] == lo and self._asked[1] == hi:
            return self._asked[2]
        top, extra, size = self._top, self._extra, self._size
        left, right = lo + size, hi + size + 1
        best_left = best_right = LOWEST
        while left ^ right != 1:
            if not left & 1 and top[left ^ 1] > best_left:
                best_left = top[left ^ 1]
            if right & 1 and top[right ^ 1] > best_right:
                best_right = top[right ^ 1]
            left >>= 1
            right >>= 1
            best_left += extra[left]
            best_right += extra[right]
        best = best_left if best_left > best_right else best_right
        left >>= 1
        while left:
            best += extra[left]
            left >>= 1
        self._asked = (lo, hi, best)
        return best


def pooled_bytes(capacities_bytes: Sequence[int], largest_bytes: int, twice_bytes: int) -> int:
    """The bytes that nodes of these capacities can safely hold together, where a file that is in the way on one can go to another: of each
    but one as much as the largest file that is made may stay empty, because nothing fits there, and `twice_bytes`, of what a job reads, may
    be on two of them. As much as the largest node holds is safe in any case: everything could go there.
    """
    empty_bytes = (len(capacities_bytes) - 1) * largest_bytes
    return max(max(capacities_bytes, default=0), sum(capacities_bytes) - empty_bytes - twice_bytes)


def share_bytes(nodes: int, held_bytes: int, largest_bytes: int, twice_bytes: int) -> int:
    """The other way round: how large each of so many nodes must be, so that this much is safe to hold on all of them."""
    return min(held_bytes, -(-(held_bytes + twice_bytes + (nodes - 1) * largest_bytes) // nodes))


def usage_of(
    n_jobs: int,
    lasting: Sequence[tuple[int, int, int]],
    passing: Sequence[tuple[int, int]],
) -> list[int]:
    """Bytes per position from (first, last inclusive, size) of what must stay and (position, size) of what is only needed while one job
    runs.
    """
    steps = [0] * (n_jobs + 1)
    for first, last, size in lasting:
        steps[first] += size
        steps[last + 1] -= size
    usage = list(accumulate(steps))[:n_jobs]
    for position, size in passing:
        usage[position] += size
    return usage


def serial_usage(workflow: Workflow, graph: Graph, plan: Plan) -> list[int]:
    """Bytes in use while position k of the plan's order runs alone: what must stay for later jobs, that job's inputs, its outputs.

    Without a spill origin, each produced file that is not a final must stay, from its producer to its last reader. With one, nothing: all
    can be had again. The maximum is `plan.smallest_capacity_bytes`.
    """
    files = {entry.lfn: entry for entry in plan.files}
    position = {entry.job: entry.order for entry in plan.jobs}
    stays: set[str] = set()
    lasting: list[tuple[int, int, int]] = []
    if plan.spill_origin is None:
        for lfn, producer in graph.producer.items():
            if workflow.files[lfn].destination is None and graph.readers.get(lfn):
                stays.add(lfn)
                lasting.append((position[producer], files[lfn].last_use, files[lfn].size_bytes))
    passing: list[tuple[int, int]] = []
    same_as = first_names(workflow)
    for entry in plan.jobs:
        job = workflow.jobs[entry.job]
        used = dict.fromkeys(same_as.get(item.lfn, item.lfn) for item in job.inputs if files[item.lfn].access is not Access.DIRECT)
        used |= dict.fromkeys(item.lfn for item in job.outputs)
        passing.append((entry.order, sum(files[lfn].size_bytes for lfn in used if lfn not in stays)))
    return usage_of(len(plan.jobs), lasting, passing)
