"""What attempts measured, kept per job type, and the profiles that follow from it. SQLite beside the journal.

May know: the model, sqlite3. One rule: what was not seen is NULL, and a profile speaks only of what was seen.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stager.model.profile import Profile

KEPT_PER_TYPE = 500
PRUNE_EVERY = 200
# Written together: a transaction each would cost a short job more than its place in the journal does.
WRITE_TOGETHER = 100
SCHEMA = """
CREATE TABLE IF NOT EXISTS measures (
    attempt TEXT PRIMARY KEY, job_type TEXT NOT NULL, at REAL NOT NULL, wall_s REAL, cpu_s REAL, memory_peak_bytes INTEGER,
    input_bytes INTEGER, read_bytes INTEGER, written_bytes INTEGER, output_bytes INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS measures_by_type ON measures (job_type, at);
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One attempt that ended well."""

    attempt: str
    job_type: str
    at: float
    wall_s: float | None
    cpu_s: float | None
    memory_peak_bytes: int | None
    input_bytes: int | None
    read_bytes: int | None
    written_bytes: int | None
    output_bytes: int | None


class ProfilesStore:
    """Losing the last measures harms nobody, so it is not synchronous, and some wait in memory for `write`."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=OFF")
        self.db.executescript(SCHEMA)
        self.added = 0
        self.waiting: list[Measured] = []

    def add(self, measured: Iterable[Measured]) -> None:
        self.waiting += measured
        if len(self.waiting) >= WRITE_TOGETHER:
            self.write()

    def write(self) -> None:
        """So that readers see all that was added."""
        rows = [tuple(getattr(entry, name) for name in Measured.__slots__) for entry in self.waiting]
        self.waiting = []
        if not rows:
            return
        self.db.execute("BEGIN")
        self.db.executemany("INSERT OR REPLACE INTO measures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self.added += len(rows)
        old = self.added >= PRUNE_EVERY
        for job_type in {row[0] for row in self.db.execute("SELECT DISTINCT job_type FROM measures")} if old else ():
            self.added = 0
            self.db.execute(
                "DELETE FROM measures WHERE job_type = ?1 AND attempt NOT IN "
                "(SELECT attempt FROM measures WHERE job_type = ?1 ORDER BY at DESC, attempt LIMIT ?2)",
                (job_type, KEPT_PER_TYPE),
            )
        self.db.execute("COMMIT")

    def profiles(self) -> dict[str, Profile]:
        self.write()
        return profiles_in(self.db)

    def close(self) -> None:
        self.write()
        self.db.close()


def read_profiles(path: Path) -> dict[str, Profile]:
    """Without a scheduler, for planning. Nothing measured yet is an empty mapping."""
    if not path.exists():
        return {}
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return profiles_in(db)
    finally:
        db.close()


def profiles_in(db: sqlite3.Connection) -> dict[str, Profile]:
    seen: dict[str, list[tuple[float | None, ...]]] = {}
    query = "SELECT job_type, wall_s, output_bytes, read_bytes, input_bytes, memory_peak_bytes FROM measures ORDER BY job_type, at"
    for job_type, *values in db.execute(query):
        seen.setdefault(job_type, []).append(tuple(values))
    return {job_type: profile_of(job_type, rows) for job_type, rows in seen.items()}


def profile_of(job_type: str, rows: Sequence[tuple[float | None, ...]]) -> Profile:
    """The middle of times and shares, the 95th of a hundred for what space must be kept for."""
    walls, outputs, peaks = known(rows, 0), known(rows, 1), known(rows, 4)
    shares = sorted(min(1.0, row[2] / row[3]) for row in rows if row[2] is not None and row[3])
    return Profile(
        job_type,
        compute_s=at_share(walls, 0.5),
        output_bytes=whole(at_share(outputs, 0.95)),
        read_fraction=at_share(shares, 0.5),
        memory_peak_bytes=whole(at_share(peaks, 0.95)),
        samples=len(rows),
    )


def known(rows: Sequence[tuple[float | None, ...]], column: int) -> list[float]:
    return sorted(value for row in rows if (value := row[column]) is not None)


def at_share(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of all does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def whole(value: float | None) -> int | None:
    return None if value is None else int(value)
