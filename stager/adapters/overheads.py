"""The overheads of attempts, in a table beside the samples: it is of this machine, not of a job type.

May know: sqlite3, the model. One rule: the newest are kept; a stager that does not know the tables leaves them alone, so the format stays
the same. How many files an attempt made, how many bytes passed the disk, and how many of these were its own, stand in tables of their own,
which came later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from stager.model.overhead import SeenOverhead

# (attempt, when it ended, what it took).
Seen = tuple[str, float, SeenOverhead]
# More than most runs have: the last attempts of a run are not like its first, which share the machine with all that comes in.
KEPT = 10_000
TABLES = (
    "CREATE TABLE IF NOT EXISTS overheads (attempt TEXT PRIMARY KEY, at REAL NOT NULL, seconds REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS overhead_files (attempt TEXT PRIMARY KEY, files INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS overhead_bytes (attempt TEXT PRIMARY KEY, bytes INTEGER NOT NULL, beyond_s REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS overhead_own (attempt TEXT PRIMARY KEY, own_bytes INTEGER NOT NULL) WITHOUT ROWID",
)
LATER = ("overhead_files", "overhead_bytes", "overhead_own")
PRUNE = (
    "DELETE FROM overheads WHERE attempt NOT IN (SELECT attempt FROM overheads ORDER BY at DESC, attempt LIMIT ?)",
    *(f"DELETE FROM {table} WHERE attempt NOT IN (SELECT attempt FROM overheads)" for table in LATER),
)
# What each table that came later tells, and what is read where it is not there.
COLUMNS = (
    ("overhead_files", "coalesce(files, 0)", "0"),
    ("overhead_bytes", "coalesce(bytes, 0)", "0"),
    ("overhead_bytes", "beyond_s", "NULL"),
    ("overhead_own", "own_bytes", "NULL"),
)


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
    own = [(attempt, each.own_bytes) for attempt, _, each in seen if each.own_bytes is not None]
    db.executemany("INSERT OR IGNORE INTO overhead_own VALUES (?, ?)", own)
    # A tenth more at a time, since that looks at all of them.
    if db.execute("SELECT count(*) FROM overheads").fetchone()[0] > KEPT + KEPT // 10:
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
        return [SeenOverhead(*row) for row in db.execute(read_of(tables))]
    finally:
        db.close()


def read_of(tables: set[str]) -> str:
    """By what is there: a store may be of an older stager."""
    columns = ", ".join(said if table in tables else unsaid for table, said, unsaid in COLUMNS)
    joins = " ".join(f"LEFT JOIN {table} USING (attempt)" for table in LATER if table in tables)
    return f"SELECT seconds, {columns} FROM overheads {joins} ORDER BY attempt"
