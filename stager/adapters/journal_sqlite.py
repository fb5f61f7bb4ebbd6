"""The Journal port on SQLite: batches of events and the commands they led to, durable when `append` returns.

May know: the classes of events and commands, msgspec, sqlite3. One rule: one transaction a batch (WAL, synchronous=FULL), each with
the version of the code that wrote it and a checksum; values are stored by the names of their classes and fields.

Beside the batches lies at most one snapshot. It is for the very code that wrote it (its version, and the shape of the classes in it): any
other starts from the batches, which are all still there. It is encoded at once, and packed and stored by a thread of its own: only the
encoding holds up the caller, and a batch that comes meanwhile waits no longer than the storing takes.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import msgspec

from stager.adapters.database_file import unusable
from stager.adapters.journal_names import give_present_names
from stager.model.errors import Corrupt, Refused
from stager.ports import Batch, Snapshot
from stager.scheduler.commands import Command
from stager.scheduler.events import Event

log = logging.getLogger(__name__)
FORMAT = 4
PACK_OVER_BYTES = 4096
ADVICE = "restore the file from a backup, or move it away to start anew (finals at the origins are not touched)"
SNAPSHOT_TABLE = """
CREATE TABLE snapshot (
    only INTEGER PRIMARY KEY CHECK (only = 1), seq INTEGER NOT NULL, version TEXT NOT NULL, shape INTEGER NOT NULL,
    checksum INTEGER NOT NULL, body BLOB NOT NULL
)
"""
SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY, version TEXT NOT NULL, checksum INTEGER NOT NULL, packed INTEGER NOT NULL, body BLOB NOT NULL
);
{SNAPSHOT_TABLE};
"""

# From each older format to the next: statements run in one transaction, after a copy of the file was made.
UPGRADES: dict[int, Callable[[sqlite3.Connection], object]] = {
    1: lambda db: db.execute(SNAPSHOT_TABLE),
    2: give_present_names,
    3: give_present_names,
}


class Codec:
    """Values of a closed set of dataclasses to bytes and back, by the name of the class."""

    def __init__(self, *unions: UnionType) -> None:
        self.classes = {kind.__name__: kind for union in unions for kind in get_args(union)}
        self.decoders = {name: msgspec.msgpack.Decoder(kind) for name, kind in self.classes.items()}
        self.encoder = msgspec.msgpack.Encoder()
        self.outer = msgspec.msgpack.Decoder(tuple[list[tuple[str, msgspec.Raw]], list[tuple[str, msgspec.Raw]]])

    def encode(self, events: Sequence[Event], commands: Sequence[Command]) -> bytes:
        return self.encoder.encode(([(type(e).__name__, e) for e in events], [(type(c).__name__, c) for c in commands]))

    def decode(self, body: bytes) -> tuple[list[Any], list[Any]]:
        events, commands = self.outer.decode(body)
        return [self._value(name, raw) for name, raw in events], [self._value(name, raw) for name, raw in commands]

    def _value(self, name: str, raw: msgspec.Raw) -> Any:
        decoder = self.decoders.get(name)
        if decoder is None:
            raise Refused(f"the journal holds a {name!r}, which this version of stager does not know; use the newer version that wrote it")
        return decoder.decode(raw)


