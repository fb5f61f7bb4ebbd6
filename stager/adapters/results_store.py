"""The results of jobs and the contents that were seen at origins, kept over all runs of a state directory: SQLite beside the journal.

May know: the model, sqlite3. One rule: it holds what the journal held first, so losing it costs time and nothing else. The file's format is
in it: a newer one is refused by name.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stager.adapters import database_file
from stager.adapters.transaction import transaction
from stager.model.errors import Refused, StagerError
from stager.model.results import KeptOutput, MadeOutput, Result, SeenAt
from stager.model.scatter import Rows, Scatter

FORMAT = 1
# How long a write waits for another program's: the scheduler stands still meanwhile.
BUSY_S = 1.0
SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE results (
    tenant TEXT NOT NULL, key TEXT NOT NULL, run TEXT NOT NULL, job TEXT NOT NULL, job_type TEXT NOT NULL, workflow TEXT NOT NULL,
    parts TEXT NOT NULL, outputs TEXT NOT NULL, made_at REAL NOT NULL, compute_s REAL, last_used_at REAL NOT NULL,
    PRIMARY KEY (tenant, key)
)""",
    "CREATE INDEX results_by_job ON results (tenant, job, made_at)",
    "CREATE INDEX results_by_run ON results (tenant, run, job)",
    """CREATE TABLE seen (
    tenant TEXT NOT NULL, origin TEXT NOT NULL, path TEXT NOT NULL, final INTEGER NOT NULL, token TEXT NOT NULL,
    size_bytes INTEGER NOT NULL, blake3 TEXT NOT NULL, at REAL NOT NULL, verified TEXT NOT NULL, synced TEXT NOT NULL,
    PRIMARY KEY (tenant, origin, path, final)
) WITHOUT ROWID""",
    # Runs of which all is here. The journal may tell more of the others.
    "CREATE TABLE complete (run TEXT PRIMARY KEY) WITHOUT ROWID",
)
# Came later, and may be missing in a file that nobody has written since.
KEPT_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS kept (
    tenant TEXT NOT NULL, key TEXT NOT NULL, path TEXT NOT NULL, file TEXT NOT NULL, size_bytes INTEGER NOT NULL, blake3 TEXT NOT NULL,
    executable INTEGER NOT NULL, remake_s REAL NOT NULL, PRIMARY KEY (tenant, key, path)
) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS kept_by_file ON kept (file)",
    """CREATE TABLE IF NOT EXISTS member_lists (
    tenant TEXT NOT NULL, key TEXT NOT NULL, lfn TEXT NOT NULL, form TEXT NOT NULL, columns TEXT NOT NULL, blake3 TEXT NOT NULL,
    rows TEXT NOT NULL, PRIMARY KEY (tenant, key, lfn, form, columns)
) WITHOUT ROWID""",
    # It did not say of which content its rows are.
    "DROP TABLE IF EXISTS members",
)
# The key of a result, what is scattered over, the content of that, and what it names.
Named = tuple[str, Scatter, str, Rows]
SEE = f"INSERT OR REPLACE INTO seen VALUES ({', '.join('?' * 10)})"
SEE_ONCE = (
    f"{SEE.replace(' OR REPLACE', '')} ON CONFLICT DO UPDATE SET "
    + """
    at = CASE WHEN NOT final AND token = excluded.token AND blake3 = excluded.blake3 THEN min(at, excluded.at) ELSE excluded.at END,
    token = excluded.token, size_bytes = excluded.size_bytes, blake3 = excluded.blake3, verified = excluded.verified,
    synced = excluded.synced
"""
)
NAMED = "EXISTS (SELECT 1 FROM results WHERE results.tenant = {0}.tenant AND results.key = {0}.key)"
RESULT = "key, run, job, job_type, workflow, parts, outputs, made_at, compute_s, last_used_at"
KEPT = "file, size_bytes, blake3, executable, remake_s"
SEEN = "origin, path, token, size_bytes, blake3, at, verified, synced"


class Forgotten(NamedTuple):
    """`kept`: files of these results that nodes held."""

    results: int
    kept: int


