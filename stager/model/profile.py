"""What runs have shown of a job type: time, sizes, how much of its inputs it reads.

May know: nothing above the model. One rule: what was not seen is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Profile:
    """One job type. `output_bytes` is the p95 of all outputs of one job together; `output_bytes_by_pattern` the p95 of each file whose lfn
    matches, first match wins.
    """

    job_type: str
    compute_s: float | None = None
    output_bytes: int | None = None
    output_bytes_by_pattern: tuple[tuple[str, int], ...] = ()
    read_fraction: float | None = None
    memory_peak_bytes: int | None = None
    samples: int = 0

    def bytes_of(self, lfn: str) -> int | None:
        """The size of one output by name, where a pattern was measured."""
        for pattern, size_bytes in self.output_bytes_by_pattern:
            if fnmatchcase(lfn, pattern):
                return size_bytes
        return None


Profiles = Mapping[str, Profile]
NO_PROFILES: Profiles = {}
