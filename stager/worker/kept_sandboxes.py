"""Sandboxes that failed jobs left, kept for their owner to look into: of each job that of its newest try, few, and small altogether.

May know: attempts' directories, the file system. One rule: a sandbox comes here and goes from here by one rename of its attempt's
directory, so after a crash it is here or there, whole; nothing here is ever used by another attempt.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stager.model.ids import digest_of
from stager.worker.attempt import Outcome
from stager.worker.fullness import FREE_BYTES_MIN
from stager.worker.place import Place, read_json, safe_name
from stager.worker.removal import remove_tree
from stager.worker.walking import walked

SANDBOXES_MAX = 20
GOING = ".going."


@dataclass(frozen=True, slots=True)
class Kept:
    """`failed/RUN/JOB.NUMBER/`, which was the directory of the attempt."""

    run: str
    job: str
    number: int
    kept_at: float
    place: Place


class KeptSandboxes:
    """`bytes_max` 0: none is kept. `take` may come at any time; what removes comes from one thread at a time, and only it takes long."""

    def __init__(self, state_dir: Path, bytes_max: int) -> None:
        self.state_dir, self.bytes_max = state_dir, bytes_max
        self.root = state_dir / "failed"
        self.kept: dict[tuple[str, str], Kept] = {}
        # Of older tries, to be removed.
        self.stale: list[Kept] = []
        # Why one that was kept is not any more; of those that went for room.
        self.gone: dict[tuple[str, str], str] = {}
        self.removing = threading.Lock()

    def load(self) -> None:
        """Loads the sandboxes that earlier schedulers kept."""
        # Names of runs begin with no dot here: what is half removed holds what a job wrote.
        found = filter(None, map(kept_in, self.root.glob("[!.]*/*")))
        for entry in sorted(found, key=lambda each: each.kept_at):
            self._put(entry)

    def take(self, attempt_id: str) -> bool:
        """From its attempt, if it failed and its sandbox is there."""
        place = Place.of(self.state_dir, attempt_id)
        said, ended = read_json(place.attempt) or {}, read_json(place.outcome) or {}
        wanted = said.get("keep_failed_sandbox") and ended.get("outcome") == Outcome.FAILED
        if not wanted or self.bytes_max == 0 or not os.path.isdir(place.sandbox):
            return False
        run, job, number = said["run_id"], said["job_id"], int(said["number"])
        target = self.root / safe_name(run) / f"{safe_name(job)}.{number}"
        for directory in (self.root, target.parent):
            directory.mkdir(mode=0o700, exist_ok=True)
        if target.exists() and not remove(self.root, target):
            return False
        os.utime(place.directory)
        os.rename(place.directory, target)
        self._put(Kept(run, job, number, target.stat().st_mtime, Place(str(target))))
        return True

    def _put(self, entry: Kept) -> None:
        """In the place of an older try's."""
        before = self.kept.get((entry.run, entry.job))
        if before is not None and before.place != entry.place:
            self.stale.append(before)
        self.kept[entry.run, entry.job] = entry
        self.gone.pop((entry.run, entry.job), None)

    def drop(self, run: str, job: str | None = None) -> int:
        """How many went; not one that somebody has a shell in."""
        with self.removing:
            return sum(self._remove(entry) for entry in list(self.kept.values()) if entry.run == run and job in (None, entry.job))

    def trim(self, owed_bytes: int) -> None:
        """First those go that are too large by themselves, which would push out all others. Then the oldest go while there are too many, or
        they are too large together, or the disk has less left than the cache may still take of it.
        """
        with self.removing:
            for half in self.root.glob(f"{GOING}*"):
                remove_tree(half)
            stale, self.stale = self.stale, []
            # One that somebody has a shell in is asked again at the next.
            self.stale += [entry for entry in stale if not remove(self.root, Path(entry.place.directory))]
            oldest_first = sorted(self.kept.values(), key=lambda each: each.kept_at)
            sizes = {entry.place: tree_bytes(entry.place) for entry in oldest_first}
            alone = "it was larger than STAGER_KEEP_FAILED allows"
            for entry in [each for each in oldest_first if sizes[each.place] > self.bytes_max]:
                self._give_way(entry, sizes, alone)
            for entry in [each for each in oldest_first if each.place in sizes]:
                why = self._too_much(len(sizes), sum(sizes.values()), owed_bytes)
                if why:
                    self._give_way(entry, sizes, why)

    def _give_way(self, entry: Kept, sizes: dict[Place, int], why: str) -> None:
        if self._remove(entry):
            del sizes[entry.place]
            self.gone[entry.run, entry.job] = why

    def _too_much(self, count: int, size_bytes: int, owed_bytes: int) -> str:
        if count > SANDBOXES_MAX:
            return f"at most {SANDBOXES_MAX} are kept, and newer ones came"
        if size_bytes > self.bytes_max:
            return "it and those kept after it were larger than STAGER_KEEP_FAILED allows"
        if free_bytes(self.state_dir) < owed_bytes + FREE_BYTES_MIN:
            return "the disk has no room for it beside what the cache may take (--capacity)"
        return ""

    def clear(self) -> None:
        """All: a job found the disk full."""
        with self.removing:
            for entry in list(self.kept.values()):
                if self._remove(entry):
                    self.gone[entry.run, entry.job] = "the disk was full"

    def _remove(self, entry: Kept) -> bool:
        if not remove(self.root, Path(entry.place.directory)):
            return False
        if self.kept.get((entry.run, entry.job)) is entry:
            del self.kept[entry.run, entry.job]
        return True


def kept_in(directory: Path) -> Kept | None:
    place = Place(str(directory))
    said = read_json(place.attempt)
    if said is None or not os.path.isdir(place.sandbox):
        return None
    return Kept(said["run_id"], said["job_id"], int(said["number"]), directory.stat().st_mtime, place)


@contextmanager
def alone(lock_path: str) -> Iterator[bool]:
    """Whether nobody has a shell there; none can begin one meanwhile."""
    handle = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(handle)


def remove(root: Path, directory: Path) -> bool:
    """Gone from its place at once. False: somebody has a shell in it."""
    # Both names together may be longer than one may be.
    going = root / f"{GOING}{digest_of(directory.parent.name, directory.name)}.{os.getpid()}"
    with suppress(FileNotFoundError):
        with alone(Place(str(directory)).lock) as is_alone:
            if not is_alone:
                return False
            os.rename(directory, going)
        remove_tree(going)
        with suppress(OSError):
            directory.parent.rmdir()
    return True


def tree_bytes(place: Place) -> int:
    """On the disk. Files that go away meanwhile do not count."""
    total = 0
    for directory, _, names in walked(place.directory):
        for name in names:
            with suppress(OSError):
                total += os.lstat(f"{directory}/{name}").st_blocks * 512
    return total


def free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
