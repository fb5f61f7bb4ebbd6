"""The record of a run, which outlives its journal: its name, whose it is, where it came from, how it ended. A small SQLite file beside the
journal.

May know: sqlite3. One rule: the Machine's state is the truth about a run that is not finished; a record says what it was and how it ended.
The file's format is in it: an older one is upgraded after a copy was made, a newer one is refused by name.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stager.adapters.database_file import unusable
from stager.model.errors import Refused

FORMAT = 5
# Whose ledgers are read to know what an earlier run left at a destination.
RUNS_LOOKED_AT = 1000
# Format 1 had no number: nothing but these tables.
TABLES = (
    """CREATE TABLE runs (
    run TEXT PRIMARY KEY, submit_id TEXT NOT NULL UNIQUE, workflow TEXT NOT NULL, source_path TEXT NOT NULL, submitted_at REAL NOT NULL,
    jobs_total INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'active', finished_at REAL, jobs_done INTEGER NOT NULL DEFAULT 0,
    summary TEXT, removed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID""",
    "CREATE TABLE ledgers (run TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)
FROM_FORMAT_1 = (
    "ALTER TABLE runs ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN request_digest TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX runs_by_time ON runs (submitted_at, run)",
    "CREATE INDEX runs_of_tenants ON runs (tenant, submitted_at, run)",
)
# A run has its first key in its own line.
FROM_FORMAT_2 = ("CREATE TABLE keys (submit_id TEXT PRIMARY KEY, run TEXT NOT NULL) WITHOUT ROWID",)
FROM_FORMAT_3 = (
    "ALTER TABLE runs ADD COLUMN part_of TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX runs_of_parts ON runs (tenant, part_of, submitted_at, run) WHERE part_of <> ''",
)
# Words that have changed, in what was written of runs that have ended.
FROM_FORMAT_4 = (
    """UPDATE runs SET summary = replace(replace(replace(summary,
    '"read_in_place_bytes":', '"direct_read_bytes":'), '"finals_overtaken":', '"finals_superseded":'), '"overtaken":', '"superseded":')""",
    "UPDATE ledgers SET body = ledger_with_present_names(body)",
)
# Of what a line of several runs says one word only. A run that has not ended is `active` here, whatever it is just doing.
WORST_FIRST = (
    "active",
    "draining",
    "stopping",
    "cancelling",
    "failed",
    "refused",
    "not_durable",
    "interrupted",
    "cancelled",
    "succeeded",
)
# The runs that are told in one line with a run of the query around it.
BESIDE = "NOT o.removed AND o.tenant = runs.tenant AND o.part_of = runs.part_of AND o.part_of <> ''"
FIRST_OF_ITS_LINE = f"NOT EXISTS (SELECT 1 FROM runs o WHERE {BESIDE} AND (o.submitted_at, o.run) < (runs.submitted_at, runs.run))"
NAMED = "instr(folded({0}.run || char(10) || {0}.workflow || char(10) || {0}.part_of), ?)"
NAMED_IN_ITS_LINE = f"({NAMED.format('runs')} OR EXISTS (SELECT 1 FROM runs o WHERE {BESIDE} AND {NAMED.format('o')}))"
# A bare column beside max() is that of its row.
STATE_OF_ITS_LINE = f"""CASE runs.part_of WHEN '' THEN runs.state ELSE (
    SELECT state FROM (SELECT o.state AS state, max(o.submitted_at) FROM runs o WHERE {BESIDE} GROUP BY o.workflow)
    ORDER BY instr('{" ".join(WORST_FIRST)}', state) LIMIT 1
) END"""
COLUMNS = (
    "run, submit_id, workflow, source_path, submitted_at, jobs_total, state, finished_at, jobs_done, summary, "
    "tenant, request_digest, part_of, removed"
)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """`tenant` empty: submitted over the owner's own socket. `request_digest`: of the request that a REST client may send again. `part_of`:
    what the engine calls that of which this run is a part.
    """

    run: str
    submit_id: str
    workflow: str
    source_path: str
    submitted_at: float
    jobs_total: int
    state: str = "active"
    finished_at: float | None = None
    jobs_done: int = 0
    summary: str | None = None
    tenant: str = ""
    request_digest: str = ""
    part_of: str = ""
    removed: bool = False


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The runs of one tenant that are part of one thing, in one. `runs`: all there are, for each is in the list of parts. All other
    fields are of the newest under each name: one before it was begun anew. `open`: of these, what has not ended; the others are added up.
    """

    runs: int
    states: frozenset[str]
    jobs_total: int
    jobs_done: int
    finished_at: float | None
    open: tuple[RunRecord, ...]


class RunRecords:
    """Used from one thread at a time (callers hold no cursors)."""

    def __init__(self, path: Path) -> None:
        """Raises Refused for a newer format, Corrupt for what is no such file, Transient for what cannot be used just now."""
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # SQLite's own lower() knows the letters of English only.
        self.db.create_function("folded", 1, str.casefold, deterministic=True)
        self.db.create_function("ledger_with_present_names", 1, ledger_with_present_names, deterministic=True)
        try:
            path.chmod(0o600)
            bring_up(self.db, path)
            self.db.execute("PRAGMA journal_mode=WAL")
        except sqlite3.DatabaseError as problem:
            self.db.close()
            advice = "move the file away to start without them"
            raise unusable(problem, path, "the records of runs", "records", advice) from problem
        except BaseException:
            self.db.close()
            raise

    def next_number(self, name: str) -> int:
        """1, 2, 3 for each name; never given twice."""
        row = self.db.execute(
            "INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value", (name,)
        ).fetchone()
        return int(row[0])

    def add(self, record: RunRecord) -> None:
        self.db.execute(
            "INSERT INTO runs (run, submit_id, workflow, source_path, submitted_at, jobs_total, tenant, request_digest, part_of)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.run,
                record.submit_id,
                record.workflow,
                record.source_path,
                record.submitted_at,
                record.jobs_total,
                record.tenant,
                record.request_digest,
                record.part_of,
            ),
        )

    def add_key(self, submit_id: str, run: str) -> None:
        """The run is found by this one too. Raises Refused if it is another run's."""
        self.db.execute(
            "INSERT OR IGNORE INTO keys SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM runs WHERE submit_id = ?1)", (submit_id, run)
        )
        found = self.by_submit_id(submit_id)
        if found is not None and found.run != run:
            raise Refused(f"that key is of the run {found.run}", code="key_used", subject=found.run)

    def by_submit_id(self, submit_id: str) -> RunRecord | None:
        added = self.db.execute("SELECT run FROM keys WHERE submit_id = ?", (submit_id,)).fetchone()
        return self.get(added[0]) if added else self._one("submit_id", submit_id)

    def get(self, run: str) -> RunRecord | None:
        return self._one("run", run)

    def _one(self, column: str, value: str) -> RunRecord | None:
        row = self.db.execute(f"SELECT {COLUMNS} FROM runs WHERE {column} = ?", (value,)).fetchone()
        return record_of(row) if row else None

    def all(self) -> list[RunRecord]:
        return [record_of(row) for row in self.db.execute(f"SELECT {COLUMNS} FROM runs ORDER BY submitted_at, run")]

    def page(
        self,
        tenant: str | None,
        before: tuple[float, str] | None,
        limit: int,
        *,
        text: str = "",
        state: str = "",
        part_of: str = "",
        in_lines: bool = False,
    ) -> list[RunRecord]:
        """The newest first, without what was removed; `tenant` None: of all. `before`: when the last of the page before was submitted, and
        its name. `text`: in the run's name, its workflow's or what it is part of, whatever its case. `in_lines`: of runs that are part of
        one thing the first, by which a line of a list keeps its place; then `text` and `state` are of the line.
        """
        # In this order: the whole line is looked at once, and not for each of its runs.
        where: list[str] = ["NOT removed", *([FIRST_OF_ITS_LINE] if in_lines else [])]
        values: list[str | float] = []
        if text:
            where = [*where, NAMED_IN_ITS_LINE if in_lines else NAMED.format("runs")]
            values = [*values, *[text.casefold()] * (2 if in_lines else 1)]
        if state:
            where, values = [*where, f"{STATE_OF_ITS_LINE if in_lines else 'state'} = ?"], [*values, state]
        if part_of:
            where, values = [*where, "part_of = ? AND part_of <> ''"], [*values, part_of]
        if tenant is not None:
            where, values = [*where, "tenant = ?"], [*values, tenant]
        if before is not None:
            where, values = [*where, "(submitted_at, run) < (?, ?)"], [*values, *before]
        order = "ORDER BY submitted_at DESC, run DESC LIMIT ?"
        rows = self.db.execute(f"SELECT {COLUMNS} FROM runs WHERE {' AND '.join(where)} {order}", (*values, limit))
        return [record_of(row) for row in rows]

    def line(self, tenant: str, part_of: str) -> RunGroup:
        newest = (
            f"(SELECT {COLUMNS}, count(*) AS runs, max(submitted_at) FROM runs"
            " WHERE NOT removed AND tenant = ?1 AND part_of = ?2 AND part_of <> '' GROUP BY workflow)"
        )
        sums = (
            f"SELECT state, finished_at IS NULL, sum(runs), sum(jobs_total), sum(jobs_done), max(finished_at) FROM {newest} GROUP BY 1, 2"
        )
        rows = self.db.execute(sums, (tenant, part_of)).fetchall()
        ended = [row for row in rows if not row[1]]
        records = self.db.execute(f"SELECT {COLUMNS} FROM {newest} WHERE finished_at IS NULL", (tenant, part_of))
        return RunGroup(
            runs=sum(row[2] for row in rows),
            states=frozenset(row[0] for row in ended),
            jobs_total=sum(row[3] for row in ended),
            jobs_done=sum(row[4] for row in ended),
            finished_at=max((row[5] for row in ended), default=None),
            open=tuple(record_of(row) for row in records),
        )

    def names(self, tenant: str | None) -> set[str]:
        """Of all runs there were; `tenant` None: of all tenants, and of none."""
        rows = self.db.execute("SELECT run FROM runs WHERE ?1 IS NULL OR tenant = ?1", (tenant,))
        return {row[0] for row in rows}

    def ended(self) -> dict[str, int]:
        """How many ended in which state, as far as they were not removed."""
        return dict(self.db.execute("SELECT state, count(*) FROM runs WHERE NOT removed AND finished_at IS NOT NULL GROUP BY state"))

    def finish(self, run: str, state: str, finished_at: float, jobs_done: int, summary: str, ledger: bytes) -> None:
        """`ledger`: of its finals, as JSON."""
        row = (state, finished_at, jobs_done, summary, run)
        self.db.execute("BEGIN")
        self.db.execute("INSERT OR REPLACE INTO ledgers VALUES (?, ?)", (run, zlib.compress(ledger, 1)))
        self.db.execute("UPDATE runs SET state = ?, finished_at = ?, jobs_done = ?, summary = ? WHERE run = ?", row)
        self.db.execute("COMMIT")

    def ledger(self, run: str) -> bytes:
        row = self.db.execute("SELECT body FROM ledgers WHERE run = ?", (run,)).fetchone()
        return zlib.decompress(row[0]) if row else b"[]"

    def reopen(self, run: str, jobs_total: int | None = None) -> None:
        """`jobs_total`: of one that goes on with another definition."""
        what = "state = 'active', finished_at = NULL, jobs_total = coalesce(?, jobs_total)"
        self.db.execute(f"UPDATE runs SET {what} WHERE run = ?", (jobs_total, run))

    def remove(self, run: str) -> None:
        """Keeps the line so that the name is not given again and `runs --all` can show it."""
        self.db.execute("UPDATE runs SET removed = 1, summary = NULL WHERE run = ?", (run,))
        self.db.execute("DELETE FROM ledgers WHERE run = ?", (run,))

    def forget(self, run: str) -> None:
        """A submit that never reached the journal."""
        self.db.execute("DELETE FROM runs WHERE run = ?", (run,))
        self.db.execute("DELETE FROM keys WHERE run = ?", (run,))

    def close(self) -> None:
        self.db.close()


