"""The records of runs: older files open and keep a copy, newer ones are refused by name, and a run's tenant outlives the process."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stager.adapters.run_records import RunRecord, RunRecords, names_in
from stager.model.errors import Corrupt, Refused

FORMAT_1 = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, submit_id TEXT NOT NULL UNIQUE, workflow TEXT NOT NULL, source_path TEXT NOT NULL, submitted_at REAL NOT NULL,
    jobs_total INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'active', finished_at REAL, jobs_done INTEGER NOT NULL DEFAULT 0,
    summary TEXT, removed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE ledgers (run TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO runs VALUES ('w-1', 's', 'w', '/w.yml', 12.5, 3, 'succeeded', 20.0, 3, '{}', 0);
INSERT INTO runs VALUES ('w-2', 't', 'w', '/w.yml', 13.5, 3, 'active', NULL, 0, NULL, 1);
INSERT INTO counters VALUES ('w', 2);
"""
TO_FORMAT_3 = "DROP INDEX runs_of_parts; ALTER TABLE runs DROP COLUMN part_of; PRAGMA user_version=3;"


def test_a_file_of_format_1_opens_and_a_copy_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(FORMAT_1)
    records = RunRecords(path)
    first, second = records.all()
    assert first == RunRecord("w-1", "s", "w", "/w.yml", 12.5, 3, "succeeded", 20.0, 3, "{}")
    assert second.removed and second.tenant == "" and records.next_number("w") == 3
    records.close()
    backup = tmp_path / "runs.format1.backup"
    assert backup.stat().st_mode & 0o077 == 0 and names_in(backup) == ["w-1"]
    RunRecords(path).close()


def test_a_file_of_format_2_opens_and_a_copy_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    RunRecords(path).close()
    with sqlite3.connect(path) as db:
        db.executescript(f"{TO_FORMAT_3} DROP TABLE keys; PRAGMA user_version=2; INSERT INTO counters VALUES ('w', 2)")
    records = RunRecords(path)
    records.add(RunRecord("w-3", "alice/k", "w", "", 1.0, 1))
    records.add_key("alice/l", "w-3")
    assert records.next_number("w") == 3
    records.close()
    assert (tmp_path / "runs.format2.backup").exists() and not (tmp_path / "runs.format1.backup").exists()


def test_a_file_of_format_3_opens_and_a_copy_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    records = RunRecords(path)
    records.add(RunRecord("w-1", "alice/k", "w", "", 1.0, 1, tenant="alice"))
    records.add_key("alice/l", "w-1")
    records.close()
    with sqlite3.connect(path) as db:
        db.executescript(TO_FORMAT_3)
    records = RunRecords(path)
    records.add(RunRecord("w-2", "alice/m", "w", "", 2.0, 1, tenant="alice", part_of="dag/one"))
    assert [record.part_of for record in records.all()] == ["", "dag/one"]
    found = records.by_submit_id("alice/l")
    assert found is not None and found.run == "w-1"
    records.close()
    assert names_in(tmp_path / "runs.format3.backup") == ["w-1"]


def test_a_run_is_found_under_each_of_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    records = RunRecords(path)
    for number in (1, 2):
        records.add(RunRecord(f"w-{number}", f"k{number}", "w", "", 1.0, 1))
    for _ in range(2):
        records.add_key("more", "w-1")
    records.add_key("k2", "w-2")
    for key in ("k2", "more"):
        with pytest.raises(Refused, match="is of the run w-") as caught:
            records.add_key(key, "w-2" if key == "more" else "w-1")
        assert caught.value.code == "key_used"
    records.close()
    again = RunRecords(path)
    assert [found.run for found in map(again.by_submit_id, ("k1", "k2", "more")) if found] == ["w-1", "w-2", "w-1"]
    assert again.by_submit_id("none") is None
    again.forget("w-1")
    assert again.by_submit_id("more") is None


def test_whose_a_run_is_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    records = RunRecords(path)
    records.add(RunRecord("w-1", "alice/k", "w", "", 1.0, 1, tenant="alice", request_digest="d"))
    records.close()
    found = RunRecords(path).by_submit_id("alice/k")
    assert found is not None and (found.run, found.tenant, found.request_digest) == ("w-1", "alice", "d")
    assert not (tmp_path / "runs.format1.backup").exists()


def test_a_page_holds_what_was_asked_for_and_goes_on(tmp_path: Path) -> None:
    records = RunRecords(tmp_path / "runs.sqlite")
    for number in range(6):
        tenant = "alice" if number % 2 else "bob"
        records.add(RunRecord(f"w-{number}", str(number), "Größe M_31" if number > 1 else "other", "", float(number), 1, tenant=tenant))
    records.finish("w-5", "failed", 9.0, 1, "{}", b"[]")

    def found(tenant: str | None, before: tuple[float, str] | None = None, limit: int = 9, text: str = "", state: str = "") -> list[str]:
        return [record.run for record in records.page(tenant, before, limit, text=text, state=state)]

    assert found(None) == ["w-5", "w-4", "w-3", "w-2", "w-1", "w-0"] and found("alice") == ["w-5", "w-3", "w-1"]
    assert found(None, text="GRÖSSE") == found(None, text="größe m_3") == ["w-5", "w-4", "w-3", "w-2"]
    assert found("alice", (5.0, "w-5"), text="größe") == ["w-3"] and found(None, None, 2, text="w-") == ["w-5", "w-4"]
    assert found("alice", text="m%31") == found(None, text="m31") == [] and found(None, text="W-3") == ["w-3"]
    assert found(None, state="failed") == ["w-5"] and found("bob", text="other", state="active") == ["w-0"]
    records.remove("w-3")
    assert found(None, text="w-3") == []


