"""Rival caches against all that could be kept, and the bound above both."""

from __future__ import annotations

from itertools import chain, combinations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stager.planning.clairvoyant import clairvoyant_bound_bytes
from stager.planning.rival_caches import Free, Give, Rule, Step, Take, hits_of

Jobs = list[tuple[int, ...]]


def steps_of(jobs: Jobs, sizes: list[int]) -> list[Step]:
    """One job after the other."""
    return [step for index, files in enumerate(jobs) for step in (Take(index, tuple((file, sizes[file]) for file in files)), Give(index))]


def trace_of(jobs: Jobs, sizes: list[int]) -> list[tuple[int, int]]:
    return [(file, sizes[file]) for files in jobs for file in files]


def optimal_hits(jobs: Jobs, sizes: list[int], capacity: int) -> int:
    """All ways to keep or drop, by exhaustive search; while a job runs, its files are there."""
    states: dict[frozenset[int], int] = {frozenset(): 0}
    for files in jobs:
        after: dict[frozenset[int], int] = {}
        for held, hits in states.items():
            gained = hits + sum(sizes[file] for file in files if file in held)
            others = sorted(held - set(files))
            for kept in chain.from_iterable(combinations(others, count) for count in range(len(others) + 1)):
                now = frozenset((*kept, *files))
                if sum(sizes[file] for file in now) <= capacity and after.get(now, -1) < gained:
                    after[now] = gained
        states = after
    return max(states.values())


FILES = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=2, unique=True).map(tuple), max_size=9)


@settings(max_examples=150, deadline=None)
@given(FILES, st.lists(st.integers(1, 5), min_size=5, max_size=5), st.integers(1, 12))
def test_lru_and_min_below_optimum_below_bound(jobs: Jobs, sizes: list[int], capacity: int) -> None:
    assume(all(sum(sizes[file] for file in files) <= capacity for files in jobs))
    lru, least = (hits_of(rule, steps_of(jobs, sizes), capacity) for rule in (Rule.LRU, Rule.MIN))
    optimum, bound = optimal_hits(jobs, sizes, capacity), clairvoyant_bound_bytes(trace_of(jobs, sizes), capacity)
    assert lru.overfull_bytes == least.overfull_bytes == 0
    assert lru.taken_bytes == least.taken_bytes == sum(size for _, size in trace_of(jobs, sizes))
    assert max(lru.hit_bytes, least.hit_bytes) <= optimum <= bound
    if len(set(sizes)) == 1:
        assert least.hit_bytes == optimum


def test_a_large_cache_hits_all_that_comes_again() -> None:
    jobs, sizes = [(0,), (1,), (0,), (1,), (0,)], [5, 7]
    assert hits_of(Rule.MIN, steps_of(jobs, sizes), 100).hit_bytes == 17
    assert hits_of(Rule.LRU, steps_of(jobs, sizes), 100).hit_bytes == 17
    assert clairvoyant_bound_bytes(trace_of(jobs, sizes), 100) == 17


def test_min_keeps_what_is_used_soonest_and_lru_what_was_used_last() -> None:
    """Round and round over three files with room for two: LRU always drops the one that comes next."""
    jobs, sizes = [(0,), (1,), (2,)] * 4, [10, 10, 10]
    assert hits_of(Rule.LRU, steps_of(jobs, sizes), 20).hit_bytes == 0
    assert hits_of(Rule.MIN, steps_of(jobs, sizes), 20).hit_bytes == optimal_hits(jobs, sizes, 20) == 50


def test_min_takes_back_what_it_need_not_have_evicted() -> None:
    """For file 2 first 0 would go, which is used last of all, then 1; without 1 there is room for 0."""
    jobs, sizes = [(0,), (1,), (2,), (1,), (0,)], [1, 9, 9]
    assert hits_of(Rule.MIN, steps_of(jobs, sizes), 10).hit_bytes == 1


def test_what_is_pinned_or_must_stay_stays() -> None:
    """`made` is evicted only when it is elsewhere; `pinned` not before its job ends; both are hits as long as they are here."""
    take, give = Take("a", (("pinned", 6),), 2), Give("a", (("made", 2, True),))
    other = [Take("b", (("large", 4),)), Give("b"), Take("c", (("large", 4), ("made", 2), ("pinned", 6))), Give("c")]
    for rule in Rule:
        assert hits_of(rule, [take, *other, give], 12).overfull_bytes > 0
        assert hits_of(rule, [take, give, *other], 12).hit_bytes == 12
        assert hits_of(rule, [take, give, Take("d", (("new", 8),)), Give("d"), *other], 12).hit_bytes >= 2
    freed = [take, give, Free("made"), Take("d", (("new", 11),)), Give("d"), Take("e", (("made", 2),)), Give("e")]
    assert [hits_of(rule, freed, 12).hit_bytes for rule in Rule] == [0, 0]


def test_nothing_is_hit_that_was_never_there() -> None:
    for rule in Rule:
        assert hits_of(rule, [], 10).rate is None
        assert hits_of(rule, steps_of([(0,), (1,)], [3, 4]), 10).hit_bytes == 0


def test_what_is_made_again_must_stay_again() -> None:
    """It was free to go, then its job ran once more: until it is elsewhere again, whatever else goes."""
    made = Give("again", (("out", 4, True),))
    first = [Take("read", (("out", 4),)), Give("read"), Take("again", ()), made]
    last = [Take("large", (("large", 8),)), Give("large"), Take("end", (("out", 4),)), Give("end")]
    for rule in Rule:
        assert hits_of(rule, [*first, *last], 10).hit_bytes == 4
        assert hits_of(rule, [*first, Free("out"), *last], 10).hit_bytes == 0


def test_what_was_only_here_is_spilled_when_it_is_evicted_and_only_once() -> None:
    made = [Take("a", (), 4), Give("a", (("out", 4, False),))]
    out = [Take("large", (("large", 8),)), Give("large"), Take("read", (("out", 4),)), Give("read")]
    for rule in Rule:
        assert hits_of(rule, [*made, *out, *out], 10).spilled_bytes == 4
        assert hits_of(rule, [*made, *out], 12).spilled_bytes == 0
        assert hits_of(rule, [*made, *out], 10).fetched_bytes == 12
