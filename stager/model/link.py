"""How wide and how long the way to an origin is, from what transfers over it told.

May know: the model's statistics and topology. One rule: what the transfers do not show is None; nothing is made up here.

Several transfers share a link, so none of them shows its rate alone. A link that always has work carries its rate, whoever's turn it is
(that it is work-conserving is all that is assumed): the bytes of a stretch in which it had work, over the length of that stretch. A
transfer's own beginning, in which it waits for answers, is no work; small files show how long that is. The cost of each file on the line
is work, though it moves nothing (file_cost.py).

Each of the three is what the others do not explain of what was seen. So they are looked at in turn, until none changes any more.

Where small and large files crowd a line together, no stretch is of large ones alone. Then the line carries at least what passed it in the
stretch, and at least what it carried of one large file; and what files wait for behind those bytes is no latency.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, isclose

from stager.model.file_cost import Crowd, Traffic, crowded_s, crowds, file_cost_s, first_s, rate_and_cost
from stager.model.robust import median, quantile, weight_of_age
from stager.model.topology import DEFAULT_LATENCY_S, DEFAULT_WAN_BYTES_PER_S, OriginLink
from stager.model.workflow import Origin

# (from, to), seconds of the scheduler's clock.
Span = tuple[float, float]
# A file whose bytes take no time worth mentioning on any link that a workflow is run over.
SMALL_BYTES = 64 * 1024
SMALL_MIN = 3
# Of the stretches, by bytes: what slows a link down (its start, a busy machine) is not its rate, and what speeds it up does not exist. But
# the fastest is what a clock's error makes it.
RATE_SHARE = 0.75
# Of a transfer of a small file, as long as a stretch has to be: a login takes ten round trips, opening and reading a file two or three.
WAITS_MIN = 10.0
# So many were under way at most, on average, while a file went alone: one that moves nothing came and went.
ALONE_MAX = 1.5
# Of files that went alone, so many that took longest are chance.
FEW_SHARE = 0.02
# So many times the latency is what a transfer takes whose bytes took long enough to be told apart.
APART_MIN = 1.25
# As many as a node begins with at least (planning/transport.py): so many waits go on at once.
TURNS = 8
# So many that were asked for and had not ended, itself among them, find a place for certain.
AT_ONCE_MAX = TURNS // 2
# So many times as long as alone transfers take that wait for each other.
QUEUED_MIN = 2.0
# What files cost may explain so much of a stretch, or of a small file's time, before the rest says too little of rate or latency.
COSTS_SHARE_MAX = 0.5
# Of a stretch of small and large files: when the small ones are through, the large ones go on alone.
CROWDED_SHARE_MIN = 1 / 3
# From so much of a declared bandwidth on it is what bounds.
REACHED_SHARE = 0.8
# The rate changes what the files cost by a small part, and that the rate by less.
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Move:
    """One transfer that ended well. Times are the scheduler's clock; `read_back`: it came over the link once more to be verified.
    `waited_s`: for its turn, before it began; None: nobody noted it.
    """

    run: str
    is_fetch: bool
    begun_at: float
    ended_at: float
    moved_bytes: int
    read_back: bool = False
    waited_s: float | None = None

    @property
    def took_s(self) -> float:
        return self.ended_at - self.begun_at


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one origin's link. None: nothing was seen that tells."""

    fetch_bytes_per_s: float | None = None
    upload_bytes_per_s: float | None = None
    latency_s: float | None = None
    upload_latency_s: float | None = None
    fetch_file_s: float | None = None
    upload_file_s: float | None = None
    login_s: float | None = None
    reads_back: bool = False
    dispatch_s: float | None = None

    def of(self, origin: str) -> OriginLink:
        """As a link that says which of its numbers were measured."""
        link = OriginLink(origin)
        if self.fetch_bytes_per_s is not None:
            link = replace(link, fetch_bytes_per_s=self.fetch_bytes_per_s, measured=True)
        if self.upload_bytes_per_s is not None:
            link = replace(link, upload_bytes_per_s=self.upload_bytes_per_s, upload_measured=True)
        if self.latency_s is not None:
            link = replace(link, latency_s=self.latency_s, latency_measured=True)
        if self.fetch_file_s is not None:
            link = replace(link, fetch_file_s=self.fetch_file_s, fetch_file_measured=True)
        if self.upload_file_s is not None:
            link = replace(link, upload_file_s=self.upload_file_s, upload_file_measured=True)
        return replace(
            link,
            upload_latency_s=self.upload_latency_s,
            login_s=self.login_s,
            dispatch_s=self.dispatch_s,
            reads_back=self.reads_back,
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """Without a pause: some transfer or other had bytes to move."""

    moves: int
    moved_bytes: int
    took_s: float
    weight: float
    begun_at: float = 0.0


def measured(moves: Iterable[Move], reads_behind: Callable[[float], bool] = lambda size_bytes: False) -> Measured:
    """From transfers with one origin, in any order. `reads_behind`: whether files of this size are read back while they are written."""
    ordered = sorted(moves, key=lambda move: (move.ended_at, move.begun_at, move.run))
    weights = run_weights(ordered)
    large = union((move.begun_at, move.ended_at) for move in ordered if move.moved_bytes > SMALL_BYTES)
    fetch = seen_of([move for move in ordered if move.is_fetch and move.moved_bytes > 0], large, weights, None)
    uploads = [
        replace(move, read_back=False) if move.read_back and reads_behind(move.moved_bytes) else move
        for move in ordered
        if not move.is_fetch and move.moved_bytes > 0
    ]
    upload = seen_of(uploads, large, weights, fetch.bytes_per_s)
    login_s = login_of(ordered, weights, fetch, upload)
    return Measured(
        fetch.bytes_per_s,
        upload.bytes_per_s,
        fetch.latency_s,
        upload.latency_s,
        fetch.file_s,
        upload.file_s,
        login_s,
        reads_back(ordered, weights),
        dispatch_of(ordered, weights),
    )


def measured_of(origin: Origin, moves: Sequence[Move]) -> Measured:
    """The same of an origin's own. What is read back while it is written takes no time of its own, but where its declared bandwidth was
    reached: that is of both ways together.
    """
    found, most = measured(moves, origin.reads_behind), origin.bytes_per_s_max
    is_reached = most is not None and (found.fetch_bytes_per_s or 0.0) >= REACHED_SHARE * most
    return measured(moves) if is_reached else found


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one direction."""

    bytes_per_s: float | None = None
    latency_s: float | None = None
    file_s: float | None = None

    def is_as(self, other: Seen) -> bool:
        pairs = ((self.bytes_per_s, other.bytes_per_s), (self.latency_s, other.latency_s), (self.file_s, other.file_s))
        return all(a == b or (a is not None and b is not None and isclose(a, b, rel_tol=1e-4, abs_tol=1e-9)) for a, b in pairs)


def reads_back(moves: Sequence[Move], weights: dict[str, float]) -> bool:
    """Whether most uploads came back, by the age of their runs."""
    uploads = [move for move in moves if not move.is_fetch and move.moved_bytes > 0]
    return 2 * sum(weights[move.run] for move in uploads if move.read_back) > sum(weights[move.run] for move in uploads)


def dispatch_of(moves: Sequence[Move], weights: dict[str, float]) -> float | None:
    """From the command of a transfer until its node begins it, with what the word of its end takes: what stager itself takes for it, the
    median. Of those that found a place at once: what waits behind others waits for its turn.
    """
    told = [(move.begun_at - move.waited_s, move.waited_s, weights[move.run]) for move in moves if move.waited_s is not None]
    asked, ended = sorted([at for at, _, _ in told]), sorted([move.ended_at for move in moves if move.waited_s is not None])
    at_once = [(waited_s, weight) for at, waited_s, weight in told if bisect_right(asked, at) - bisect_right(ended, at) <= AT_ONCE_MAX]
    return median(*zip(*at_once, strict=True)) if len(at_once) >= SMALL_MIN else None


def login_of(moves: Sequence[Move], weights: dict[str, float], fetch: Seen, upload: Seen) -> float | None:
    """From the first begin of a run to the first end, what neither latency nor file cost explains: the median of runs in which a small file
    ended first, by their age.
    """
    begun: dict[str, float] = {}
    ended: dict[str, Move] = {}
    for move in moves:
        begun[move.run] = min(begun.get(move.run, inf), move.begun_at)
        # They are in the order of their ends.
        ended.setdefault(move.run, move)
    waited: list[tuple[float, float]] = []
    for run, move in ended.items():
        seen = fetch if move.is_fetch else upload
        if seen.latency_s is not None and move.moved_bytes <= SMALL_BYTES:
            waited.append((max(0.0, move.ended_at - begun[run] - seen.latency_s - (seen.file_s or 0.0)), weights[run]))
    return median(*zip(*waited, strict=True)) if waited else None


def seen_of(moves: Sequence[Move], large: Sequence[Span], weights: dict[str, float], back_bytes_per_s: float | None) -> Seen:
    """`back_bytes_per_s`: what is read back takes that long besides, at the end."""
    traffic = Traffic(moves)
    found = crowds(traffic, weights, SMALL_BYTES)
    seen = Seen()
    for _ in range(ROUNDS):
        before, seen = seen, measured_again(traffic, found, large, weights, back_bytes_per_s, seen)
        if seen.is_as(before) or not found:
            break
    if seen.bytes_per_s is not None:
        return seen
    mixed = seen_mixed(traffic, found, large, weights, back_bytes_per_s, seen)
    return mixed or seen_by_parts(traffic, large, weights, seen) or seen


def seen_mixed(
    traffic: Traffic, found: Sequence[Crowd], large: Sequence[Span], weights: dict[str, float], back_bytes_per_s: float | None, seen: Seen
) -> Seen | None:
    """Where small files beside large ones kept the line from being full of large ones. `seen`: as if nobody knew the rate."""
    rate = mixed_rate_of(traffic, weights, back_bytes_per_s, found)
    if rate is None:
        return None
    file_s = file_cost_s(found, rate)
    latency_s = latency_of(traffic, large, weights, file_s or 0.0, rate)
    latency_s = seen.latency_s if latency_s is None else latency_s
    usual_s = usual_latency_s(traffic.moves, latency_s)
    there = stretches(traffic.moves, weights, usual_s, back_bytes_per_s)
    rate = max(rate, carried_per_s(there, traffic, weights, usual_s, file_s or 0.0))
    return Seen(rate, latency_s, file_cost_s(found, rate))


def seen_by_parts(traffic: Traffic, large: Sequence[Span], weights: dict[str, float], seen: Seen) -> Seen | None:
    """Where only small files crossed the line. None as well where they hardly waited for each other: then their bytes took long because
    each has its ways there and back, and the line might have carried more. `seen`: as if only files had taken the time.
    """
    by_parts = rate_and_cost(traffic, weights)
    if by_parts is None or crowded_s(traffic) < QUEUED_MIN * usual_latency_s(traffic.moves, seen.latency_s):
        return None
    rate, file_s = by_parts
    latency_s = latency_of(traffic, large, weights, file_s, rate)
    return Seen(rate, seen.latency_s if latency_s is None else latency_s, file_s)


def measured_again(
    traffic: Traffic, found: Sequence[Crowd], large: Sequence[Span], weights: dict[str, float], back_bytes_per_s: float | None, seen: Seen
) -> Seen:
    """Once more, with what has been seen so far."""
    file_s = seen.file_s or 0.0
    latency_s = latency_of(traffic, large, weights, file_s)
    if latency_s is None:
        latency_s = first_s(found, file_s)
    usual_s = usual_latency_s(traffic.moves, latency_s)
    there = stretches(traffic.moves, weights, usual_s, back_bytes_per_s)
    rate = rate_of(there, usual_s, file_s)
    if rate is not None:
        carried = carried_per_s(there, traffic, weights, usual_s, file_s)
        rate = max(rate, passed_per_s(found, WAITS_MIN * usual_s), carried)
    return Seen(rate, latency_s, file_cost_s(found, rate or DEFAULT_WAN_BYTES_PER_S))


def run_weights(ordered: Sequence[Move]) -> dict[str, float]:
    """By run: the newest counts most."""
    newest_first = dict.fromkeys(move.run for move in reversed(ordered))
    return {run: weight_of_age(newer) for newer, run in enumerate(newest_first)}


def latency_of(traffic: Traffic, large: Sequence[Span], weights: dict[str, float], file_s: float, bytes_per_s: float = inf) -> float | None:
    """Seconds of a transfer that moves next to nothing, with no larger one beside it: what it waits behind that is not its own.

    The median of what neither the costs of those beside it explain, nor the bytes that passed meanwhile, where the rate is known.
    """
    small = [move for move in traffic.moves if move.moved_bytes <= SMALL_BYTES and not meets(large, (move.begun_at, move.ended_at))]
    passed = [traffic.passed_bytes(move.begun_at, move.ended_at) for move in small]
    costs = [file_s * traffic.beside(move) + size / bytes_per_s for move, size in zip(small, passed, strict=True)]
    seen = [(move.took_s, cost_s, weights[move.run]) for move, cost_s in zip(small, costs, strict=True)]
    telling = telling_of(seen, file_s)
    if len(telling) < SMALL_MIN:
        return None
    return median([max(0.0, took_s - costs_s) for took_s, costs_s, _ in telling], [weight for _, _, weight in telling])


def telling_of(seen: list[tuple[float, float, float]], file_s: float) -> list[tuple[float, float, float]]:
    """Of (took, costs of all beside it, weight) those with the fewest beside them, where there are enough. Of a crowd, only if the costs
    leave most of it unexplained: else what is left is how unevenly they were served. Then the first of the crowd tells more.
    """
    for most in (2, TURNS) if file_s else ():
        quiet = [each for each in seen if each[1] < most * file_s]
        if len(quiet) >= SMALL_MIN:
            return quiet
    telling = [each for each in seen if each[1] <= COSTS_SHARE_MAX * each[0]]
    return telling if 2 * len(telling) > len(seen) else []


def usual_latency_s(moves: Sequence[Move], latency_s: float | None) -> float:
    """Where small files did not show it: as is usual, but no more than half of the quickest transfer."""
    if latency_s is not None:
        return latency_s
    return min([DEFAULT_LATENCY_S, *(move.took_s / 2 for move in moves)])


def rate_of(there: Sequence[Stretch], latency_s: float, file_s: float = 0.0) -> float | None:
    """Bytes per second."""
    full = [stretch for stretch in there if is_full(stretch, latency_s, file_s)]
    if not full:
        return None
    rates = [each.moved_bytes / (each.took_s - each.moves * file_s) for each in full]
    return quantile(rates, [each.weight * each.moved_bytes for each in full], RATE_SHARE)


def passed_per_s(found: Sequence[Crowd], least_s: float) -> float:
    """Bytes per second that a line carried at least: what passed it in crowds that lasted, whatever files cost; 0: there was none."""
    long = [crowd for crowd in found if crowd.took_s >= least_s]
    return quantile([each.passed_bytes / each.took_s for each in long], [each.weight for each in long], RATE_SHARE) if long else 0.0


def carried_per_s(there: Sequence[Stretch], traffic: Traffic, weights: dict[str, float], latency_s: float, file_s: float) -> float:
    """Bytes per second that the line carried at least, whatever held it up: in stretches that lasted, and of large files, which may have
    been over too soon to be such a stretch. What files cost in a stretch is not the time of the bytes. 0: there was neither.
    """
    long = [each for each in there if each.took_s > 0 and each.took_s >= WAITS_MIN * latency_s]
    together = [each.moved_bytes / (each.took_s - min(each.moves * file_s, COSTS_SHARE_MAX * each.took_s)) for each in long]
    lasting = quantile(together, [each.weight * each.moved_bytes for each in long], RATE_SHARE) if long else 0.0
    return max(lasting, large_per_s(traffic, weights, latency_s))


def large_per_s(traffic: Traffic, weights: dict[str, float], latency_s: float) -> float:
    """Bytes per second of most large files. If most went alone, of those of a run together: nothing but the line held up those that took
    long. What one waited is not the time of its bytes, as far as the two can be told apart. 0: there was none.
    """
    large = [move for move in traffic.moves if move.moved_bytes > SMALL_BYTES and move.took_s > 0]
    if not large:
        return 0.0
    alone = [move for move in large if traffic.beside(move) < ALONE_MAX]
    if 2 * weighed_bytes(alone, weights) <= weighed_bytes(large, weights):
        return median([move.moved_bytes / bytes_s(move, latency_s) for move in large], [weighed_bytes([move], weights) for move in large])
    runs: dict[str, list[Move]] = {}
    for move in alone:
        runs.setdefault(move.run, []).append(move)
    told = runs.values()
    return median([together_per_s(each, latency_s) for each in told], [weighed_bytes(each, weights) for each in told])


def bytes_s(move: Move, latency_s: float) -> float:
    """The time of its bytes, for a large one."""
    return move.took_s - (latency_s if move.took_s >= APART_MIN * latency_s else 0.0)


def weighed_bytes(moves: Iterable[Move], weights: dict[str, float]) -> float:
    return sum(weights[move.run] * move.moved_bytes for move in moves)


def together_per_s(moves: Sequence[Move], latency_s: float) -> float:
    """One after the other, without the few that took longest: a disk that was cold once."""
    quick_first = sorted(moves, key=lambda move: bytes_s(move, latency_s) / move.moved_bytes)
    usual = quick_first[: len(moves) - int(FEW_SHARE * len(moves))]
    return sum(move.moved_bytes for move in usual) / sum(bytes_s(move, latency_s) for move in usual)


def mixed_rate_of(traffic: Traffic, weights: dict[str, float], back_bytes_per_s: float | None, found: Sequence[Crowd]) -> float | None:
    """Bytes per second at least, of stretches in most of which large files were under way, however many small ones there were beside them:
    what these left of the line, a large one had. In a third of it a crowd was under way: with fewer, the line may have waited for those who
    asked. None as well where, at that rate, files cost more of the stretches than their bytes.
    """
    moves, crowded = traffic.moves, traffic.crowded()
    large = union((move.begun_at, move.ended_at) for move in moves if move.moved_bytes > SMALL_BYTES)
    latency_s = usual_latency_s(moves, None)
    least_s = WAITS_MIN * latency_s
    mixed = [
        stretch
        for stretch in stretches(moves, weights, latency_s, back_bytes_per_s)
        if stretch.took_s >= least_s
        and 2 * overlap_s(large, stretch.begun_at, stretch.begun_at + stretch.took_s) > stretch.took_s
        and overlap_s(crowded, stretch.begun_at, stretch.begun_at + stretch.took_s) > CROWDED_SHARE_MIN * stretch.took_s
    ]
    if not mixed:
        return None
    rates = [stretch.moved_bytes / stretch.took_s for stretch in mixed]
    single = [move.moved_bytes / move.took_s for move in moves if move.moved_bytes > SMALL_BYTES and move.took_s >= least_s]
    rate = max(quantile(rates, [each.weight * each.moved_bytes for each in mixed], RATE_SHARE), *single, 0.0)
    costs_s = (file_cost_s(found, rate) or 0.0) * sum(each.moves for each in mixed)
    return rate if costs_s <= COSTS_SHARE_MAX * sum(each.took_s for each in mixed) else None


def is_full(stretch: Stretch, latency_s: float, file_s: float) -> bool:
    """It is of large files, and longer than the waiting of its transfers in turns, or logging in, would explain; and more of it went by
    with bytes than with what files cost.
    """
    large = stretch.moved_bytes > stretch.moves * SMALL_BYTES and stretch.moves * file_s <= COSTS_SHARE_MAX * stretch.took_s
    return large and stretch.took_s > 0 and stretch.took_s >= max(WAITS_MIN, stretch.moves / TURNS) * latency_s


def union(spans: Iterable[Span]) -> list[Span]:
    """As few spans as cover the same times, in order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def overlap_s(spans: Sequence[Span], begin: float, end: float) -> float:
    """Seconds of these spans, which are apart, that lie between the two."""
    return sum(max(0.0, min(end, later) - max(begin, earlier)) for earlier, later in spans)


def meets(spans: Sequence[Span], span: Span) -> bool:
    """Whether it overlaps one of these, which are in order and apart."""
    place = bisect_right(spans, (span[1], inf))
    return place > 0 and spans[place - 1][1] >= span[0]


def stretches(moves: Sequence[Move], weights: dict[str, float], latency_s: float, back_bytes_per_s: float | None) -> list[Stretch]:
    """Transfers that overlap are one stretch; a run's weight is that of the last transfer in it."""
    spans = sorted((*working_span(move, latency_s, back_bytes_per_s), move.moved_bytes, weights[move.run]) for move in moves)
    found: list[Stretch] = []
    begun, ended, count, moved_bytes, weight = 0.0, 0.0, 0, 0, 0.0
    for begins, ends, size_bytes, own_weight in spans:
        if count and begins > ended:
            found.append(Stretch(count, moved_bytes, ended - begun, weight, begun))
            count, moved_bytes = 0, 0
        if not count:
            begun, ended = begins, ends
        ended, weight = max(ended, ends), own_weight
        count, moved_bytes = count + 1, moved_bytes + size_bytes
    return [*found, Stretch(count, moved_bytes, ended - begun, weight, begun)] if count else found


def working_span(move: Move, latency_s: float, back_bytes_per_s: float | None) -> Span:
    """(from, to): while its bytes were on the link."""
    back_s = move.moved_bytes / back_bytes_per_s if move.read_back and back_bytes_per_s else 0.0
    begins = min(move.begun_at + latency_s, move.ended_at)
    return begins, max(begins, move.ended_at - back_s)
