"""Directories one in another, as a program makes that copies a directory into itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Below what Python can count down to, and beyond what one path can name.
LEVELS, NAME = 3_000, "d"


@contextmanager
def gone_after(top: Path) -> Iterator[None]:
    """Also where a test fails: else pytest fails over what it cannot remove, at each later call."""
    try:
        yield
    finally:
        subprocess.run(["rm", "-rf", top], check=True)


def chain(top: Path, levels: int) -> None:
    """Below `top`, with a file in the last."""
    top.mkdir(parents=True, exist_ok=True)
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(NAME, dir_fd=here)
        below = os.open(NAME, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
