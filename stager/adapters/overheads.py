"""What attempts took beside their programs, in a table beside the samples: it is of this machine, not of a job type.

May know: sqlite3. One rule: the newest are kept; a stager that does not know the table leaves it alone, so the format stays the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

# (attempt, when it ended, seconds).
Seen = tuple[str, float, float]
KEPT = 500
TABLE = "CREATE TABLE IF NOT EXISTS overheads (attempt TEXT PRIMARY KEY, at REAL NOT NULL, seconds REAL NOT NULL) WITHOUT ROWID"
PRUNE = "DELETE FROM overheads WHERE attempt NOT IN (SELECT attempt FROM overheads ORDER BY at DESC, attempt LIMIT ?)"


def make(db: sqlite3.Connection) -> None:
    db.execute(TABLE)


def write(db: sqlite3.Connection, seen: Iterable[Seen]) -> None:
    """Within the caller's transaction. The same attempt again changes nothing."""
    db.executemany("INSERT OR IGNORE INTO overheads VALUES (?, ?, ?)", seen)
    db.execute(PRUNE, (KEPT,))


def read(path: Path) -> list[float]:
    """Seconds, by attempt, without changing anything. Empty where nothing was measured."""
    if not path.exists():
        return []
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'overheads'").fetchone():
            return []
        return [seconds for (seconds,) in db.execute("SELECT seconds FROM overheads ORDER BY attempt")]
    finally:
        db.close()
