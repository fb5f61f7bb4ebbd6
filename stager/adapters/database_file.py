"""What it means for a person that an SQLite file cannot be used.

May know: sqlite3, the model's errors. One rule: what may pass is no damage, and nobody should move the file away for it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stager.model.errors import Corrupt, StagerError, Transient

# By SQLite's code of an error, what to do.
PASSES = {
    sqlite3.SQLITE_BUSY: "another program writes there: wait until it has ended",
    sqlite3.SQLITE_LOCKED: "another program writes there: wait until it has ended",
    sqlite3.SQLITE_FULL: "make room on the disk",
    # A full disk says this where it has no room for the file beside it that SQLite maps into memory.
    sqlite3.SQLITE_IOERR: "make room on the disk, or see what else it lacks",
    sqlite3.SQLITE_CANTOPEN: "see that its directory is there and may be written",
    sqlite3.SQLITE_READONLY: "see that it and its directory may be written",
}


def unusable(problem: sqlite3.Error, path: Path, what: str, name: str, advice: str) -> StagerError:
    """`what` with its article and `name` for codes; `advice`: for a file that is damaged."""
    code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in PASSES:
        text = f"{what} {path} cannot be used just now ({problem}); {PASSES[code]}, and try again"
        return Transient(text, code=f"{name}_busy", subject=str(path))
    return Corrupt(f"{what} {path} cannot be used ({problem}); {advice}", code=f"{name}_damaged", subject=str(path))
