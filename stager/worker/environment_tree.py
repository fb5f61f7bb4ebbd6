"""The directory of one environment: what makes it whole, who uses it, and how it goes.

May know: one directory, the attempts beside it. One rule: it is used, and removed, only under its lock, and it counts as there only if it
was made to its end.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stager.worker.place import TOLD, Place, packages_noted, read_json, write_json

DIRECTORY = "environments"
CACHED = "__pycache__"
PIECE_BYTES = 1 << 20
WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def locked(root: Path, how: int) -> Iterator[int]:
    """The descriptor that has the lock. Raises BlockingIOError where LOCK_NB is asked for and another process has it."""
    with (root.parent / f".{root.name}.lock").open("a") as lock:
        fcntl.flock(lock, how)
        yield lock.fileno()


def is_whole(root: Path) -> bool:
    return read_json(str(root / TOLD)) is not None


def taken(root: Path, place: Place) -> bool:
    """Notes that an attempt uses it from here on, so that nobody removes it. False: it is not there."""
    try:
        with locked(root, fcntl.LOCK_SH):
            if not is_whole(root):
                return False
            write_json(place.environment, {"root_dir": str(root)})
            return True
    except FileNotFoundError:
        return False


def collected(state_dir: Path, *, unused: bool, dry_run: bool) -> tuple[int, int]:
    """(how many are removed, their bytes): those that are not whole or were changed and, where `unused`, all that no attempt uses."""
    directory = state_dir / DIRECTORY
    roots = sorted(path for path in directory.iterdir() if not path.name.startswith(".")) if directory.is_dir() else []
    count = size_bytes = 0
    for root in roots:
        try:
            with locked(root, fcntl.LOCK_EX | fcntl.LOCK_NB):
                if not is_used(state_dir, root) and (unused or is_damaged(root)):
                    count, size_bytes = count + 1, size_bytes + bytes_of(root)
                    if not dry_run:
                        remove(root)
        except BlockingIOError:
            # It is being made, or an attempt begins with it.
            continue
    return count, size_bytes


def is_used(state_dir: Path, root: Path) -> bool:
    """An attempt that has not ended was given it, or a sandbox is kept that somebody may look into."""
    under_way = [Place(str(path)) for path in (state_dir / "attempts").glob("*/")]
    kept = [Place(str(path)) for path in (state_dir / "failed").glob("[!.]*/*/")]
    places = [*(place for place in under_way if read_json(place.outcome) is None), *kept]
    return any(packages_noted(place) == str(root) for place in places)


def is_damaged(root: Path) -> bool:
    said = read_json(str(root / TOLD))
    return said is None or said.get("digest") != digest_of_tree(root)


def digest_of_tree(root: Path) -> str:
    """Of names, contents, links and exec bits. What Python compiles for itself does not count."""
    digest = hashlib.sha256()
    for path in files_below(root):
        about = path.lstat()
        kind = "link" if stat.S_ISLNK(about.st_mode) else "program" if about.st_mode & stat.S_IXUSR else "file"
        digest.update(f"{kind}\0{path.relative_to(root)}\0".encode("utf-8", "surrogateescape"))
        if kind == "link":
            digest.update(os.fsencode(os.readlink(path)) + b"\0")
            continue
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def files_below(root: Path) -> Iterator[Path]:
    for above, directories, names in os.walk(root):
        directories[:] = sorted(name for name in directories if name != CACHED)
        links = [name for name in directories if os.path.islink(f"{above}/{name}")]
        yield from (Path(above, name) for name in sorted([*names, *links]) if not (above == str(root) and name == TOLD))


def bytes_of(root: Path) -> int:
    return sum(os.lstat(f"{above}/{name}").st_size for above, _, names in os.walk(root) for name in names)


def set_writable(root: Path, *, writable: bool) -> None:
    for above, _, names in os.walk(root, topdown=writable):
        for path in (above, *[f"{above}/{name}" for name in names]):
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(path, mode | stat.S_IWUSR if writable else mode & ~WRITABLE)


def remove(root: Path) -> None:
    """Its word that it is whole goes first."""
    if root.is_dir():
        os.chmod(root, 0o700)
        (root / TOLD).unlink(missing_ok=True)
        set_writable(root, writable=True)
        shutil.rmtree(root)
