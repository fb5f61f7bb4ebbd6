"""Directories that jobs use and that take time to make, such as unpacked images: kept after their last use, as far as a limit allows.

May know: the file system, and who names which directory. One rule: what somebody names stays. All else goes by one rename, the one that
was used longest ago first, so a directory that has its name is whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)
GOING, FRESH = ".going.", ".new."
SIZE = "size"


class KeptDirectory(NamedTuple):
    name: str
    size_bytes: int
    used_at: float


class Found(NamedTuple):
    """All that is kept, the one used longest ago first, and the names of those that somebody used at `since`, of the monotonic clock."""

    entries: tuple[KeptDirectory, ...]
    used: frozenset[str]
    since: float

    @property
    def idle(self) -> list[KeptDirectory]:
        return [entry for entry in self.entries if entry.name not in self.used]


class KeptDirectories:
    """On the event loop's thread; what takes long is done beside it. `named`: which of them somebody uses, also of earlier processes. It
    runs in a thread. `besides`: names below `root` that are no such directories.
    """

    def __init__(self, root: Path, bytes_max: int, named: Callable[[], Set[str]], besides: Sequence[str] = ()) -> None:
        self.root, self.bytes_max, self.named, self.besides = root, bytes_max, named, besides
        self.taken_at: dict[str, float] = {}
        self.making = 0
        self.looked = False

    @contextmanager
    def being_made(self) -> Iterator[None]:
        """Nothing goes meanwhile: whoever makes one may have found it there."""
        self.making += 1
        try:
            yield
        finally:
            self.making -= 1

    def take(self, directory: str) -> None:
        """It is used now. Its user names it from now on, before anything else is done on this thread."""
        with suppress(OSError):
            os.utime(directory)
        self.taken_at[os.path.basename(directory)] = time.monotonic()

    async def found(self) -> Found:
        since = time.monotonic()
        return await asyncio.to_thread(lambda: Found(tuple(self._entries()), frozenset(self.named()), since))

    async def trim(self) -> None:
        """Those that nobody uses go while all together are larger than the limit allows."""
        if self.making:
            return  # The last one that is made looks.
        try:
            if not self.looked:
                self.looked = True
                await asyncio.to_thread(self._clear_left)
            found = await self.found()
            over_bytes = sum(entry.size_bytes for entry in found.entries) - self.bytes_max
            going = []
            for entry in found.idle:
                if over_bytes > 0:
                    going.append(entry)
                    over_bytes -= entry.size_bytes
            await self.drop(going, found.since)
        except OSError as problem:
            log.warning("what is kept in %s cannot be looked through: %s", self.root, problem)

    async def drop(self, entries: Sequence[KeptDirectory], since: float) -> list[KeptDirectory]:
        """Those that went: not one that was taken since."""
        gone = [
            entry for entry in entries if not self.making and self.taken_at.get(entry.name, 0.0) < since and self._set_apart(entry.name)
        ]
        await asyncio.to_thread(self._remove, gone)
        return gone

    def _going(self, name: str) -> Path:
        return self.root / f"{GOING}{name}.{os.getpid()}"

    def _set_apart(self, name: str) -> bool:
        try:
            os.rename(self.root / name, self._going(name))
        except OSError:
            return False
        self.taken_at.pop(name, None)
        return True

    def _remove(self, gone: Sequence[KeptDirectory]) -> None:
        for entry in gone:
            remove_tree(self._going(entry.name))

    def _entries(self) -> list[KeptDirectory]:
        """In a thread."""
        entries = []
        for place in self.root.iterdir() if self.root.is_dir() else ():
            if not place.name.startswith(".") and place.name not in self.besides:
                with suppress(OSError):  # it goes just now
                    used_at = place.stat().st_mtime
                    entries.append(KeptDirectory(place.name, size_of(place, used_at), used_at))
        return sorted(entries, key=lambda entry: (entry.used_at, entry.name))

    def _clear_left(self) -> None:
        """In a thread. What processes that were killed have left: half made, or half removed."""
        for left in self.root.glob(".*"):
            pid = left.name.rpartition(".")[2]
            if left.name.startswith((GOING, FRESH)) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                remove_tree(left)


def size_of(place: Path, used_at: float) -> int:
    """On the disk. Written down, since a directory that is whole does not change."""
    note = place / SIZE
    with suppress(OSError, ValueError):
        return int(note.read_text())
    size_bytes = tree_bytes(place)
    note.write_text(str(size_bytes))
    # Writing is no use of it.
    os.utime(place, (used_at, used_at))
    return size_bytes


def tree_bytes(root: Path) -> int:
    """A file that has several names counts once."""
    total = 0.0
    for directory, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):
                found = os.lstat(f"{directory}/{name}")
                total += found.st_blocks * 512 / found.st_nlink
    return int(total)


def remove_tree(root: Path) -> None:
    """Also what its owner may not write into."""
    with suppress(OSError):
        os.chmod(root, 0o700)
    for directory, names, _ in os.walk(root):
        for name in names:
            if not os.path.islink(f"{directory}/{name}"):
                with suppress(OSError):
                    os.chmod(f"{directory}/{name}", 0o700)
    shutil.rmtree(root, ignore_errors=True)
