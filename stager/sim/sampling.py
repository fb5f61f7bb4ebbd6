"""Chance, from a seed and a name. One rule: the same seed and name draw the same, in whatever order things happen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """How far an expectation may be off: by one factor for all of its kind together, and by another for each alone. A wrong guess is wrong
    for every job of its type, so many jobs do not make up for it; chance differs from job to job, and they do.
    """

    kind: str
    together: float = 1.0
    alone: float = 1.0

    def factor(self, seed: int, own: float, *names: str) -> float:
        """`own`: the spread that is known of this one, where it is wider."""
        together = factor(self.together, fraction(seed, "together", self.kind)) if self.together != 1.0 else 1.0
        alone = max(self.alone, own)
        return together * (factor(alone, fraction(seed, *names)) if alone != 1.0 else 1.0)


CERTAIN = Uncertainty("")


@dataclass(frozen=True, slots=True)
class Uncertainties:
    """Draws as Spread does, each file and each job by its own doubt; sizes by lfn, durations by the attempt's id without its number."""

    seed: int
    sizes: Mapping[str, Uncertainty] = field(default_factory=dict)
    durations: Mapping[str, Uncertainty] = field(default_factory=dict)
    contents_vary: bool = False

    def size_bytes(self, expected: int, run: str, lfn: str, own: float = 1.0) -> int:
        drawn = self.sizes.get(lfn, CERTAIN).factor(self.seed, own, "size", run, lfn)
        return expected if drawn == 1.0 else round(expected * drawn)

    def duration_s(self, expected_s: float, attempt: str, own: float = 1.0) -> float:
        return expected_s * self.durations.get(attempt.rpartition("-")[0], CERTAIN).factor(self.seed, own, "duration", attempt)


def factor(spread: float, at: float) -> float:
    return exp(log(spread) * (2 * at - 1))
