"""The cost of one file on a line beside its bytes: opening it, having it checked, renaming it, whatever a server's account does for each.

May know: the model's statistics. One rule: only what many transfers at once did not hide counts; what they hide is latency.

One transfer shows how long it took, not whether others would have gone on meanwhile. A **crowd** shows that: a time in which so many were
under way that the line had always another file to turn to. The files that ended in it, over its length, are what the line does in a
second, and what their bytes do not explain of it the files cost.

That is so where files waited for each other. Where they came one by one, and the line ended them as fast as they came, how fast that was
is not the line's doing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stager.model.robust import LINE_POINTS_MAX, line_through, median, quantile

if TYPE_CHECKING:
    from stager.model.link import Move

# As many as a node begins with (planning/transport.py): with fewer under way nobody knows whether more would have been quicker.
CROWD_MIN = 8
# Of files that ended in a crowd: fewer say more of chance than of the line.
FILES_MIN = 8
# Ends of a crowd that make one part of it: what passes while it lasts is about what ends in it. As many parts as a line needs, and how much
# of what a constant leaves it may leave at most.
PART_FILES, PARTS_MIN, LEFT_MAX = 24, 12, 0.8
# Of what one transfer takes: fewer under way for so long make no end of a crowd. Those that began together end together, and the next ones
# begin when that has been heard of.
GAP_SHARE = 0.5
# Files that ended in a crowd came one by one if their begins are spread over so much of the time over which their ends are, the first and
# the last EDGE_SHARE left out. None waited for its turn if that took no more than so much of what a transfer takes. None waited for another
# on the line if a transfer took no longer than so many times as long as the first one did, and the quick ones; or as the third that had the
# fewest beside them, where the third with the most had so many times as many.
SPREAD_SHARE, EDGE_SHARE, TURN_SHARE, ALONE_MAX, QUICK_SHARE, FEWER_MIN = 0.85, 0.1, 0.1, 1.3, 0.1, 1.5


@dataclass(frozen=True, slots=True)
class Crowd:
    """`files` ended in it one after the other, in `took_s`, in which so many bytes passed. `first_s`: what the one took that ended before
    all of them, but no more than is usual of them: it may have logged in.
    """

    files: int
    took_s: float
    passed_bytes: float
    first_s: float
    weight: float

    def file_s(self, bytes_per_s: float) -> float:
        return max(0.0, self.took_s - self.passed_bytes / bytes_per_s) / self.files


class Traffic:
    """The transfers of one direction while they overlap. At every time at which one began or ended: how many were under way from then on,
    and what had passed until then, in bytes and in transfer seconds. Each is taken to move its bytes evenly.
    """

    def __init__(self, moves: Sequence[Move]) -> None:
        self.moves = sorted(moves, key=lambda move: (move.ended_at, move.begun_at, move.run))
        self._ends = [move.ended_at for move in self.moves]
        changes: dict[float, list[float]] = {}
        for move in moves:
            took_s = move.ended_at - move.begun_at
            rate = move.moved_bytes / took_s if took_s > 0 else 0.0
            for at, one in ((move.begun_at, 1), (move.ended_at, -1)):
                change = changes.setdefault(at, [0.0, 0.0])
                change[0] += one
                change[1] += one * rate
        self.times = sorted(changes)
        self.under_way: list[int] = []
        self._bytes: dict[float, float] = {}
        self._seconds: dict[float, float] = {}
        count, rate, passed_bytes, seconds, before = 0, 0.0, 0.0, 0.0, 0.0
        for at in self.times:
            passed_bytes += max(0.0, rate) * (at - before)
            seconds += count * (at - before)
            count, rate, before = count + round(changes[at][0]), rate + changes[at][1], at
            self.under_way.append(count)
            self._bytes[at], self._seconds[at] = passed_bytes, seconds

    def beside(self, move: Move) -> float:
        """How many were under way while it was, itself included: the mean over its time."""
        took_s = move.ended_at - move.begun_at
        return (self._seconds[move.ended_at] - self._seconds[move.begun_at]) / took_s if took_s > 0 else 1.0

    def passed_bytes(self, begin: float, end: float) -> float:
        """Between two times at which one began or ended."""
        return self._bytes[end] - self._bytes[begin]

    def ended(self, begin: float, end: float) -> list[Move]:
        """After `begin`, until `end`, one after the other."""
        return self.moves[bisect_right(self._ends, begin) : bisect_right(self._ends, end)]

    def crowded(self) -> list[tuple[float, float]]:
        """(from, to) where CROWD_MIN or more were under way all along."""
        found: list[tuple[float, float]] = []
        begun: float | None = None
        for at, count in zip(self.times, self.under_way, strict=True):
            if count >= CROWD_MIN:
                begun = at if begun is None else begun
            elif begun is not None:
                found.append((begun, at))
                begun = None
        return found


def crowds(traffic: Traffic, weights: Mapping[str, float], mean_bytes_max: float) -> list[Crowd]:
    """Of files that are small, on average: how long large ones take tells of the rate."""
    spans: list[tuple[float, float]] = []
    for begin, end in traffic.crowded():
        if spans and begin - spans[-1][1] <= GAP_SHARE * usual_s(traffic.ended(*spans[-1])):
            begin = spans.pop()[0]
        spans.append((begin, end))
    if not spans:
        return []
    unslowed = others_slow_none([move for move in traffic.moves if move.moved_bytes <= mean_bytes_max], traffic)
    each = [crowd_of(traffic, traffic.ended(*span), weights, unslowed=unslowed) for span in spans]
    return [crowd for crowd in each if crowd is not None and crowd.passed_bytes <= crowd.files * mean_bytes_max]


def usual_s(moves: Sequence[Move]) -> float:
    """What one of them takes; 0: there is none."""
    return middle([move.took_s for move in moves]) if moves else 0.0


def crowd_of(traffic: Traffic, moves: Sequence[Move], weights: Mapping[str, float], *, unslowed: bool) -> Crowd | None:
    """From the first end to the last: what came before it is latency. None where one transfer takes as long as all that: they may have gone
    on side by side. None as well where the line kept up with what came. `unslowed`: no file of this line takes longer for those beside it.
    """
    if not moves or kept_up(moves, unslowed=unslowed):
        return None
    first, last = moves[0].ended_at, moves[-1].ended_at
    files = sum(move.ended_at > first for move in moves)
    if files < FILES_MIN or last - first < usual_s(moves):
        return None
    first_s = min(first - moves[0].begun_at, usual_s(moves))
    return Crowd(files, last - first, traffic.passed_bytes(first, last), first_s, files * weights[moves[-1].run])


def kept_up(moves: Sequence[Move], *, unslowed: bool) -> bool:
    """They began over the same time as they ended; none because a place was free, so each was begun when it was there; and each took as
    long as alone, so none was there because room was made by one that ended late.
    """
    waits, took_s = [move.waited_s for move in moves if move.waited_s is not None], usual_s(moves)
    if len(waits) < len(moves) or middle(waits) > TURN_SHARE * took_s:
        return False
    alone_s = min(moves[0].took_s, quantile([move.took_s for move in moves], [1.0] * len(moves), QUICK_SHARE))
    if not unslowed and took_s > ALONE_MAX * alone_s:
        return False
    return spread_s([move.begun_at for move in moves]) >= SPREAD_SHARE * spread_s([move.ended_at for move in moves])


def spread_s(times: Sequence[float]) -> float:
    """How long it is from the first to the last, a few at both edges left out: one that came late says nothing of the others."""
    ones = [1.0] * len(times)
    return quantile(times, ones, 1 - EDGE_SHARE) - quantile(times, ones, EDGE_SHARE)


def others_slow_none(moves: Sequence[Move], traffic: Traffic) -> bool:
    """Those with many beside them take as long as those with few. False where nobody knows, since all have about as many."""
    by_others = sorted((traffic.beside(move), move.took_s) for move in moves)
    third = len(by_others) // 3
    if third < FILES_MIN:
        return False
    (few, alone_s), (many, crowded_s) = (tuple(map(middle, zip(*part, strict=True))) for part in (by_others[:third], by_others[-third:]))
    return many >= FEWER_MIN * few and crowded_s <= ALONE_MAX * alone_s


def middle(values: Sequence[float]) -> float:
    return median(values, [1.0] * len(values))


def file_cost_s(found: Sequence[Crowd], bytes_per_s: float) -> float | None:
    """The median, by files. None: there was no crowd."""
    if not found:
        return None
    return median([crowd.file_s(bytes_per_s) for crowd in found], [crowd.weight for crowd in found])


def rate_and_cost(traffic: Traffic, weights: Mapping[str, float]) -> tuple[float, float] | None:
    """(bytes per second, seconds of each file) of a line that only small files crossed: the parts of its crowds whose files were larger
    took longer by their bytes. None where there are few parts, or their bytes do not explain by how much they differ.
    """
    parts = parts_of(traffic, weights)
    if len(parts) < PARTS_MIN:
        return None
    means, took, weighing = zip(*parts, strict=True)
    line = line_through(means, took, weighing)
    if line is None:
        return None
    middle = median(took, weighing)
    left = sum(abs(took_s - line.intercept - line.slope * mean) * weight for mean, took_s, weight in parts)
    if left > LEFT_MAX * sum(abs(took_s - middle) * weight for _, took_s, weight in parts):
        return None
    if line.intercept >= 0:
        return 1 / line.slope, line.intercept
    return median([mean / took_s for mean, took_s, _ in parts], weighing), 0.0


def crowded_s(traffic: Traffic) -> float:
    """What a transfer usually takes that ends in a crowd; 0: there was none."""
    return usual_s([move for span in traffic.crowded() for move in traffic.ended(*span)])


def parts_of(traffic: Traffic, weights: Mapping[str, float]) -> list[tuple[float, float, float]]:
    """(bytes a file, seconds a file, weight) of each part of a crowd."""
    found = []
    for span in traffic.crowded():
        ends = traffic.ended(*span)
        for at in range(PART_FILES, len(ends), PART_FILES):
            took_s = ends[at].ended_at - ends[at - PART_FILES].ended_at
            ended_bytes = sum(move.moved_bytes for move in ends[at - PART_FILES + 1 : at + 1])
            if took_s > 0 and ended_bytes > 0:
                found.append((ended_bytes / PART_FILES, took_s / PART_FILES, weights[ends[at].run]))
    return found[:: -(-len(found) // LINE_POINTS_MAX) or 1]


def first_s(found: Sequence[Crowd], file_s: float) -> float | None:
    """The wait of the first of a crowd, which no other waits for again: the median, by files."""
    if not found:
        return None
    return median([max(0.0, crowd.first_s - file_s) for crowd in found], [crowd.weight for crowd in found])
