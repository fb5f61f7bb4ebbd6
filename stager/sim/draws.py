"""Chance, from a seed and a name. One rule: the same seed and name draw the same, in whatever order things happen."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import exp, log


def fraction(seed: int, *names: str) -> float:
    """Uniform in [0, 1)."""
    raw = hashlib.blake2b("/".join((str(seed), *names)).encode(), digest_size=7).digest()
    return int.from_bytes(raw, "big") / (1 << 56)


@dataclass(frozen=True, slots=True)
class Spread:
    """How far what happens is from what was expected: factors between 1/spread and spread, even on a log scale. 1: exactly as expected.

    `profiled`: times that of each job and file as its plan carries it, from the profile of its type. `contents_vary`: no two attempts make
    the same content.
    """

    seed: int = 0
    sizes: float = 1.0
    durations: float = 1.0
    contents_vary: bool = False
    profiled: bool = False

    def size_bytes(self, expected: int, run: str, lfn: str, own: float = 1.0) -> int:
        """The same for every attempt, so that a file made again is the same file. `own`: the spread that the plan has for it."""
        spread = self.sizes * own if self.profiled else self.sizes
        if spread == 1.0:
            return expected
        return round(expected * factor(spread, fraction(self.seed, "size", run, lfn)))

    def duration_s(self, expected_s: float, attempt: str, own: float = 1.0) -> float:
        spread = self.durations * own if self.profiled else self.durations
        if spread == 1.0:
            return expected_s
        return expected_s * factor(spread, fraction(self.seed, "duration", attempt))


def factor(spread: float, at: float) -> float:
    return exp(log(spread) * (2 * at - 1))
