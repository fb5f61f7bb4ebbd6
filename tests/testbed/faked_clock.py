"""A wall clock that is wrong: libfaketime in front of a program and of all that inherits its environment.

May know: libfaketime. One rule: only the wall clock is wrong. What measures how long something takes is right, and so are the times of
files. The library knows some of the calls that ask for those, so that one program would be told two times of one file. A program that is
killed leaves two files of the library in /dev/shm, so this is for hosts with one of their own. And the reaper of a job is told no
variable of its worker, so its clock is right: times that it stamps, and those of its worker, are not of one clock here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
NAME = "faketime/libfaketimeMT.so.1"


def library() -> Path | None:
    found = (path for place in LIBRARIES for pattern in (NAME, f"*/{NAME}") for path in sorted(Path(place).glob(pattern)))
    return next(found, None)


def with_clock_off_by(offset_s: float) -> list[str]:
    """The words before a command that give it this clock. Skips the test, by name, where the library is missing."""
    preloaded = library()
    if preloaded is None:
        pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")
    variables = {
        "LD_PRELOAD": str(preloaded),
        "FAKETIME": f"{offset_s:+g}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    return ["env", *(f"{name}={value}" for name, value in variables.items())]
