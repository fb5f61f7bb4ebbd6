"""Directories that jobs use and that take time to make, such as unpacked images and environments of packages: kept after their last use, as
far as a limit allows.

May know: the file system, and who names which directory. One rule: what somebody names stays. All else goes when it is too much, the one
that was used longest ago first.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stager.worker.kept_directory import FRESH, GOING, is_whole, locked, set_apart, size_of, tree_bytes, used_now
from stager.worker.removal import remove_tree

log = logging.getLogger(__name__)


class KeptDirectory(NamedTuple):
    """`is_whole` False: it was not made to its end."""

    name: str
    size_bytes: int
    used_at: float
    is_whole: bool = True


class Found(NamedTuple):
    """All that is kept, the one used longest ago first, and the names of those that somebody uses."""

    entries: tuple[KeptDirectory, ...]
    used: frozenset[str]

    @property
    def idle(self) -> list[KeptDirectory]:
        return [entry for entry in self.entries if entry.name not in self.used]

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.entries)


class KeptDirectories:
    """On the event loop's thread; what takes long is done beside it. `note`: the file in each that was written last, so that one without
    it is not whole. `named`: which of them somebody uses, also of earlier processes; it runs in a thread, as does `is_changed`. `besides`:
    names below `root` that are no such directories.
    """

    def __init__(
        self,
        root: Path,
        bytes_max: int,
        note: str,
        named: Callable[[], Set[str]],
        *,
        besides: Sequence[str] = (),
        is_changed: Callable[[Path], bool] = lambda root: False,
    ) -> None:
        self.root, self.bytes_max, self.note, self.named = root, bytes_max, note, named
        self.besides, self.is_changed = besides, is_changed
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

    def take(self, name: str, write_name: Callable[[], None]) -> bool:
        """In a thread. `write_name` notes who uses it from here on. False: it is not there, or somebody makes or removes it just now."""
        root = self.root / name
        try:
            with locked(root, fcntl.LOCK_SH | fcntl.LOCK_NB):
                if not is_whole(root, self.note):
                    return False
                write_name()
                used_now(root)
                return True
        except (BlockingIOError, FileNotFoundError):
            return False

    async def found(self) -> Found:
        return await asyncio.to_thread(self._found)

    async def trim(self) -> None:
        """Those that nobody uses go while all together are larger than the limit allows."""
        if self.making:
            return  # The last one that is made looks.
        try:
            if not self.looked:
                self.looked = True
                await asyncio.to_thread(self._clear_left)
            found = await self.found()
            over_bytes = found.size_bytes - self.bytes_max
            going = []
            for entry in found.idle:
                if over_bytes > 0 or not entry.is_whole:
                    going.append(entry)
                    over_bytes -= entry.size_bytes
            await self.drop(going)
        except OSError as problem:
            log.warning("what is kept in %s cannot be looked through: %s", self.root, problem)

    async def collect(self, stays: Callable[[str], bool], *, dry_run: bool) -> list[KeptDirectory]:
        """Those that went, or would: not made to their end, changed since then, and all that nobody uses and does not stay by its name."""
        found = await self.found()
        going = await asyncio.to_thread(lambda: [entry for entry in found.idle if not stays(entry.name) or self._is_damaged(entry)])
        return going if dry_run else await self.drop(going)

    async def drop(self, entries: Sequence[KeptDirectory]) -> list[KeptDirectory]:
        """Those that went: not one that somebody has used since it was found."""
        return [] if self.making else await asyncio.to_thread(self._drop, entries)

    def _drop(self, entries: Sequence[KeptDirectory]) -> list[KeptDirectory]:
        gone = {}
        with ExitStack() as locks:
            held = [entry for entry in entries if self._is_locked(entry, locks)]
            # Nobody names one of these meanwhile.
            used = self.named()
            for entry in held:
                if entry.name not in used and (going := set_apart(self.root / entry.name)) is not None:
                    gone[entry] = going
        for going in gone.values():
            remove_tree(going)
        return list(gone)

    def _is_locked(self, entry: KeptDirectory, locks: ExitStack) -> bool:
        root = self.root / entry.name
        try:
            locks.enter_context(locked(root, fcntl.LOCK_EX | fcntl.LOCK_NB))
            return root.stat().st_mtime == entry.used_at
        except OSError:  # It is being made, an attempt begins with it, or it went.
            return False

    def _is_damaged(self, entry: KeptDirectory) -> bool:
        return not entry.is_whole or self.is_changed(self.root / entry.name)

    def _found(self) -> Found:
        """In a thread."""
        entries = []
        for root in self.root.iterdir() if self.root.is_dir() else ():
            if not root.name.startswith(".") and root.name not in self.besides:
                with suppress(OSError):  # it goes just now
                    used_at, made = root.stat().st_mtime, is_whole(root, self.note)
                    entries.append(KeptDirectory(root.name, size_of(root) if made else tree_bytes(root), used_at, made))
        return Found(tuple(sorted(entries, key=lambda entry: (entry.used_at, entry.name))), frozenset(self.named()))

    def _clear_left(self) -> None:
        """In a thread. What processes that were killed have left: half made, or half removed."""
        for left in self.root.glob(".*"):
            pid = left.name.rpartition(".")[2]
            if left.name.startswith((GOING, FRESH)) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                remove_tree(left)