def bring_up(db: sqlite3.Connection, path: Path) -> None:
    """To this version's format, in one transaction; a copy of what was there is kept."""
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found > FORMAT:
        text = f"the records of runs {path} have format {found}, and this version of stager knows up to {FORMAT}"
        raise Refused(f"{text}; use the newer version that wrote them", code="records_newer", subject=str(path))
    if found == FORMAT:
        return
    is_new = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not is_new:
        back_up(db, path.with_suffix(f".format{found or 1}.backup"))
    steps = (
        (TABLES if is_new else ())
        + (FROM_FORMAT_1 if found < 2 else ())
        + (FROM_FORMAT_2 if found < 3 else ())
        + (FROM_FORMAT_3 if found < 4 else ())
        + FROM_FORMAT_4
    )
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in (*steps, f"PRAGMA user_version={FORMAT}"):
            db.execute(statement)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def ledger_with_present_names(body: bytes) -> bytes:
    """Of a ledger as it is stored. One that is damaged stays as it is: whoever reads it is told."""
    try:
        entries = json.loads(zlib.decompress(body))
    except (zlib.error, ValueError):
        return body
    for entry in entries:
        if entry.get("state") == "overtaken":
            entry["state"] = "superseded"
    return zlib.compress(json.dumps(entries).encode(), 1)


