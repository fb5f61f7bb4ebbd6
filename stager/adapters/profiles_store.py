"""The measurements of attempts, kept per job type, and the profiles that follow from them. SQLite beside the journal.

May know: the model, sqlite3. One rule: what was not seen is NULL, and the file's format is in it: an older one is upgraded after a copy
was made, a newer one is refused by name.
"""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from stager.adapters import moves, overheads
from stager.adapters.database_file import unusable
from stager.adapters.run_records import workflows_in
from stager.adapters.transaction import transaction
from stager.model.errors import Refused
from stager.model.ids import digest_of
from stager.model.profile import Profile, Profiles
from stager.model.profiling import FileGroup, Kind, Sample, Side, profile_of

log = logging.getLogger(__name__)
FORMAT = 3
# The records of runs in the same state directory.
RECORDS_NAME = "runs.sqlite"
# Of each job type and kind of sample: a run older than this many weighs about a hundredth, and fifty attempts tell of one.
KEPT_RUNS = 20
KEPT_PER_RUN = 50
PRUNE_EVERY = 200
# Written together: a transaction each would cost a short job more than its place in the journal does.
WRITE_TOGETHER = 100
# Of those that could not be written: more are forgotten.
WAITING_MAX = 10_000
# How long a write waits for another program's, an import for instance: the scheduler stands still meanwhile.
BUSY_S = 1.0
NUMBERS = (
    "wall_s",
    "cpu_s",
    "memory_peak_bytes",
    "input_bytes",
    "input_files",
    "read_bytes",
    "reread_bytes",
    "touched_bytes",
    "written_bytes",
    "output_bytes",
    "output_files",
)
COLUMNS = ("store", "attempt", "job_type", "run", "kind", "at", *NUMBERS)
SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE samples (
    store TEXT NOT NULL, attempt TEXT NOT NULL, job_type TEXT NOT NULL, run TEXT NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL,
    {", ".join(f"{name} REAL" for name in NUMBERS)},
    files TEXT NOT NULL, draw TEXT NOT NULL, also TEXT NOT NULL DEFAULT '', PRIMARY KEY (store, attempt)
) WITHOUT ROWID;
CREATE INDEX samples_by_type ON samples (job_type, kind, run);
"""
INSERT = f"INSERT OR IGNORE INTO samples ({', '.join(COLUMNS)}, files, draw, also) VALUES ({', '.join('?' * (len(COLUMNS) + 3))})"
# Format 1 knew neither the run nor single files: what it holds counts as one run, the oldest.
FROM_FORMAT_1 = """
INSERT INTO samples SELECT ?1, attempt, job_type, '', 'run', at, wall_s, cpu_s, memory_peak_bytes, input_bytes, NULL, read_bytes, NULL,
    NULL, written_bytes, output_bytes, NULL, '[]', attempt, '' FROM measures;
