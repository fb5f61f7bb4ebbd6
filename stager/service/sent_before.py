"""The directories that came with a tenant's earlier submits, and the finals that were made in them.

May know: where they lie. One rule: nothing outside the tenant's own directories is found, whatever a workflow names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from stager.model.workflow import Origin
from stager.service.sent_places import SENT, TREES

# The newest; what was made before them is made again.
LOOKED_AT = 20


class SentBefore:
    """Of one tenant, as it is when somebody first asks."""

    def __init__(self, state_dir: Path, tenant: str) -> None:
        self.root = state_dir / SENT / tenant
        self.trees = self.root / TREES
        self.listed: list[Path] | None = None

    def holds(self, path: Path) -> bool:
        """One of these directories has it. No path of a workflow has `..` in it."""
        return path.is_relative_to(self.trees)

    def earlier(self, origin: Origin, path: str) -> Iterator[tuple[Origin, Path]]:
        """(the origin of that name, the file) in the directories of earlier runs, the newest first."""
        for tree in self._newest():
            root = tree / origin.name
            found = root / path
            if not found.is_symlink() and found.is_file() and found.resolve().is_relative_to(root.resolve()):
                yield replace(origin, url="file://" + quote(str(root))), found

    def _newest(self) -> list[Path]:
        if self.listed is None:
            self.listed = [tree for _, tree in sorted(self._noted(), reverse=True)[:LOOKED_AT]]
        return self.listed

    def _noted(self) -> Iterator[tuple[float, Path]]:
        """(when, the directory) of each run that has one. They may go meanwhile."""
        for path in (self.root / "runs").glob("[!.]*"):
            with suppress(FileNotFoundError):
                yield path.stat().st_mtime, self.trees / path.read_text()
