"""The profile of a job type, as runs have shown it: times, sizes, how much of its inputs it reads, and how.

May know: the model's statistics. One rule: what was not seen is None, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from stager.model.robust import FittedLine

# Names that differ only in these are files of one kind: numbers, and hexadecimal digests with a digit in them.
VARYING = re.compile(r"(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}|[0-9]+")


@lru_cache(maxsize=65_536)
def pattern_of(lfn: str) -> str:
    """`p_017_area.fits` -> `p_*_area.fits`: what files of one kind are kept by. Equal patterns are compared, nothing is matched."""
    return VARYING.sub("*", lfn)


@dataclass(frozen=True, slots=True)
class Quantity:
    """One measure of a job type. `median` of all samples, `high` the value that 95 of 100 do not exceed, newer runs weighing more.

    `spread`: values lie about between median / spread and median * spread (robust.spread_factor); None: too few to tell. With a `line` both
    follow the job's input bytes, spread and `high_factor` being about the line. `imported`: nothing of it was measured here yet.
    `each`: what all jobs of a run took or made, shared out evenly: jobs of one type are not alike, and what they take adds up, which
    medians do not.
    """

    median: float
    high: float
    spread: float | None = None
    samples: int = 1
    line: FittedLine | None = None
    high_factor: float = 1.0
    imported: bool = False
    each: float | None = None

    def at(self, input_bytes: float | None) -> float:
        """The value to expect of a job with so many bytes of input; None: nobody knows how many."""
        if self.line is not None and input_bytes is not None:
            return self.line.at(input_bytes)
        return self.median if self.each is None else self.each

    def high_at(self, input_bytes: float | None) -> float:
        """The value to reserve space by."""
        return self.high if self.line is None or input_bytes is None else self.line.at(input_bytes) * self.high_factor


@dataclass(frozen=True, slots=True)
class FileProfile:
    """The files of one pattern that a job of the type reads, or makes: how many, how large one is (`high`: of the largest).

    The rest only of inputs, and only where it was traced: the share of its bytes that is touched, how often each touched byte is read
    (1: once), the share of reads that go on where the last one ended.
    """

    pattern: str
    files: Quantity
    size_bytes: Quantity | None = None
    touched_fraction: Quantity | None = None
    reads_per_byte: Quantity | None = None
    sequential_fraction: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Per job. `read_bytes` and `written_bytes` passed through calls, those of libraries included and those of mmap not; `reread_bytes`
    and `read_fraction` are of the inputs, from traces.
    """

    job_type: str
    samples: int = 0
    runs: int = 0
    wall_s: Quantity | None = None
    cpu_s: Quantity | None = None
    memory_peak_bytes: Quantity | None = None
    input_bytes: Quantity | None = None
    input_files: Quantity | None = None
    read_bytes: Quantity | None = None
    reread_bytes: Quantity | None = None
    read_fraction: Quantity | None = None
    written_bytes: Quantity | None = None
    output_bytes: Quantity | None = None
    output_files: Quantity | None = None
    inputs: Mapping[str, FileProfile] = field(default_factory=dict)
    outputs: Mapping[str, FileProfile] = field(default_factory=dict)

    def input(self, lfn: str) -> FileProfile | None:
        return self.inputs.get(pattern_of(lfn))

    def output(self, lfn: str) -> FileProfile | None:
        return self.outputs.get(pattern_of(lfn))


QUANTITIES = (
    "wall_s",
    "cpu_s",
    "memory_peak_bytes",
    "input_bytes",
    "input_files",
    "read_bytes",
    "reread_bytes",
    "read_fraction",
    "written_bytes",
    "output_bytes",
    "output_files",
)
FILE_QUANTITIES = ("files", "size_bytes", "touched_fraction", "reads_per_byte", "sequential_fraction")

Profiles = Mapping[str, Profile]
NO_PROFILES: Profiles = {}