def back_up(db: sqlite3.Connection, path: Path) -> None:
    path.touch(mode=0o600, exist_ok=True)
    copy = sqlite3.connect(path)
    try:
        db.backup(copy)
    finally:
        copy.close()


def names_in(path: Path) -> list[str]:
    """The runs in a file of records, the newest first, without a scheduler and without changing anything; none where it cannot be read."""
    return [row[0] for row in rows_in(path, "SELECT run FROM runs WHERE NOT removed ORDER BY submitted_at DESC, run")]


def workflows_in(path: Path) -> dict[str, str]:
    """The workflow of each run, those that were removed included; none where the file cannot be read."""
    return dict(rows_in(path, "SELECT run, workflow FROM runs"))


def rows_in(path: Path, question: str) -> list[tuple[Any, ...]]:
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return db.execute(question).fetchall()
        finally:
            db.close()
    except sqlite3.Error:
        return []


class Written(NamedTuple):
    """A final that a run left at a destination."""

    path: str
    token: str


def written_before(path: Path, asked: Collection[Written], tenant: str | None = None) -> set[Written]:
    """Those of these files that a run of this tenant (None: any run) wrote and verified there, by its ledger; without a scheduler and
    without changing anything. The newest runs are looked at first, and RUNS_LOOKED_AT at most.
    """
    wanted, found = set(asked), set[Written]()
    try:
        db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return found
    try:
        rows = db.execute(
            "SELECT body FROM ledgers JOIN runs USING (run) WHERE ?1 IS NULL OR tenant = ?1 ORDER BY submitted_at DESC LIMIT ?2",
            (tenant, RUNS_LOOKED_AT),
        )
        for (body,) in rows:
            found |= {Written(entry["path"], entry["token"]) for entry in json.loads(zlib.decompress(body)) if entry["token"]} & wanted
            if found == wanted:
                break
    except sqlite3.Error:
        # Of an older format, or written just now: then nothing is known to be ours.
        return found
    finally:
        db.close()
    return found


def is_under_way(path: Path, workflow: str, tenant: str | None = None) -> bool:
    """Whether a run of a workflow of this name, of this tenant (None: of anybody), has not ended; as `written_before` asks."""
    try:
        db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        try:
            wanted = "workflow = ?1 AND (?2 IS NULL OR tenant = ?2) AND finished_at IS NULL AND NOT removed"
            return db.execute(f"SELECT 1 FROM runs WHERE {wanted}", (workflow, tenant)).fetchone() is not None
        finally:
            db.close()
    except sqlite3.Error:
        return False


def record_of(row: tuple[Any, ...]) -> RunRecord:
    *values, removed = row
    return RunRecord(*(*values, bool(removed)))
