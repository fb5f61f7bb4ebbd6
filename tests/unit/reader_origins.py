"""File origins for reader tests: really lists and stats, one directory of a temporary tree for each origin.

May know: the OriginAccess port. One rule: file origins are where their URL says; any other kind is the directory of its name below `root`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stager.model.errors import ErrorClass, Fault, InvalidInput
from stager.model.workflow import Origin, OriginKind
from stager.ports import DirectoryListing, LeftOut, OriginEntry, Probe


def why_left_out(base: Path, path: Path) -> str:
    """As the data plane says it."""
    if not path.is_symlink():
        return "" if path.is_file() or path.is_dir() else "special_file"
    if not path.resolve().is_relative_to(base.resolve()):
        return "link_leads_out"
    if path.is_dir():
        return "link_to_directory"
    return "" if path.exists() else "link_leads_nowhere"


class DirectoryAccess:
    """Counts its calls, so that tests can see batching."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stats: list[int] = []
        self.lists: list[str] = []

    def base(self, origin: Origin) -> Path:
        return Path(unquote(urlsplit(origin.url).path)) if origin.kind is OriginKind.FILE else self.root / origin.name

    def stat(self, origin: Origin, paths: Sequence[str]) -> list[OriginEntry | Fault]:
        self.stats.append(len(paths))
        return [self.one(self.base(origin), path) for path in paths]

    def one(self, base: Path, path: str) -> OriginEntry | Fault:
        try:
            seen = os.stat(base / path)
        except OSError:
            return Fault(ErrorClass.INVALID_INPUT, "not_found", f"there is no {path}", path)
        kind = "directory" if (base / path).is_dir() else "file"
        return OriginEntry(path, seen.st_size, f"m={seen.st_mtime_ns};s={seen.st_size}", kind, mtime_ns=seen.st_mtime_ns)

    def list(self, origin: Origin, prefix: str, *, recursive: bool = True, limit: int = 1_000_000) -> DirectoryListing:
        self.lists.append(f"{origin.name}:{prefix}")
        base = self.base(origin)
        found = (base / prefix).rglob("*") if recursive else (base / prefix).glob("*")
        entries, left_out = [], []
        for path in sorted(found, key=str):
            name, why = str(path.relative_to(base)), why_left_out(base, path)
            if why:
                left_out.append(LeftOut(name, why, path.is_dir()))
            elif path.is_file():
                entries.append(self.one(base, name))
        if len(entries) > limit:
            raise InvalidInput(f"more than {limit} files below {prefix!r}")
        return DirectoryListing(entries, left_out)

    def probe(self, origin: Origin, path: str, *, write: bool) -> Probe:
        return Probe(True, True, None, ())
