"""What transfers told of the links to origins, in a table beside the samples: it is of this machine, not of a job type.

May know: sqlite3, the model. One rule: of each link and direction the newest are kept; which origin it is stands there as a digest, so no
name of a host or a user does. A stager that does not know the table leaves it alone, so the format stays the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from stager.model.link import Move

# (transfer, the digest of its link, the move).
Seen = tuple[str, str, Move]
KEPT = 300
TABLE = (
    "CREATE TABLE IF NOT EXISTS moves (transfer TEXT PRIMARY KEY, link TEXT NOT NULL, run TEXT NOT NULL, is_fetch INTEGER NOT NULL, "
    "begun_at REAL NOT NULL, ended_at REAL NOT NULL, moved_bytes INTEGER NOT NULL, read_back INTEGER NOT NULL) WITHOUT ROWID"
)
PRUNE = (
    "DELETE FROM moves WHERE transfer IN (SELECT transfer FROM (SELECT transfer, row_number() OVER "
    "(PARTITION BY link, is_fetch ORDER BY ended_at DESC, transfer) AS place FROM moves) WHERE place > ?)"
)
READ = "SELECT link, run, is_fetch, begun_at, ended_at, moved_bytes, read_back FROM moves ORDER BY transfer"


def make(db: sqlite3.Connection) -> None:
    db.execute(TABLE)


def write(db: sqlite3.Connection, seen: Iterable[Seen]) -> None:
    """Within the caller's transaction. The same transfer again changes nothing."""
    rows = [
        (transfer, link, move.run, move.is_fetch, move.begun_at, move.ended_at, move.moved_bytes, move.read_back)
        for transfer, link, move in seen
    ]
    if rows:
        db.executemany("INSERT OR IGNORE INTO moves VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        db.execute(PRUNE, (KEPT,))


def read(path: Path) -> dict[str, list[Move]]:
    """By link, without changing anything. Empty where nothing was measured."""
    if not path.exists():
        return {}
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'moves'").fetchone():
            return {}
        found: dict[str, list[Move]] = {}
        for link, run, is_fetch, begun_at, ended_at, moved_bytes, read_back in db.execute(READ):
            found.setdefault(link, []).append(Move(run, bool(is_fetch), begun_at, ended_at, moved_bytes, bool(read_back)))
        return found
    finally:
        db.close()
