"""Files: where they come from, where they go, what they are. A file is known by its logical name (lfn) within a workflow.

One rule: a file is external (has sources) or produced (has a producer), never both; final is a flag: it has a destination.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from stager.model.acyclic import acyclic, written_once


@written_once
class FileKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"


# By a name of its own: looked up in its class it takes ten times as long (Python 3.11), and a plan asks for it of every file.
DIRECTORY: Final = FileKind.DIRECTORY


@written_once
class OnExists(StrEnum):
    """A destination that holds other content already. The same content is always adopted."""

    FAIL = "fail"
    REPLACE = "replace"


@acyclic
@dataclass(frozen=True, slots=True)
class Location:
    """A path below an origin's base: relative, `/`-separated, no `..`."""

    origin: str
    path: str


@acyclic
@dataclass(frozen=True, slots=True)
class Source:
    """One place an external file can be had from; smaller priority first. Token and size are what the listing saw."""

    location: Location
    size_bytes: int | None = None
    token: str | None = None
    site: str = ""
    priority: int = 0
    settled: bool = True


@acyclic
@dataclass(frozen=True, slots=True)
class Destination:
    location: Location
    on_exists: OnExists = OnExists.FAIL


@acyclic
@dataclass(frozen=True, slots=True)
class File:
    """`size_bytes` is measured for an external file, a declared estimate for a produced one; None: nobody said."""

    lfn: str
    kind: FileKind = FileKind.FILE
    size_bytes: int | None = None
    sources: tuple[Source, ...] = ()
    destination: Destination | None = None
    executable: bool = False
    sha256: str | None = None

    @property
    def is_external(self) -> bool:
        return bool(self.sources)

    @property
    def is_final(self) -> bool:
        return self.destination is not None
