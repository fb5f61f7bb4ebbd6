"""The box of notices that are owed: what was made of the journal and not delivered yet, and how far in the journal that is.

May know: sqlite3. One rule: notices, the number of the batch that they were made of, and what the next batch has to know are written in
one transaction, so that nothing is lost and nothing made twice, whatever is killed; what is delivered is taken out afterwards.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from stager.model.errors import Refused

FORMAT = 1
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE owed (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, target TEXT NOT NULL, made_at REAL NOT NULL, body BLOB NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, problem TEXT NOT NULL DEFAULT '', given_up INTEGER NOT NULL DEFAULT 0, UNIQUE (id, target)
);
"""
PROBLEM_MAX = 300


@dataclass(frozen=True, slots=True)
class Owed:
    """`given_up`: it is not tried again. `problem`: of the last try."""

    number: int
    id: str
    target: str
    made_at: float
    body: bytes
    tries: int
    problem: str
    given_up: bool


COLUMNS = "number, id, target, made_at, body, tries, problem, given_up"


class NoticeBox:
    """One writer: the scheduler. Its threads share it. Closed, it keeps nothing and gives nothing."""

    def __init__(self, path: Path) -> None:
        """Raises Refused for a file of a newer version."""
        self.lock = threading.Lock()
        self.db: sqlite3.Connection | None = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        if self.db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is None:
            # Tells the notices of this state directory from those of others, whose journals have the same numbers.
            made = secrets.token_hex(4)
            self.db.executescript(f"BEGIN; {SCHEMA} INSERT INTO meta VALUES ('format', {FORMAT}), ('source', '{made}'); COMMIT;")
        found = self._meta("format")
        if not isinstance(found, int) or found > FORMAT:
            self.db.close()
            raise Refused(f"{path} has format {found!r}, and this stager reads up to {FORMAT}; use the version that wrote it")
        source = self._meta("source")
        self.source = source if isinstance(source, str) else ""

    def _meta(self, key: str) -> str | bytes | int | None:
        assert self.db is not None
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def place(self) -> tuple[int, bytes] | None:
        """The batch up to which notices were made, and what was kept for the next. None: of nothing, or nobody was to be told since."""
        cursor, kept = self._meta("cursor"), self._meta("kept")
        return None if cursor is None or not isinstance(kept, bytes) else (int(cursor), kept)

    def add(self, notices: Iterable[tuple[str, str, float, bytes]], cursor: int, kept: bytes) -> None:
        """(id, target, when it was made, body) of each. On disk when it returns."""
        with self.lock:
            if self.db is None:
                return
            with self.db:
                self.db.execute("BEGIN IMMEDIATE")
                self.db.executemany("INSERT OR IGNORE INTO owed (id, target, made_at, body) VALUES (?, ?, ?, ?)", notices)
                self.db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", (("cursor", cursor), ("kept", kept)))

    def leave_off(self) -> None:
        """Nobody is to be told of what comes from now on."""
        with self.lock:
            if self.db is not None:
                self.db.execute("DELETE FROM meta WHERE key IN ('cursor', 'kept')")

    def keep_only(self, targets: Sequence[str], mark: str = "") -> int:
        """Takes out what is owed to others, who are told of nothing any more; those whose names begin with `mark` stay. How many."""
        with self.lock:
            if self.db is None:
                return 0
            marks = ", ".join("?" * len(targets))
            query = f"DELETE FROM owed WHERE target NOT IN ({marks}) AND NOT (? AND substr(target, 1, 1) = ?)"
            return self.db.execute(query, (*targets, mark != "", mark)).rowcount

    def forget_given_up(self, before: float) -> None:
        """Those that were made before that time."""
        with self.lock:
            if self.db is not None:
                self.db.execute("DELETE FROM owed WHERE given_up AND made_at < ?", (before,))

    def first(self, target: str) -> Owed | None:
        with self.lock:
            if self.db is None:
                return None
            query = f"SELECT {COLUMNS} FROM owed WHERE target = ? AND NOT given_up ORDER BY number LIMIT 1"
            return owed_of(self.db.execute(query, (target,)).fetchone())

    def owed_to(self, mark: str) -> list[str]:
        """The targets whose names begin with it, to whom something is owed, the oldest first."""
        with self.lock:
            if self.db is None:
                return []
            query = "SELECT target FROM owed WHERE substr(target, 1, 1) = ? AND NOT given_up GROUP BY target ORDER BY min(number)"
            return [row[0] for row in self.db.execute(query, (mark,))]

    def delivered(self, owed: Owed) -> None:
        with self.lock:
            if self.db is not None:
                self.db.execute("DELETE FROM owed WHERE number = ?", (owed.number,))

    def failed(self, owed: Owed, problem: str, *, given_up: bool) -> None:
        with self.lock:
            if self.db is not None:
                values = (problem[:PROBLEM_MAX], given_up, owed.number)
                self.db.execute("UPDATE owed SET tries = tries + 1, problem = ?, given_up = ? WHERE number = ?", values)

    def close(self) -> None:
        with self.lock:
            if self.db is not None:
                self.db.close()
            self.db = None


def owed_of(row: tuple[int, str, str, float, bytes, int, str, int] | None) -> Owed | None:
    return None if row is None else Owed(*row[:7], given_up=bool(row[7]))


def owed_in(path: Path) -> list[Owed]:
    """All, the oldest first, also beside a scheduler that goes on. Empty where there is no box."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return [owed for row in db.execute(f"SELECT {COLUMNS} FROM owed ORDER BY number") if (owed := owed_of(row)) is not None]