"""
# In format 2 a type was a name, whoever's it was. Of a run that is known, its samples are its workflow's from now on; whether the type was
# meant to be shared nobody knows any more, so they speak for that too.
FROM_FORMAT_2 = "ALTER TABLE samples ADD COLUMN also TEXT NOT NULL DEFAULT ''"
OWN_TYPE = "UPDATE samples SET also = job_type, job_type = ?1 || '/' || job_type WHERE store = ?2 AND run = ?3 AND kind = 'run'"


ADVICE = "move the file away to begin anew: plans then guess what was measured"


class ProfilesStore:
    """Losing the last samples harms nobody, so it is not synchronous, and some wait in memory for `write`."""

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        """Raises Refused for a newer format, Corrupt for what is no such file, Transient for what cannot be used just now."""
        self.path = path
        self.db = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
        try:
            path.chmod(0o600)
            found = format_of(self.db, path)
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=OFF")
            if 0 < found < FORMAT:
                back_up(self.db, path.with_suffix(f".format{found}.backup"))
            if found < FORMAT:
                bring_up(self.db, workflows_beside(path))
            overheads.make(self.db)
            moves.make(self.db)
        except sqlite3.DatabaseError as problem:
            self.db.close()
            raise unusable(problem, path, "the profiles", "profiles", ADVICE) from problem
        except BaseException:
            self.db.close()
            raise
        self.id = store_id(self.db)
        self.added: dict[tuple[str, str], int] = {}
        self.waiting: list[Sample] = []
        self.overheads: list[overheads.Seen] = []
        self.moves: list[moves.Seen] = []
        self.moves_added = 0
        self.write_at = WRITE_TOGETHER

    def add(self, samples: Iterable[Sample]) -> None:
        self.waiting += samples
        if len(self.waiting) >= self.write_at:
            self.try_to(self.write)

    def add_overheads(self, seen: Iterable[overheads.Seen]) -> None:
        """Written with the samples of the same attempts."""
        self.overheads += seen

    def add_moves(self, seen: Iterable[moves.Seen]) -> None:
        """Written with the samples, or when there are as many of them as of those."""
        self.moves += seen
        if len(self.moves) >= self.write_at:
            self.try_to(self.write)

    def try_to(self, write: Callable[[], None]) -> None:
        """A scheduler does not end because another program writes just now, or the disk is full: what could not be written waits."""
        try:
            write()
        except sqlite3.OperationalError as problem:
            del self.waiting[:-WAITING_MAX]
            del self.overheads[: -overheads.KEPT]
            del self.moves[:-WAITING_MAX]
            # Not again with every job that ends: each try may wait.
            self.write_at = max(len(self.waiting), len(self.moves)) + WRITE_TOGETHER
            log.warning("the profiles %s cannot be written now (%s); %d samples wait", self.path, problem, len(self.waiting))

    def write(self) -> None:
        """So that readers see all that was added. The same sample again changes nothing. Raises sqlite3.OperationalError."""
        if not self.waiting and not self.overheads and not self.moves:
            return
        with transaction(self.db):
            overheads.write(self.db, self.overheads)
            moves.write(self.db, self.moves)
            moves_added = self.moves_added + len(self.moves)
            if moves_added >= moves.PRUNE_EVERY:
                moves.prune(self.db)
                moves_added = 0
            self.db.executemany(INSERT, map(row_of, self.waiting))
            added = dict(self.added)
            for sample in self.waiting:
                key = (sample.job_type, sample.kind.value)
                added[key] = added.get(key, 0) + 1
            due = [key for key, count in added.items() if count >= PRUNE_EVERY]
            for key in due:
                self._prune(*key)
        self.added = {key: count for key, count in added.items() if key not in due}
        self.waiting, self.overheads, self.moves, self.write_at = [], [], [], WRITE_TOGETHER
        self.moves_added = moves_added

    def _prune(self, job_type: str, kind: str) -> None:
        """The newest runs stay, and of each the same attempts, drawn by their names: those that ended last are not like the rest."""
        runs = self.db.execute(
            "SELECT store, run, count(*) FROM samples WHERE job_type = ? AND kind = ? GROUP BY store, run "
            "ORDER BY max(at) DESC, store, run",
            (job_type, kind),
        ).fetchall()
        for place, (store, run, count) in enumerate(runs):
            kept = 0 if place >= KEPT_RUNS else KEPT_PER_RUN
            if count > kept:
                self.db.execute(
                    "DELETE FROM samples WHERE (store, attempt) IN (SELECT store, attempt FROM samples "
                    "WHERE job_type = ? AND kind = ? AND store = ? AND run = ? ORDER BY draw LIMIT -1 OFFSET ?)",
                    (job_type, kind, store, run, kept),
                )

    def take_in(self, samples: Iterable[Sample]) -> int:
        """Samples from elsewhere. Returns how many more are kept now: what is there already, and what would be pruned, is not one."""
        self.prune()
        before = self.count()
        self.waiting += samples
        self.prune()
        return self.count() - before

    def count(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM samples").fetchone()[0])

    def prune(self) -> None:
        self.write()
        with transaction(self.db):
            for key in self.added:
                self._prune(*key)
            if self.moves_added:
                moves.prune(self.db)
        self.added, self.moves_added = {}, 0

    def close(self) -> None:
        """Many short lives of a scheduler leave no more than one long one does."""
        self.try_to(self.prune)
        self.db.close()


class StoredProfiles(Mapping[str, Profile]):
    """Profiles of the samples that were there when it was read; each is made when somebody asks for it."""

    def __init__(self, samples: Iterable[Sample] = (), own_store: str = "") -> None:
        self.own_store = own_store
        self.by_type: dict[str, list[Sample]] = {}
        for sample in samples:
            for job_type in (sample.job_type, sample.also) if sample.also else (sample.job_type,):
                self.by_type.setdefault(job_type, []).append(sample)
        self.made: dict[str, Profile] = {}

    def __getitem__(self, job_type: str) -> Profile:
        if job_type not in self.made:
            self.made[job_type] = profile_of(job_type, self.by_type[job_type], self.own_store)
        return self.made[job_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_type)

    def __len__(self) -> int:
        return len(self.by_type)


def read_samples(path: Path) -> tuple[list[Sample], str]:
    """Without a scheduler and without changing anything: a file of an older format is upgraded in memory only. (samples, the id of the
    store); nothing measured yet is empty.
    """
    if not path.exists():
        return [], ""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        found = format_of(db, path)
        if found < FORMAT:
            memory = sqlite3.connect(":memory:", isolation_level=None)
            db.backup(memory)
            db.close()
            db = memory
            bring_up(db, workflows_beside(path))
        return list(samples_in(db)), store_id(db)
    finally:
        db.close()


def read_profiles(path: Path) -> Profiles:
    return StoredProfiles(*read_samples(path))


def needs_upgrade(path: Path) -> bool:
    """Another program may use the file as it is: who upgrades it must be alone."""
    if not path.exists():
        return False
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        return 0 < format_of(db, path) < FORMAT
    finally:
        db.close()


def format_of(db: sqlite3.Connection, path: Path) -> int:
    """0: nothing in it yet. Format 1 had no number."""
    try:
        found = int(db.execute("PRAGMA user_version").fetchone()[0])
        if found == 0 and db.execute("SELECT 1 FROM sqlite_master WHERE name = 'measures'").fetchone():
            return 1
    except sqlite3.DatabaseError as problem:
        raise unusable(problem, path, "the profiles", "profiles", ADVICE) from problem
    if found > FORMAT:
        text = f"the profiles {path} have format {found} and this stager reads up to {FORMAT}"
        text += "; use the version that wrote them, or move the file away to begin anew"
        raise Refused(text, code="profiles_newer", subject=str(path))
    return found


def back_up(db: sqlite3.Connection, backup: Path) -> None:
    target = sqlite3.connect(backup)
    backup.chmod(0o600)
    db.backup(target)
    target.close()


def workflows_beside(path: Path) -> dict[str, str]:
    """By run, as the records of runs in the same directory tell; those whose types a workflow's file names itself (`readers/native_jobs`)
    and others alike.
    """
    return workflows_in(path.with_name(RECORDS_NAME))


def bring_up(db: sqlite3.Connection, workflows: Mapping[str, str]) -> None:
    """To FORMAT, in one transaction; whoever comes second finds it done."""
    db.execute("BEGIN IMMEDIATE")
    if db.execute("PRAGMA user_version").fetchone()[0] == 2:
        db.execute(FROM_FORMAT_2)
        own = store_id(db)
        db.executemany(OWN_TYPE, [(workflow, own, run) for run, workflow in workflows.items()])
        db.execute(f"PRAGMA user_version = {FORMAT}")
    if db.execute("PRAGMA user_version").fetchone()[0] == 0:
        for statement in SCHEMA.split(";\n"):
            db.execute(statement)
        db.execute("INSERT INTO meta VALUES ('store', ?)", (secrets.token_hex(8),))
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'measures'").fetchone():
            db.execute(FROM_FORMAT_1, (store_id(db),))
            db.execute("DROP TABLE measures")
        db.execute(f"PRAGMA user_version = {FORMAT}")
    db.execute("COMMIT")


def store_id(db: sqlite3.Connection) -> str:
    return str(db.execute("SELECT value FROM meta WHERE key = 'store'").fetchone()[0])


def row_of(sample: Sample) -> tuple[object, ...]:
    values = [getattr(sample, name) for name in COLUMNS]
    files = json.dumps([[getattr(group, name) for name in GROUP_KEYS] for group in sample.files]) if sample.files else "[]"
    return (*values, files, digest_of(sample.store, sample.attempt), sample.also)


def samples_in(db: sqlite3.Connection) -> Iterator[Sample]:
    for row in db.execute(f"SELECT {', '.join(COLUMNS)}, also, files FROM samples ORDER BY job_type, at, store, attempt"):
        said: dict[str, Any] = dict(zip((*COLUMNS, "also"), row, strict=False))
        said |= {name: whole_bytes(name, said[name]) for name in NUMBERS}
        said["kind"] = Kind(said["kind"])
        yield Sample(**said, files=tuple(group_of(entry) for entry in json.loads(row[-1])))


GROUP_KEYS = tuple(entry.name for entry in fields(FileGroup))


def group_of(entry: list[object]) -> FileGroup:
    said: dict[str, Any] = dict(zip(GROUP_KEYS, entry, strict=True))
    said["side"] = Side(str(said["side"]))
    return FileGroup(**said)


def whole_bytes(name: str, value: float | None) -> float | int | None:
    """Seconds are the only numbers with a fraction."""
    return value if value is None or name.endswith("_s") else int(value)
