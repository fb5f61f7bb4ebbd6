"""The hits of a cache that knows the future: the bound that real hits are shown beside.

May know: nothing but numbers. One rule: pure functions of a trace, which is (file, its bytes) in the order of use; the first use of a file
is never a hit.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

NEVER = 1 << 60


def clairvoyant_bound_bytes(trace: Sequence[tuple[Hashable, int]], capacity_bytes: int) -> int:
    """No cache can hit more: the shortest stays between two uses first, until their bytes times steps fill capacity times the length of the
    trace.
    """
    following = next_positions(trace)
    stays = sorted(
        (upcoming - index, size) for index, ((_, size), upcoming) in enumerate(zip(trace, following, strict=True)) if upcoming != NEVER
    )
    budget = capacity_bytes * len(trace)
    hits = 0
    for steps, size in stays:
        if size > capacity_bytes:
            continue
        if size * steps > budget:
            # A fraction of a stay still counts for a bound.
            return hits + -(-budget // steps)
        budget -= size * steps
        hits += size
    return hits


def next_positions(trace: Sequence[tuple[Hashable, int]]) -> list[int]:
    """For each access, where the same file comes again."""
    following = [NEVER] * len(trace)
    seen: dict[Hashable, int] = {}
    for index in range(len(trace) - 1, -1, -1):
        file = trace[index][0]
        following[index] = seen.get(file, NEVER)
        seen[file] = index
    return following
