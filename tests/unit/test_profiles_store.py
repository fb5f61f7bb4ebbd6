"""The profiles store: what comes back, what is pruned, older and newer files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stager.adapters import profiles_store
from stager.adapters.profiles_store import KEPT_PER_RUN, KEPT_RUNS, ProfilesStore, read_profiles, read_samples
from stager.adapters.run_records import RunRecord, RunRecords
from stager.model.errors import Corrupt, Refused
from stager.model.profiling import Kind, Sample, Side, group_files

FORMAT_1 = """
CREATE TABLE measures (
    attempt TEXT PRIMARY KEY, job_type TEXT NOT NULL, at REAL NOT NULL, wall_s REAL, cpu_s REAL, memory_peak_bytes INTEGER,
    input_bytes INTEGER, read_bytes INTEGER, written_bytes INTEGER, output_bytes INTEGER
) WITHOUT ROWID;
CREATE INDEX measures_by_type ON measures (job_type, at);
INSERT INTO measures VALUES ('a1', 'sort', 5.5, 1.25, NULL, 4096, 10, 20, 30, 40);
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "with #? and %20.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[ProfilesStore]:
    made = ProfilesStore(path)
    yield made
    made.close()


def sample(store: str, attempt: str, run: str = "r", at: float = 1.0, **more: Any) -> Sample:
    return Sample(store=store, attempt=attempt, job_type=more.pop("job_type", "t"), run=run, kind=more.pop("kind", Kind.RUN), at=at, **more)


def test_a_sample_comes_back_as_it_was(store: ProfilesStore, path: Path) -> None:
    files = group_files(Side.INPUT, [("a1", 5), ("a2", 6)]) + group_files(Side.OUTPUT, [("b", None)])
    full = sample(
        store.id, "x", wall_s=1.5, cpu_s=0.0, memory_peak_bytes=2**40, input_bytes=11, input_files=2, touched_bytes=3, files=files
    )
    bare = sample("elsewhere", "y", kind=Kind.RECORD)
    store.add([full, bare])
    store.write()
    found, own = read_samples(path)
    assert sorted(found, key=lambda entry: entry.attempt) == [full, bare] and own == store.id
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_added_is_written_at_the_latest_with_a_hundred_and_the_same_again_changes_nothing(store: ProfilesStore, path: Path) -> None:
    store.add(sample(store.id, f"a{number}", f"r{number % 10}") for number in range(profiles_store.WRITE_TOGETHER))
    assert len(read_samples(path)[0]) == profiles_store.WRITE_TOGETHER
    assert store.take_in([sample(store.id, "a1", wall_s=99.0), sample("other", "a1")]) == 1
    found = {(entry.store, entry.attempt): entry for entry in read_samples(path)[0]}
    assert found[store.id, "a1"].wall_s is None and len(found) == profiles_store.WRITE_TOGETHER + 1


def test_old_runs_go_and_of_a_large_run_a_part_is_kept_that_does_not_depend_on_the_order(tmp_path: Path) -> None:
    kept = []
    for name, backwards in (("one", False), ("two", True)):
        store = ProfilesStore(tmp_path / name)
        samples = [sample("s", f"r{run}-{number}", f"r{run}", at=run + number / 1000) for run in range(25) for number in range(80)]
        samples += [sample("s", "other", "r0", at=0.0, job_type="rare"), sample("s", "traced", "t", at=99.0, kind=Kind.TRACE)]
        for entry in reversed(samples) if backwards else samples:
            store.add([entry])
        store.close()
        kept.append(read_samples(tmp_path / name)[0])
    runs = {entry.run for entry in kept[0] if entry.job_type == "t" and entry.kind is Kind.RUN}
    assert runs == {f"r{run}" for run in range(25 - KEPT_RUNS, 25)}
    assert len(kept[0]) == KEPT_RUNS * KEPT_PER_RUN + 2, "another type or kind is not pruned with it"
    late = [entry for entry in kept[0] if entry.run == "r24"]
    assert max(entry.at for entry in late) > 24.07 and min(entry.at for entry in late) < 24.01, "drawn from all of the run"
    assert kept[0] == kept[1]


def test_importing_more_than_is_kept_twice_changes_nothing(store: ProfilesStore, path: Path) -> None:
    samples = [sample("far", f"a{number}", kind=Kind.RECORD) for number in range(300)]
    assert store.take_in(samples) == KEPT_PER_RUN
    before = read_samples(path)
    assert store.take_in(samples) == 0 and read_samples(path) == before