class ResultsStore:
    """Used by one thread at a time. `read_only`: of a file that is there; nothing is changed."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Raises Refused for a newer format, Corrupt for what is no such file."""
        self.path = path
        uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        try:
            self.db = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as problem:
            raise unusable(path, problem) from problem
        try:
            if not read_only:
                path.chmod(0o600)
                self.db.execute("PRAGMA journal_mode=WAL")
                self.db.execute("PRAGMA synchronous=NORMAL")
            self._bring_up(read_only)
        except sqlite3.DatabaseError as problem:
            self.db.close()
            raise unusable(path, problem) from problem
        except BaseException:
            self.db.close()
            raise

    def _bring_up(self, read_only: bool) -> None:
        found = int(self.db.execute("PRAGMA user_version").fetchone()[0])
        if found > FORMAT:
            text = f"the results {self.path} have format {found}, and this stager reads up to {FORMAT}"
            text += "; use the version that wrote them, or move the file away: jobs run again then"
            raise Refused(text, code="results_newer", subject=str(self.path))
        if found == 0 and not read_only:
            with transaction(self.db):
                if self.db.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in SCHEMA:
                        self.db.execute(statement)
                    self.db.execute("INSERT INTO meta VALUES ('secret', ?)", (secrets.token_hex(32),))
                    self.db.execute(f"PRAGMA user_version = {FORMAT}")
        self.has_kept = not read_only or self._has_table("kept")
        self.has_members = not read_only or self._has_table("member_lists")
        for statement in () if read_only else KEPT_SCHEMA:
            self.db.execute(statement)

    def _has_table(self, name: str) -> bool:
        return self.db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None

    def passed(self, env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
        """Of each variable a digest of its value that only this state directory can make; empty of one that is not set."""
        secret = bytes.fromhex(self.db.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()[0])
        return {name: keyed(secret, name, env[name]) if name in env else "" for name in names}

    def write(
        self,
        tenant: str,
        results: Sequence[Result] = (),
        seen: Sequence[SeenAt] = (),
        used: Sequence[tuple[str, float]] = (),
        complete: str = "",
        kept: Sequence[tuple[str, str, KeptOutput]] = (),
        gone: Sequence[str] = (),
        members: Sequence[Named] = (),
        *,
        looked: bool = True,
    ) -> None:
        """The newest counts. `used`: keys of results that a run reused, and when. `complete`: a run of which nothing is missing now.
        `kept`: by key and path, what nodes hold; `gone`: files that they had lost before that. Not `looked`: an input with the content it
        had is as it was seen before, since that may be of a cache. Raises sqlite3.Error, and nothing was written then.
        """
        rows = [row_of(tenant, each) for each in results]
        places = [place_of(tenant, each) for each in seen]
        with transaction(self.db):
            self.db.executemany(f"INSERT OR REPLACE INTO results VALUES ({', '.join('?' * 11)})", rows)
            self.db.executemany(SEE if looked else SEE_ONCE, places)
            self.db.executemany(
                "UPDATE results SET last_used_at = max(last_used_at, ?) WHERE tenant = ? AND key = ?",
                [(at, tenant, key) for key, at in used],
            )
            self.db.executemany("DELETE FROM kept WHERE file = ?", [(file,) for file in gone])
            # By hand, as of samples: dataclasses copies deeply, for a twentieth of a millisecond of each job.
            held = [(tenant, key, path, o.file, o.size_bytes, o.blake3, o.executable, o.remake_s) for key, path, o in kept]
            self.db.executemany(f"INSERT OR REPLACE INTO kept VALUES ({', '.join('?' * 8)})", held)
            named = [
                (tenant, key, each.over, each.form.value, json.dumps(each.keys), blake3, json.dumps(found))
                for key, each, blake3, found in members
            ]
            self.db.executemany(f"INSERT OR REPLACE INTO member_lists VALUES ({', '.join('?' * 7)})", named)
            if complete:
                self.db.execute("INSERT OR REPLACE INTO complete VALUES (?)", (complete,))

    def reopen(self, run: str) -> None:
        """It goes on, and there will be more of it."""
        self.db.execute("DELETE FROM complete WHERE run = ?", (run,))

    def complete(self) -> set[str]:
        return {row[0] for row in self.db.execute("SELECT run FROM complete")}

    def result(self, tenant: str, key: str) -> Result | None:
        row = self.db.execute(f"SELECT {RESULT} FROM results WHERE tenant = ? AND key = ?", (tenant, key)).fetchone()
        return result_of(row) if row else None

    def of_job(self, tenant: str, job: str, workflow: str) -> Result | None:
        """The newest of a job of this name, of this workflow before others."""
        order = "ORDER BY workflow = ? DESC, made_at DESC LIMIT 1"
        row = self.db.execute(f"SELECT {RESULT} FROM results WHERE tenant = ? AND job = ? {order}", (tenant, job, workflow)).fetchone()
        return result_of(row) if row else None

    def seen(self, tenant: str, origin: str, paths: Sequence[str], *, finals: bool) -> dict[str, SeenAt]:
        """By path, of these. What else was seen there costs nothing."""
        where = "tenant = ? AND origin = ? AND final = ? AND path IN (SELECT value FROM json_each(?))"
        rows = self.db.execute(f"SELECT {SEEN} FROM seen WHERE {where}", (tenant, origin, int(finals), json.dumps(paths)))
        return {row[1]: SeenAt(*row) for row in rows}

    def kept(self, tenant: str, key: str = "") -> dict[tuple[str, str], KeptOutput]:
        """By key and path, what nodes hold of results: of this one, or of all."""
        if not self.has_kept:
            return {}
        where, values = ("tenant = ? AND key = ?", (tenant, key)) if key else ("tenant = ?", (tenant,))
        rows = self.db.execute(f"SELECT key, path, {KEPT} FROM kept WHERE {where}", values)
        return {(row[0], row[1]): kept_of(row[2:]) for row in rows}

    def members(self, tenant: str, key: str, each: Scatter, blake3: str) -> Rows | None:
        """What an output of this result names, where it has this content. None: nobody scattered over it."""
        if not self.has_members:
            return None
        where = "tenant = ? AND key = ? AND lfn = ? AND form = ? AND columns = ? AND blake3 = ?"
        values = (tenant, key, each.over, each.form.value, json.dumps(list(each.keys)), blake3)
        row = self.db.execute(f"SELECT rows FROM member_lists WHERE {where}", values).fetchone()
        return rows_of(row[0]) if row is not None else None

    def members_before(self, tenant: str, workflow: str, job: str, each: Scatter) -> Rows | None:
        """What the output named in the newest result of this job."""
        if not self.has_members:
            return None
        where = "tenant = ? AND workflow = ? AND job = ? AND lfn = ? AND form = ? AND columns = ? ORDER BY made_at DESC LIMIT 1"
        values = (tenant, workflow, job, each.over, each.form.value, json.dumps(list(each.keys)))
        row = self.db.execute(f"SELECT rows FROM member_lists JOIN results USING (tenant, key) WHERE {where}", values).fetchone()
        return rows_of(row[0]) if row is not None else None

    def kept_files(self) -> list[tuple[str, KeptOutput]]:
        """Of everybody, each with its tenant."""
        rows = self.db.execute(f"SELECT tenant, {KEPT} FROM kept ORDER BY file") if self.has_kept else ()
        return [(row[0], kept_of(row[1:])) for row in rows]

    def results(self, tenant: str, *, run: str = "", job: str = "", limit: int = -1) -> list[Result]:
        """The newest first; of one run, or of one job, or all."""
        where = "tenant = ?1 AND (?2 = '' OR run = ?2) AND (?3 = '' OR job = ?3)"
        rows = self.db.execute(f"SELECT {RESULT} FROM results WHERE {where} ORDER BY made_at DESC, key LIMIT ?4", (tenant, run, job, limit))
        return [result_of(row) for row in rows]

    def forget(
        self, tenant: str | None, *, run: str = "", job: str = "", job_type: str = "", unused_since: float | None = None
    ) -> Forgotten:
        """Those that are all of what is named. `tenant` None: of everybody. Raises StagerError, and nothing was forgotten then."""
        where = (
            "(?1 IS NULL OR tenant = ?1) AND (?2 = '' OR run = ?2) AND (?3 = '' OR job = ?3) AND (?4 = '' OR job_type = ?4) "
            "AND (?5 IS NULL OR last_used_at < ?5)"
        )
        try:
            with transaction(self.db):
                results = self.db.execute(f"DELETE FROM results WHERE {where}", (tenant, run, job, job_type, unused_since)).rowcount
                kept, _ = [
                    self.db.execute(f"DELETE FROM {table} WHERE NOT {NAMED.format(table)}").rowcount for table in ("kept", "member_lists")
                ]
        except sqlite3.Error as problem:
            raise unusable(self.path, problem) from problem
        return Forgotten(results, kept)

    def count(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM results").fetchone()[0])

    def close(self) -> None:
        self.db.close()


def row_of(tenant: str, each: Result) -> tuple[object, ...]:
    parts = json.dumps(each.parts, ensure_ascii=False)
    outputs = json.dumps([[made.path, made.size_bytes, made.blake3, made.executable] for made in each.outputs], ensure_ascii=False)
    used_at = max(each.made_at, each.last_used_at)
    names = (each.key, each.run, each.job, each.job_type, each.workflow)
    return (tenant, *names, parts, outputs, each.made_at, each.compute_s, used_at)


def place_of(tenant: str, each: SeenAt) -> tuple[object, ...]:
    content = (each.token, each.size_bytes, each.blake3, each.at, each.verified, each.synced)
    return (tenant, each.origin, each.path, int(each.verified != ""), *content)


def kept_of(row: Sequence[Any]) -> KeptOutput:
    file, size_bytes, blake3, executable, remake_s = row
    return KeptOutput(file, size_bytes, blake3, bool(executable), remake_s)


def rows_of(text: str) -> Rows:
    return tuple([tuple(values) for values in json.loads(text)])


def keyed(secret: bytes, name: str, value: str) -> str:
    return hashlib.blake2b(f"{name}\0{value}".encode("utf-8", "surrogateescape"), digest_size=16, key=secret).hexdigest()


def unusable(path: Path, problem: sqlite3.Error) -> StagerError:
    return database_file.unusable(problem, path, "the results", "results", "move the file away to begin anew: jobs run again then")


def result_of(row: Sequence[object]) -> Result:
    key, run, job, job_type, workflow, parts, outputs, made_at, compute_s, last_used_at = row
    made = tuple(MadeOutput(*entry) for entry in json.loads(str(outputs)))
    return Result(
        str(key),
        str(run),
        str(job),
        str(job_type),
        str(workflow),
        json.loads(str(parts)),
        made,
        float(str(made_at)),
        None if compute_s is None else float(str(compute_s)),
        float(str(last_used_at)),
    )


def open_to_read(path: Path) -> ResultsStore | None:
    """None: nothing was recorded yet."""
    if not path.exists():
        return None
    store = ResultsStore(path, read_only=True)
    if store.db.execute("PRAGMA user_version").fetchone()[0] == 0:
        store.close()
        return None
    return store