class SqliteJournal:
    """One writer: whoever holds the lock of the state directory. Opens or makes the file."""

    def __init__(self, path: Path, version: str) -> None:
        """Raises Refused for a newer format, Corrupt for what is no such file, Transient for what cannot be used just now."""
        self.path, self.version = path, version
        self.codec = Codec(Event, Command)
        self.writing = threading.Lock()
        self.storing: threading.Thread | None = None
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            path.chmod(0o600)
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=FULL")
            if not self._has_schema():
                self.db.executescript(f"BEGIN; {SCHEMA} INSERT INTO meta VALUES ('format', '{FORMAT}'); COMMIT;")
            self._check_format()
            self.next_seq: int = self.db.execute("SELECT coalesce(max(seq), 0) + 1 FROM batches").fetchone()[0]
        except sqlite3.DatabaseError as problem:
            self.db.close()
            raise unusable(problem, path, "the journal", "journal", ADVICE) from problem
        except BaseException:
            self.db.close()
            raise

    def _has_schema(self) -> bool:
        return self.db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is not None

    def _check_format(self) -> None:
        found = int(self.db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()[0])
        if found > FORMAT:
            text = f"the journal {self.path} has format {found} and this stager ({self.version}) reads up to {FORMAT}"
            raise Refused(f"{text}; use the version that wrote it or another state directory", code="journal_newer")
        if found < FORMAT:
            self._upgrade(found)

    def _upgrade(self, found: int) -> None:
        backup = self.path.with_suffix(f".format{found}.backup")
        target = sqlite3.connect(backup)
        backup.chmod(0o600)
        self.db.backup(target)
        target.close()
        self.db.execute("BEGIN IMMEDIATE")
        for step in range(found, FORMAT):
            UPGRADES[step](self.db)
        self.db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(FORMAT),))
        self.db.execute("COMMIT")

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> int:
        body = self.codec.encode(events, commands)
        packed = len(body) > PACK_OVER_BYTES
        stored = zlib.compress(body, 1) if packed else body
        # Outside a transaction of our own a single INSERT is one: it is on disk when execute returns.
        row = (self.next_seq, self.version, zlib.crc32(stored), int(packed), stored)
        with self.writing:
            self.db.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?)", row)
        self.next_seq += 1
        return self.next_seq - 1

    def batches(self, after: int = 0) -> Iterable[Batch]:
        return self._batches(self.db, after)

    def batch(self, number: int) -> Batch:
        row = self.db.execute("SELECT * FROM batches WHERE seq = ?", (number,)).fetchone()
        if row is None:
            raise KeyError(number)
        return self._batch(*row)

    def read_beside(self) -> Iterator[Batch]:
        """As `batches`, from any thread, while the writer goes on."""
        db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            yield from self._batches(db, 0)
        finally:
            db.close()

    def _batches(self, db: sqlite3.Connection, after: int) -> Iterator[Batch]:
        try:
            # After it was cleared the numbers go on: where all that is there came later, none before the first of it is missed.
            reaches_back = db.execute("SELECT 1 FROM batches WHERE seq <= ? LIMIT 1", (after,)).fetchone() is not None
            due = after + 1 if reaches_back else None
            for row in db.execute("SELECT * FROM batches WHERE seq > ? ORDER BY seq", (after,)):
                if due is not None and row[0] != due:
                    raise Corrupt(f"batch {due} of the journal {self.path} is missing; {ADVICE}", code="batch_missing")
                due = row[0] + 1
                yield self._batch(*row)
        except sqlite3.DatabaseError as problem:
            raise unusable(problem, self.path, "the journal", "journal", ADVICE) from problem

    def _batch(self, seq: int, version: str, checksum: int, packed: int, stored: bytes) -> Batch:
        if zlib.crc32(stored) != checksum:
            raise Corrupt(f"batch {seq} of the journal {self.path} is damaged; {ADVICE}", code="checksum_mismatch")
        return Batch(seq, version, *self.codec.decode(zlib.decompress(stored) if packed else stored))

    def snapshot(self, parts: Mapping[str, object]) -> None:
        body = self.codec.encoder.encode(parts)
        shape = shape_of({name: type(part) for name, part in parts.items()})
        self._end_storing()
        self.storing = threading.Thread(target=self._store, args=(self.next_seq - 1, shape, body), name="snapshot")
        self.storing.start()

    def _store(self, seq: int, shape: int, body: bytes) -> None:
        stored = zlib.compress(body, 1)
        row = (seq, self.version, shape, zlib.crc32(stored), stored)
        try:
            with self.writing:
                self.db.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?, ?, ?, ?)", row)
        except sqlite3.Error as problem:
            log.warning("no snapshot of the journal %s could be stored: %s", self.path, problem)

    def _end_storing(self) -> None:
        if self.storing is not None:
            self.storing.join()
            self.storing = None

    def newest_snapshot(self, kinds: Mapping[str, type]) -> Snapshot | None:
        self._end_storing()
        try:
            row = self.db.execute("SELECT seq, version, shape, checksum, body FROM snapshot").fetchone()
        except sqlite3.DatabaseError as problem:
            self._tell_unused(f"it cannot be read ({problem})")
            return None
        if row is None:
            return None
        seq, version, shape, checksum, stored = row
        why = self._why_unused(seq, version, shape_of(kinds) == shape, zlib.crc32(stored) == checksum)
        if why is not None:
            self._tell_unused(why)
            return None
        raw = msgspec.msgpack.decode(zlib.decompress(stored), type=dict[str, msgspec.Raw])
        return Snapshot(seq, {name: msgspec.msgpack.decode(raw[name], type=kind) for name, kind in kinds.items()})

    def _why_unused(self, seq: int, version: str, is_like_ours: bool, is_whole: bool) -> str | None:
        """None: nothing is wrong with it."""
        if version != self.version:
            return f"stager {version} wrote it, and this is {self.version}"
        if not is_like_ours:
            return f"other code than this {self.version} wrote it"
        if not is_whole:
            return "it is damaged"
        if seq >= self.next_seq:
            return f"it is of batch {seq}, and the last one is {self.next_seq - 1}"
        return None

    def _tell_unused(self, why: str) -> None:
        log.warning("the snapshot in the journal %s is not used: %s; all batches are replayed", self.path, why)

    def clear(self) -> None:
        """Forgets everything; only for a journal whose runs are all removed."""
        self._end_storing()
        self.db.execute("DELETE FROM snapshot")
        self.db.execute("DELETE FROM batches")
        self.db.execute("VACUUM")

    def close(self) -> None:
        self._end_storing()
        self.db.close()


def shape_of(kinds: Mapping[str, type]) -> int:
    """Differs when a class of the parts, or of anything in them, has other fields: what such code wrote may mean something else."""
    return shape_of_each(tuple((name, kinds[name]) for name in sorted(kinds)))


@cache
def shape_of_each(named: tuple[tuple[str, type], ...]) -> int:
    """Found once: it takes a few hundredths of a second, in which the scheduler stands still at each snapshot."""
    names = [name for name, _ in named]
    return zlib.crc32(repr((names, msgspec.inspect.multi_type_info(kind for _, kind in named))).encode())
