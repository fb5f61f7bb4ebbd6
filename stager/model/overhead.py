"""What an attempt takes of its slot beside its program: starting it, committing what it made, telling of both.

May know: the model's statistics and topology. One rule: the disk's time for what was made is not in it, since whoever plans with it adds
that time by the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stager.model.robust import median
from stager.model.topology import DEFAULT_DISK_BYTES_PER_S, DEFAULT_OVERHEAD_S

# Fewer attempts say less than the default does.
SAMPLES_MIN = 5


@dataclass(frozen=True, slots=True)
class Overhead:
    """Of one attempt. `measured`: here; else it is the default."""

    seconds: float = DEFAULT_OVERHEAD_S
    measured: bool = False


def seen_overhead_s(begun_at: float, ended_at: float, wall_s: float, made_bytes: int) -> float:
    """Of one attempt, from its command to the word of its end, whose program took `wall_s` and made so many bytes."""
    return max(0.0, ended_at - begun_at - wall_s - made_bytes / DEFAULT_DISK_BYTES_PER_S)


def overhead_of(seen_s: Sequence[float]) -> Overhead:
    """The median: an attempt that waited for a busy machine does not move it."""
    if len(seen_s) < SAMPLES_MIN:
        return Overhead()
    return Overhead(median(seen_s, [1.0] * len(seen_s)), measured=True)
