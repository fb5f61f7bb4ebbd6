"""One directory that jobs use and that takes time to make: its lock, the note that says that it is whole, its size, and how it goes.

May know: the file system. One rule: it is made, named by its users and removed only under its lock, whatever process does it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stager.worker.place import read_json
from stager.worker.walking import walked

GOING, FRESH = ".going.", ".new."


@contextmanager
def locked(root: Path, how: int) -> Iterator[int]:
    """The descriptor that has the lock. Raises BlockingIOError where LOCK_NB is asked for and another process has it."""
    with beside(root, "lock").open("a") as lock:
        fcntl.flock(lock, how)
        yield lock.fileno()


def is_whole(root: Path, note: str) -> bool:
    """`note`: the file in it that is written last."""
    return read_json(str(root / note)) is not None


def beside(root: Path, what: str) -> Path:
    """In it would be a change of it."""
    return root.parent / f".{root.name}.{what}"


def used_now(root: Path) -> None:
    with suppress(OSError):
        os.utime(root)


def size_of(root: Path) -> int:
    """On the disk. Written down, since a directory that is whole does not change."""
    note = beside(root, "size")
    with suppress(OSError, ValueError):
        return int(note.read_text())
    size_bytes = tree_bytes(root)
    with suppress(OSError):  # the disk is full, and whoever asks may be about to free it
        note.write_text(str(size_bytes))
    return size_bytes


def tree_bytes(root: Path) -> int:
    """A file that has several names counts once."""
    total = 0.0
    for directory, _, names in walked(root):
        for name in names:
            with suppress(OSError):
                found = os.lstat(f"{directory}/{name}")
                total += found.st_blocks * 512 / found.st_nlink
    return int(total)


def set_apart(root: Path) -> Path | None:
    """Under its lock, so that it is whole or gone for everybody. What is to be removed then; None: it cannot be moved."""
    going = root.parent / f"{GOING}{root.name}.{os.getpid()}"
    try:
        os.rename(root, going)
    except OSError:
        return None
    beside(root, "size").unlink(missing_ok=True)
    return going
