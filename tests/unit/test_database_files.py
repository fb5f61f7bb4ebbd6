"""What a person is told of a database file that cannot be used: only a damaged one is to be moved away."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from stager.adapters.journal_sqlite import SqliteJournal
from stager.adapters.profiles_store import ProfilesStore
from stager.adapters.results_store import ResultsStore
from stager.adapters.run_records import RunRecords
from stager.model.errors import Corrupt, Transient
from stager.scheduler import events as ev
from tests.testbed.tiny_disk import tiny_disk

STORES: list[Callable[[Path], object]] = [lambda path: SqliteJournal(path, "1"), RunRecords, ProfilesStore, ResultsStore]
ALL = pytest.mark.parametrize("store", STORES, ids=["journal", "records", "profiles", "results"])


@ALL
def test_what_is_no_database_is_named_and_may_be_moved_away(store: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "file.sqlite"
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(Corrupt, match=r"file\.sqlite .*not a database.*move"):
        store(path)


@ALL
def test_on_a_full_disk_nobody_is_told_to_move_the_file_away(store: Callable[[Path], object], tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        path = disk / "file.sqlite"
        store(path).close()  # type: ignore[attr-defined]
        fill(disk / "filling")
        with pytest.raises(Transient, match=r"file\.sqlite .*make room on the disk") as told:
            store(path)
        assert "move" not in told.value.message
        (disk / "filling").unlink()
        store(path).close()  # type: ignore[attr-defined]


def test_a_batch_that_is_missing_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    of_three_batches(path).close()
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM batches WHERE seq = 2")
    for after in (0, 1):
        with pytest.raises(Corrupt, match="batch 2 of the journal .* is missing"):
            list(SqliteJournal(path, "1").batches(after))


def test_a_journal_that_was_begun_anew_lacks_no_batch(tmp_path: Path) -> None:
    """Whoever read the old one up to some place, and not since, goes on with what there is: its numbers go on."""
    path = tmp_path / "journal.sqlite"
    journal = of_three_batches(path)
    journal.clear()
    journal.append([ev.Woken(at=4.0)], [])
    assert [batch.number for batch in journal.batches(1)] == [4]
    journal.close()
    assert [batch.number for batch in SqliteJournal(path, "1").batches(1)] == [4]


def of_three_batches(path: Path) -> SqliteJournal:
    journal = SqliteJournal(path, "1")
    for at in (1.0, 2.0, 3.0):
        journal.append([ev.Woken(at=at)], [])
    return journal


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(os.sysconf("SC_PAGE_SIZE")))
            except OSError:
                return
