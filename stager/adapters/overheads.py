"""The overheads of attempts, in a table beside the samples: it is of this machine, not of a job type.

May know: sqlite3, the model. One rule: the newest are kept; a stager that does not know the tables leaves them alone, so the format stays
the same. How many files an attempt made, and how many bytes passed the disk, stand in tables of their own, which came later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from stager.model.overhead import SeenOverhead

# (attempt, when it ended, what it took).
Seen = tuple[str, float, SeenOverhead]
# More than most runs have: the last attempts of a run are not like its first.
KEPT = 2_000
TABLES = (
    "CREATE TABLE IF NOT EXISTS overheads (attempt TEXT PRIMARY KEY, at REAL NOT NULL, seconds REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS overhead_files (attempt TEXT PRIMARY KEY, files INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS overhead_bytes (attempt TEXT PRIMARY KEY, bytes INTEGER NOT NULL, beyond_s REAL NOT NULL) WITHOUT ROWID",
)
PRUNE = (
    "DELETE FROM overheads WHERE attempt NOT IN (SELECT attempt FROM overheads ORDER BY at DESC, attempt LIMIT ?)",
    "DELETE FROM overhead_files WHERE attempt NOT IN (SELECT attempt FROM overheads)",
    "DELETE FROM overhead_bytes WHERE attempt NOT IN (SELECT attempt FROM overheads)",
)
READ = "SELECT seconds, 0, 0, NULL FROM overheads ORDER BY attempt"
READ_FILES = "SELECT seconds, coalesce(files, 0), 0, NULL FROM overheads LEFT JOIN overhead_files USING (attempt) ORDER BY attempt"
READ_BYTES = """
SELECT seconds, coalesce(files, 0), coalesce(bytes, 0), beyond_s FROM overheads
LEFT JOIN overhead_files USING (attempt) LEFT JOIN overhead_bytes USING (attempt) ORDER BY attempt
"""


def make(db: sqlite3.Connection) -> None:
    for table in TABLES:
        db.execute(table)


def write(db: sqlite3.Connection, seen: Iterable[Seen]) -> None:
    """Within the caller's transaction. The same attempt again changes nothing."""
    seen = list(seen)
    db.executemany("INSERT OR IGNORE INTO overheads VALUES (?, ?, ?)", [(attempt, at, each.seconds) for attempt, at, each in seen])
    db.executemany("INSERT OR IGNORE INTO overhead_files VALUES (?, ?)", [(attempt, each.files) for attempt, _, each in seen])
    told = [(attempt, each.passed_bytes, each.beyond_s) for attempt, _, each in seen if each.beyond_s is not None]
    db.executemany("INSERT OR IGNORE INTO overhead_bytes VALUES (?, ?, ?)", told)
    db.execute(PRUNE[0], (KEPT,))
    for prune in PRUNE[1:]:
        db.execute(prune)


def read(path: Path) -> list[SeenOverhead]:
    """By attempt, without changing anything. Empty where nothing was measured."""
    if not path.exists():
        return []
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "overheads" not in tables:
            return []
        read = READ_BYTES if "overhead_bytes" in tables else READ_FILES if "overhead_files" in tables else READ
        return [SeenOverhead(*row) for row in db.execute(read)]
    finally:
        db.close()
