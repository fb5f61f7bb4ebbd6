"""The directory of one environment: what makes it whole, and what of it may not change.

May know: one directory. One rule: it counts as there only if it was made to its end.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from stager.worker import kept_directory
from stager.worker.place import TOLD, read_json
from stager.worker.removal import remove_tree

DIRECTORY = "environments"
CACHED = "__pycache__"
WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def is_whole(root: Path) -> bool:
    return kept_directory.is_whole(root, TOLD)


def is_changed(root: Path) -> bool:
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


def make_read_only(root: Path) -> None:
    for above, _, names in os.walk(root, topdown=False):
        for path in (above, *[f"{above}/{name}" for name in names]):
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(path, mode & ~WRITABLE)


def remove(root: Path) -> None:
    """Its word that it is whole goes first."""
    if root.is_dir():
        os.chmod(root, 0o700)
        (root / TOLD).unlink(missing_ok=True)
        remove_tree(root)