def test_a_newer_file_and_a_damaged_one_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    RunRecords(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=7")
    with pytest.raises(Refused, match="have format 7"):
        RunRecords(path)
    (tmp_path / "other.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(Corrupt, match="cannot be used"):
        RunRecords(tmp_path / "other.sqlite")


def test_pages_go_from_the_newest_on_also_where_runs_came_in_one_instant(tmp_path: Path) -> None:
    records = RunRecords(tmp_path / "runs.sqlite")
    for number in range(7):
        tenant = "alice" if number % 2 else ""
        records.add(RunRecord(f"w-{number}", f"s{number}", "w", "", float(number // 3), 1, tenant=tenant))
    records.finish("w-0", "failed", 5.0, 0, "{}", b"[]")
    records.remove("w-3")
    for tenant, wanted in ((None, ["w-6", "w-5", "w-4", "w-2", "w-1", "w-0"]), ("alice", ["w-5", "w-1"]), ("bob", [])):
        found: list[RunRecord] = []
        while page := records.page(tenant, (found[-1].submitted_at, found[-1].run) if found else None, 2):
            found += page
        assert [record.run for record in found] == wanted
    assert records.names("alice") == {"w-1", "w-3", "w-5"} and len(records.names(None)) == 7
    assert records.ended() == {"failed": 1}


def with_parts(path: Path, *runs: tuple[str, str, str, str]) -> RunRecords:
    """Each a second after the one before it: (run, workflow, tenant, what it is part of)."""
    records = RunRecords(path)
    for at, (run, workflow, tenant, part_of) in enumerate(runs):
        records.add(RunRecord(run, f"k {run}", workflow, "", float(at), 2, tenant=tenant, part_of=part_of))
    return records


def test_runs_that_are_part_of_one_thing_are_one_line_on_one_page(tmp_path: Path) -> None:
    runs = [
        ("a-1", "dag one", "alice", "dag/one"),
        ("b-1", "dag one", "bob", "dag/one"),
        ("w-1", "w", "alice", ""),
        ("a-2", "dag one after x", "alice", "dag/one"),
        ("w-2", "w", "alice", ""),
        ("a-3", "dag two", "alice", "dag/two"),
        ("a-4", "dag one after y", "alice", "dag/one"),
    ]
    records = with_parts(tmp_path / "runs.sqlite", *runs)

    def lines(tenant: str | None, limit: int, **chosen: str) -> list[str]:
        found: list[RunRecord] = []
        while page := records.page(tenant, (found[-1].submitted_at, found[-1].run) if found else None, limit, in_lines=True, **chosen):
            assert len(page) <= limit
            found += page
        return [record.run for record in found]

    for limit in (1, 2, 3, 9):
        assert lines("alice", limit) == ["a-3", "w-2", "w-1", "a-1"]
        assert lines(None, limit) == ["a-3", "w-2", "w-1", "b-1", "a-1"]
    assert [record.run for record in records.page("alice", None, 2, part_of="dag/one")] == ["a-4", "a-2"]
    assert [record.run for record in records.page("alice", None, 9)] == ["a-4", "a-3", "w-2", "a-2", "w-1", "a-1"]
    assert lines("alice", 1, text="AFTER Y") == ["a-1"] and lines("alice", 9, text="dag/") == ["a-3", "a-1"]
    assert lines("bob", 9, text="after y") == []
    records.remove("a-1")
    assert lines("alice", 1) == ["a-3", "w-2", "a-2", "w-1"], "the next one takes its place"


def test_a_line_says_what_goes_on_else_the_worst_of_the_newest_under_each_name(tmp_path: Path) -> None:
    runs = [(f"a-{number}", f"dag {name}", "alice", "dag/one") for number, name in enumerate(("x", "y", "z", "x"))]
    records = with_parts(tmp_path / "runs.sqlite", *runs, ("b-1", "dag x", "bob", "dag/one"), ("w-1", "w", "alice", ""))

    def lines(state: str) -> list[str]:
        return [record.run for record in records.page("alice", None, 9, state=state, in_lines=True)]

    records.finish("a-0", "cancelled", 10.0, 0, "{}", b"[]")
    records.finish("a-1", "succeeded", 11.0, 2, "{}", b"[]")
    records.finish("a-2", "failed", 12.0, 1, "{}", b"[]")
    found = records.line("alice", "dag/one")
    assert (found.runs, found.states, found.jobs_total, found.jobs_done, found.finished_at) == (4, {"failed", "succeeded"}, 4, 3, 12.0)
    assert [record.run for record in found.open] == ["a-3"]
    assert lines("active") == ["w-1", "a-0"] and lines("failed") == lines("cancelled") == []
    records.finish("a-3", "succeeded", 13.0, 2, "{}", b"[]")
    assert records.line("alice", "dag/one").open == () and lines("failed") == ["a-0"] and lines("succeeded") == []
    records.reopen("a-2")
    assert lines("active") == ["w-1", "a-0"]
    records.finish("a-2", "succeeded", 14.0, 2, "{}", b"[]")
    assert lines("succeeded") == ["a-0"] and records.line("alice", "dag/one").states == {"succeeded"}
    assert records.line("bob", "dag/one").runs == 1