def test_a_file_of_format_1_is_upgraded_with_a_backup_and_read_without(path: Path) -> None:
    with sqlite3.connect(path) as old:
        old.executescript(FORMAT_1)
    old.close()
    content = path.read_bytes()
    assert read_profiles(path)["sort"].wall_s.median == 1.25  # type: ignore[union-attr]
    assert path.read_bytes() == content, "reading changes nothing"
    store = ProfilesStore(path)
    store.add([sample(store.id, "new", at=6.0, job_type="sort", wall_s=3.0)])
    store.close()
    first = read_samples(path)[0][0]
    assert (first.attempt, first.store, first.run, first.wall_s, first.cpu_s, first.output_bytes) == ("a1", store.id, "", 1.25, None, 40)
    assert read_profiles(path)["sort"].wall_s.median == 3.0  # type: ignore[union-attr]
    backup = path.with_suffix(".format1.backup")
    with sqlite3.connect(backup) as kept:
        assert kept.execute("SELECT attempt FROM measures").fetchall() == [("a1",)]
    kept.close()
    assert backup.stat().st_mode & 0o777 == 0o600
    again = ProfilesStore(path)
    assert again.id == store.id and again.count() == 2
    again.close()


def test_what_format_2_measured_is_its_workflows_where_the_run_is_known_and_speaks_for_the_shared_type_too(path: Path) -> None:
    """In format 2 `merge` of one workflow was `merge` of them all."""
    store = ProfilesStore(path)
    store.add([sample(store.id, "a1", "x-1", job_type="merge", wall_s=100.0), sample(store.id, "a2", "y-1", job_type="merge", wall_s=1.0)])
    store.add([sample("far", "a1", "x-1", job_type="merge", wall_s=7.0), sample(store.id, "a3", "gone-1", job_type="merge", wall_s=8.0)])
    store.close()
    with sqlite3.connect(path) as old:
        old.execute("ALTER TABLE samples DROP COLUMN also")
        old.execute("PRAGMA user_version = 2")
    old.close()
    records = RunRecords(path.with_name(profiles_store.RECORDS_NAME))
    for name in ("x", "y"):
        records.add(RunRecord(f"{name}-1", name, f"work {name}", "", 1.0, 1))
    records.close()
    content = path.read_bytes()
    for upgraded in (False, True):
        found = read_profiles(path)
        assert {name: found[name].wall_s.median for name in ("work x/merge", "work y/merge")} == {
            "work x/merge": 100.0,
            "work y/merge": 1.0,
        }
        assert found["merge"].samples == 4 and set(found) == {"merge", "work x/merge", "work y/merge"}
        if not upgraded:
            assert path.read_bytes() == content, "reading changes nothing"
            ProfilesStore(path).close()
    with sqlite3.connect(path.with_suffix(".format2.backup")) as kept:
        assert kept.execute("SELECT count(*) FROM samples WHERE job_type = 'merge'").fetchone() == (4,)
    kept.close()


def test_a_newer_file_is_refused_by_name_and_left_alone(path: Path) -> None:
    ProfilesStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {profiles_store.FORMAT + 1}")
    db.close()
    for use in (ProfilesStore, read_profiles):
        with pytest.raises(Refused, match=f"format {profiles_store.FORMAT + 1} and this stager reads up to") as refusal:
            use(path)
        assert refusal.value.code == "profiles_newer"


def test_a_damaged_file_is_named_with_what_to_do(path: Path) -> None:
    path.write_bytes(b"no database at all, but long enough to be looked at by somebody who expects one" * 20)
    for use in (ProfilesStore, read_profiles):
        with pytest.raises(Corrupt, match="move the file away to begin anew"):
            use(path)


def test_nothing_measured_yet_is_an_empty_mapping(path: Path) -> None:
    assert dict(read_profiles(path)) == {} and not path.exists()


def test_what_cannot_be_written_now_waits_and_its_writer_goes_on(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ProfilesStore(path, busy_s=0.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.add(sample(store.id, f"a{number}", f"r{number}") for number in range(profiles_store.WRITE_TOGETHER))
    assert "100 samples wait" in caplog.text and store.count() == 0
    store.add([sample(store.id, "one more")])
    assert caplog.text.count("samples wait") == 1, "not tried again with every job"
    with pytest.raises(sqlite3.OperationalError):
        store.take_in([sample("far", "b")])
    other.execute("COMMIT")
    other.close()
    store.try_to(store.write)
    assert store.count() == profiles_store.WRITE_TOGETHER + 1 and store.waiting == []
    store.close()


def test_of_what_can_never_be_written_only_so_much_is_held_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles_store, "WAITING_MAX", 150)
    store = ProfilesStore(path, busy_s=0.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for number in range(400):
        store.add([sample(store.id, f"a{number}")])
    assert [entry.attempt for entry in store.waiting[-2:]] == ["a398", "a399"] and len(store.waiting) == 150
    other.close()
    store.close()


def test_a_write_that_fails_in_its_middle_leaves_nothing_and_can_be_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ProfilesStore(path)

    def full(job_type: str, kind: str) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    store.added = {("t", "run"): profiles_store.PRUNE_EVERY}
    store.waiting = [sample(store.id, "a")]
    with monkeypatch.context() as broken:
        broken.setattr(store, "_prune", full)
        store.try_to(store.write)
    assert store.count() == 0 and len(store.waiting) == 1 and not store.db.in_transaction
    store.close()
    assert [entry.attempt for entry in read_samples(path)[0]] == ["a"]
