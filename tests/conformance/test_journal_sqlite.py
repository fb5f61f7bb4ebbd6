"""The Journal port's contract, held by the SQLite journal: what was appended is there, whatever died; what it cannot read it names."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stager.adapters import journal_sqlite
from stager.adapters.journal_sqlite import Codec, SqliteJournal
from stager.model.errors import Corrupt, Refused
from stager.model.files import Destination, File, Location, Source
from stager.model.record import Record
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.plan import Access, Basis, FilePlan, JobPlan, Plan
from stager.ports import Snapshot
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.testbed.places import PROJECT
from tests.testbed.waiting import wait_until

EVENTS, COMMANDS = get_args(ev.Event), get_args(cmd.Command)
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))
st.register_type_strategy(str, st.text(st.characters(codec="utf-8"), max_size=8))


def values_of(kind: type) -> st.SearchStrategy[Any]:
    """With a value for each field: what msgspec makes anew for each as a default is no value to Hypothesis."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: st.from_type(hints[name]) for name in kind.__struct_fields__})  # type: ignore[attr-defined]


def records_below(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from records_below(below)


# Those that others hold, too.
for record in records_below(Record):
    if any(field.default_factory is not msgspec.NODEFAULT for field in msgspec.structs.fields(record)):
        st.register_type_strategy(record, values_of)


def woken(at: float) -> ev.Woken:
    return ev.Woken(at=at, cause="test")


def wake(number: int) -> cmd.WakeAt:
    return cmd.WakeAt(id=f"c{number}", at=1.0, cause="e1", wake_at=float(number))


def read(path: Path, version: str = "1") -> list[tuple[str, list[Any], list[Any]]]:
    journal = SqliteJournal(path, version)
    try:
        return [tuple(batch[1:]) for batch in journal.batches()]
    finally:
        journal.close()


@pytest.mark.parametrize("kind", EVENTS + COMMANDS, ids=lambda kind: kind.__name__)
def test_every_event_and_command_comes_back_as_it_was(kind: type) -> None:
    codec = Codec(ev.Event, cmd.Command)

    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(values_of(kind))
    def comes_back(value: Any) -> None:
        events, commands = ([value], []) if kind in EVENTS else ([], [value])
        assert codec.decode(codec.encode(events, commands)) == (events, commands)

    comes_back()


def test_batches_come_back_in_order_with_the_version_that_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    first = SqliteJournal(path, "1.0")
    first.append([woken(1.0), woken(2.0)], [wake(1)])
    first.append([woken(3.0)], [])
    first.close()
    second = SqliteJournal(path, "1.1")
    second.append([], [wake(2), wake(3)])
    second.close()
    assert read(path) == [
        ("1.0", [woken(1.0), woken(2.0)], [wake(1)]),
        ("1.0", [woken(3.0)], []),
        ("1.1", [], [wake(2), wake(3)]),
    ]


WRITER = """
import sys, time
from pathlib import Path
from stager.adapters.journal_sqlite import SqliteJournal
from stager.scheduler.events import Woken
journal = SqliteJournal(Path(sys.argv[1]), "1")
for number in range(1_000_000):
    journal.append([Woken(at=float(number))], [])
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_what_was_appended_survives_kill_9(tmp_path: Path) -> None:
    path, told = tmp_path / "journal.sqlite", tmp_path / "told"
    with told.open("wb") as out:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=out, cwd=PROJECT, env={**os.environ, "PYTHONPATH": str(PROJECT)}
        )
        wait_until(lambda: told.read_bytes().count(b"\n") > 50, "some batches to be acknowledged")
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    acknowledged = told.read_bytes().count(b"\n")
    found = [events[0].at for _, events, _ in read(path)]
    assert found == [float(number) for number in range(len(found))]
    assert len(found) in (acknowledged, acknowledged + 1)


def test_each_append_is_flushed_to_the_disk(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite", "1")
    assert journal.db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert journal.db.execute("PRAGMA synchronous").fetchone()[0] == 2
    journal.close()


def test_a_newer_format_is_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    SqliteJournal(path, "1").close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(journal_sqlite.FORMAT + 1),))
    db.close()
    with pytest.raises(Refused, match=f"format {journal_sqlite.FORMAT + 1} and this stager"):
        SqliteJournal(path, "1")


def test_an_older_format_is_upgraded_and_a_backup_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.sqlite"
    journal = SqliteJournal(path, "1")
    journal.append([woken(1.0)], [])
    journal.close()
    old = journal_sqlite.FORMAT
    monkeypatch.setattr(journal_sqlite, "FORMAT", old + 1)
    monkeypatch.setitem(journal_sqlite.UPGRADES, old, lambda db: db.execute("UPDATE batches SET version = 'upgraded'"))
    assert [version for version, _, _ in read(path)] == ["upgraded"]
    backup = tmp_path / f"journal.format{old}.backup"
    with sqlite3.connect(backup) as db:
        assert db.execute("SELECT version FROM batches").fetchall() == [("1",)]
    db.close()
    assert backup.stat().st_mode & 0o777 == 0o600


def test_a_damaged_batch_is_found_and_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = SqliteJournal(path, "1")
    for number in range(3):
        journal.append([woken(float(number))], [])
    journal.close()
    with sqlite3.connect(path) as db:
        body = bytearray(db.execute("SELECT body FROM batches WHERE seq = 2").fetchone()[0])
        body[-1] ^= 1
        db.execute("UPDATE batches SET body = ? WHERE seq = 2", (bytes(body),))
    db.close()
    with pytest.raises(Corrupt, match="batch 2 of the journal"):
        read(path)


def test_an_event_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    codec = Codec(ev.Event, cmd.Command)
    body = codec.encode([woken(1.0)], []).replace(b"Woken", b"Waked")
    with pytest.raises(Refused, match="'Waked'"):
        codec.decode(body)


def test_it_is_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    SqliteJournal(path, "1").close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_can_be_read_from_another_thread_while_it_is_written(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite", "1")
    for number in range(50):
        journal.append([woken(float(number))], [])
    found: list[float] = []

    def reader() -> None:
        for batch in journal.read_beside():
            found.append(batch.events[0].at)

    thread = threading.Thread(target=reader)
    thread.start()
    for number in range(50, 100):
        journal.append([woken(float(number))], [])
    thread.join()
    journal.close()
    assert len(found) >= 50 and found == sorted(found)


def test_a_cleared_journal_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = SqliteJournal(path, "1")
    journal.append([woken(1.0)], [])
    journal.clear()
    journal.append([woken(2.0)], [])
    journal.close()
    assert [events for _, events, _ in read(path)] == [[woken(2.0)]]


@dataclass(frozen=True)
class Sums:
    by_name: dict[str, int]


@dataclass(frozen=True)
class OtherSums:
    by_name: dict[str, int]
    more: int = 0


def with_snapshot(path: Path, version: str = "1") -> None:
    """Three batches, the snapshot after the second."""
    journal = SqliteJournal(path, version)
    for number in range(3):
        journal.append([woken(float(number))], [])
        if number < 2:
            journal.snapshot({"sums": Sums({"batches": number + 1})})
    journal.close()


def newest(path: Path, version: str = "1", kind: type = Sums) -> Snapshot | None:
    journal = SqliteJournal(path, version)
    try:
        return journal.newest_snapshot({"sums": kind})
    finally:
        journal.close()


def change(path: Path, statement: str, *values: Any) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement, values)
    db.close()


def test_the_newest_snapshot_is_kept_and_no_batch_is_dropped_for_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with_snapshot(path)
    assert newest(path) == Snapshot(2, {"sums": Sums({"batches": 2})})
    assert [events for _, events, _ in read(path)] == [[woken(0.0)], [woken(1.0)], [woken(2.0)]]
    journal = SqliteJournal(path, "1")
    assert [batch.number for batch in journal.batches(2)] == [3] and journal.batch(1).events == [woken(0.0)]
    with pytest.raises(KeyError):
        journal.batch(4)
    journal.close()


def test_a_snapshot_holds_what_was_when_it_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is packed and stored while the scheduler goes on: values change and batches are added meanwhile."""
    path = tmp_path / "journal.sqlite"
    went_on, pack = threading.Event(), zlib.compress

    def pack_late(body: bytes, level: int) -> bytes:
        assert went_on.wait(30)
        return pack(body, level)

    journal = SqliteJournal(path, "1")
    journal.append([woken(1.0)], [])
    sums = Sums({"batches": 1})
    with monkeypatch.context() as patched:
        patched.setattr(journal_sqlite.zlib, "compress", pack_late)
        journal.snapshot({"sums": sums})
        sums.by_name["batches"] = 2
        journal.append([woken(2.0)], [])
        went_on.set()
        journal.close()
    assert newest(path) == Snapshot(1, {"sums": Sums({"batches": 1})})
    assert len(read(path)) == 2


def test_without_a_snapshot_there_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert newest(tmp_path / "journal.sqlite") is None and not caplog.records


def test_a_damaged_snapshot_is_not_used_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.sqlite"
    with_snapshot(path)
    with sqlite3.connect(path) as db:
        body = bytearray(db.execute("SELECT body FROM snapshot").fetchone()[0])
    db.close()
    body[-1] ^= 1
    change(path, "UPDATE snapshot SET body = ?", bytes(body))
    assert newest(path) is None
    assert "it is damaged; all batches are replayed" in caplog.text


def test_a_snapshot_of_another_version_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.sqlite"
    with_snapshot(path, "1")
    assert newest(path, "2") is None
    assert "stager 1 wrote it, and this is 2" in caplog.text


def test_a_snapshot_of_classes_with_other_fields_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The version says nothing of code that is being worked on; a new field with a default would read as if it had been there."""
    path = tmp_path / "journal.sqlite"
    with_snapshot(path)
    assert newest(path, kind=OtherSums) is None
    assert "other code than this 1 wrote it" in caplog.text


def test_a_snapshot_of_batches_that_are_not_there_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.sqlite"
    with_snapshot(path)
    change(path, "DELETE FROM batches WHERE seq > 1")
    assert newest(path) is None
    assert "it is of batch 2, and the last one is 1" in caplog.text


def test_a_snapshot_that_cannot_be_stored_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.sqlite"
    with_snapshot(path)
    journal = SqliteJournal(path, "1")
    # As a full disk does.
    journal.db.execute("PRAGMA max_page_count = 1")
    journal.snapshot({"sums": Sums({str(number): number for number in range(100_000)})})
    assert journal.newest_snapshot({"sums": Sums}) == Snapshot(2, {"sums": Sums({"batches": 2})})
    assert "no snapshot of the journal" in caplog.text
    journal.close()


def test_a_cleared_journal_has_no_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with_snapshot(path)
    journal = SqliteJournal(path, "1")
    journal.clear()
    for number in range(5):
        journal.append([woken(float(number))], [])
    assert journal.newest_snapshot({"sums": Sums}) is None
    journal.close()


FORMAT_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY, version TEXT NOT NULL, checksum INTEGER NOT NULL, packed INTEGER NOT NULL, body BLOB NOT NULL
);
INSERT INTO meta VALUES ('format', '1');
"""


def test_a_journal_of_format_1_is_upgraded_and_can_keep_snapshots(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    body = Codec(ev.Event, cmd.Command).encode([woken(1.0)], [wake(1)])
    with sqlite3.connect(path) as db:
        db.executescript(FORMAT_1)
        db.execute("INSERT INTO batches VALUES (1, '0.1', ?, 0, ?)", (zlib.crc32(body), body))
    db.close()
    journal = SqliteJournal(path, "1")
    assert journal.newest_snapshot({"sums": Sums}) is None
    journal.snapshot({"sums": Sums({})})
    journal.close()
    assert newest(path) == Snapshot(1, {"sums": Sums({})})
    assert read(path) == [("0.1", [woken(1.0)], [wake(1)])]
    with sqlite3.connect(tmp_path / "journal.format1.backup") as db:
        assert db.execute("SELECT body FROM batches").fetchall() == [(body,)]
    db.close()


def big_run(jobs: int) -> ev.RunSubmitted:
    names = [f"job-{number:06}" for number in range(jobs)]
    files = {f"in/{name}": File(f"in/{name}", sources=(Source(Location("lab", f"raw/{name}"), 1000, "m=1;s=1000"),)) for name in names}
    files |= {f"out/{name}": File(f"out/{name}", destination=Destination(Location("lab", f"out/{name}"))) for name in names}
    work = {
        name: Job(name, "work", shell="sort < in > out", inputs=(JobInput(f"in/{name}", "in"),), outputs=(JobOutput(f"out/{name}", "out"),))
        for name in names
    }
    workflow = Workflow("big", files, work, {"lab": Origin("lab", OriginKind.FILE, "file:///data")})
    job_plans = tuple(JobPlan(name, order, 1.0, "node0", 0.0, 1.0, 1.0, Basis.DEFAULT, 10, 20) for order, name in enumerate(names))
    file_plans = tuple(FilePlan(lfn, 1000, Basis.MEASURED, Access.LINK, "node0", 1, 0, 0) for lfn in files)
    plan = Plan(1, "big", "d", 10**9, 10**6, 10**6, None, 1.0, 1, 1, 1, job_plans, file_plans)
    return ev.RunSubmitted(at=1.0, run="big-1", workflow=workflow, plan=plan)


def test_a_run_of_20000_jobs_is_stored_small(tmp_path: Path) -> None:
    path, event = tmp_path / "journal.sqlite", big_run(20_000)
    journal = SqliteJournal(path, "1")
    journal.append([event], [])
    journal.close()
    assert path.stat().st_size < 20_000 * 200
    assert read(path)[0][1] == [event]
