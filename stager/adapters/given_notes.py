"""Notes of a scheduler on which host each attempt was given to, for whoever comes after it.

May know: files of the state directory. One rule: a note is there before the attempt is given away.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container
from pathlib import Path
from typing import Any

from stager.worker.place import publish_json, read_json


class GivenNotes:
    """`directory`: has a file for each attempt that was given to a host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, attempt: str) -> dict[str, Any] | None:
        return read_json(str(self._note(attempt)))

    def write(self, attempt: str, said: dict[str, Any]) -> None:
        self.directory.mkdir(mode=0o700, exist_ok=True)
        publish_json(str(self._note(attempt)), said)

    def drop(self, attempts: Collection[str]) -> None:
        for attempt in attempts:
            self._note(attempt).unlink(missing_ok=True)

    def drop_others(self, outstanding: Container[str]) -> None:
        """Of attempts that are over."""
        if self.directory.is_dir():
            noted = [name.removesuffix(".json") for name in os.listdir(self.directory)]
            self.drop([attempt for attempt in noted if attempt not in outstanding])

    def _note(self, attempt: str) -> Path:
        return self.directory / f"{attempt}.json"
