"""What is remembered of jobs over runs, on disk."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from stager.adapters import results_store
from stager.adapters.results_store import Forgotten, ResultsStore, open_to_read
from stager.model.errors import Corrupt, Refused, Transient
from stager.model.results import KeptOutput, MadeOutput, Result, SeenAt
from stager.model.scatter import Scatter, ScatterForm


def made(key: str, run: str = "w-1", job: str = "a", at: float = 1.0) -> Result:
    return Result(key, run, job, "t", "w", {"command": "x"}, (MadeOutput("out", 5, "b", True),), at, 2.0, at)


def test_a_result_is_found_by_its_key_and_the_newest_counts(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "r")
    store.write("", [made("k"), made("other", job="b")], complete="w-1")
    store.write("", [made("k", "w-2", at=3.0)])
    assert store.result("", "k") == made("k", "w-2", at=3.0) and store.result("bob", "k") is None
    assert [result.run for result in store.results("")] == ["w-2", "w-1"] and store.count() == 2
    found = store.of_job("", "a", "w")
    assert found is not None and found.run == "w-2"
    assert store.complete() == {"w-1"}
    store.reopen("w-1")
    assert store.complete() == set()


def test_tenants_share_nothing(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "r")
    seen = SeenAt("o", "p", "t", 3, "b", 1.0)
    store.write("bob", [made("k")], [seen])
    assert store.result("", "k") is None and store.seen("", "o", ["p"], finals=False) == {}
    assert store.result("bob", "k") == made("k") and store.seen("bob", "o", ["p"], finals=False) == {"p": seen}
    assert store.forget("").results == 0 and store.forget(None).results == 1


def test_an_input_and_a_final_at_one_place_are_two_things(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "r")
    read, written = SeenAt("o", "p", "t1", 3, "b1", 1.0), SeenAt("o", "p", "t2", 3, "b2", 2.0, "readback")
    store.write("", (), [read, written])
    assert store.seen("", "o", ["p"], finals=False) == {"p": read} and store.seen("", "o", ["p"], finals=True) == {"p": written}


def test_what_is_forgotten_is_all_of_what_is_named(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "r")
    store.write("", [made("k1"), made("k2", "w-2"), made("k3", "w-2", "b", 9.0)])
    store.write("", used=[("k1", 20.0)])
    assert store.forget("", run="w-2", job="a").results == 1 and store.forget("", unused_since=10.0).results == 1
    assert [result.key for result in store.results("")] == ["k1"]


def test_a_value_is_told_from_another_and_kept_nowhere(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "r")
    one, two = (store.passed({"S": value}, ["S", "T"]) for value in ("hunter2", "hunter3"))
    assert one["S"] != two["S"] and one["T"] == "" == two["T"]
    store.close()
    assert b"hunter" not in (tmp_path / "r").read_bytes()
    assert ResultsStore(tmp_path / "r").passed({"S": "hunter2"}, ["S"]) == {"S": one["S"]}
    assert ResultsStore(tmp_path / "r2").passed({"S": "hunter2"}, ["S"]) != {"S": one["S"]}


def test_a_newer_or_damaged_file_is_told_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    assert open_to_read(tmp_path / "none") is None
    ResultsStore(tmp_path / "r").close()
    assert (tmp_path / "r").stat().st_mode & 0o077 == 0
    db = sqlite3.connect(tmp_path / "r")
    db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(Refused, match="format 9"):
        open_to_read(tmp_path / "r")
    (tmp_path / "bad").write_bytes(b"no such file" * 1000)
    with pytest.raises(Corrupt, match="jobs run again"):
        ResultsStore(tmp_path / "bad")


KEPT = KeptOutput("f1", 5, "b")


def test_what_is_forgotten_is_forgotten_with_all_that_hangs_on_it_or_not_at_all(tmp_path: Path) -> None:
    """A file that a node keeps, and that no result names, would stay there for ever."""
    store = ResultsStore(tmp_path / "r")
    store.write("", [made("k1"), made("k2", job="b")], kept=[("k1", "out", KEPT)])
    store.db.execute("CREATE TRIGGER fails BEFORE DELETE ON kept BEGIN SELECT RAISE(ABORT, 'the power fails'); END")
    with pytest.raises(Corrupt, match="the power fails"):
        store.forget("")
    assert store.count() == 2 and store.kept_files() == [("", KEPT)]
    store.db.execute("DROP TRIGGER fails")
    assert store.forget("", job="b") == Forgotten(1, 0) and store.forget("") == Forgotten(1, 1)


def test_what_may_pass_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody moves the file away because another program writes it."""
    monkeypatch.setattr(results_store, "BUSY_S", 0.01)
    store, other = ResultsStore(tmp_path / "r"), sqlite3.connect(tmp_path / "r", isolation_level=None)
    store.write("", [made("k1")])
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Transient, match="another program writes there: wait until it has ended, and try again"):
        store.forget("")
    other.execute("ROLLBACK")
    new = sqlite3.connect(tmp_path / "new", isolation_level=None)
    new.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Transient, match="another program"):
        ResultsStore(tmp_path / "new")
    new.close()
    store.db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as full:
        store.write("", [made(f"k{number}") for number in range(1000)])
    assert "make room on the disk" in results_store.unusable(store.path, full.value).message


def test_what_a_node_lost_and_has_again_is_kept(tmp_path: Path) -> None:
    """Lost and made again between two writes: the newest is that it is there."""
    store = ResultsStore(tmp_path / "r")
    store.write("", [made("k")], kept=[("k", "out", KEPT)], gone=["f1"])
    assert store.kept("", "k") == {("k", "out"): KEPT}
    store.write("", gone=["f1"])
    assert store.kept("", "k") == {}


def test_a_list_is_that_of_the_content_it_was_read_from(tmp_path: Path) -> None:
    """A job may make something else with the same key, in a run that scatters over nothing."""
    each = Scatter("part", "names", ("name",), "list", ScatterForm.LINES)
    store = ResultsStore(tmp_path / "r")
    store.write("", [made("k")], members=[("k", each, "b1", (("x",),))])
    store.close()
    store = ResultsStore(tmp_path / "r")
    assert store.members("", "k", each, "b1") == (("x",),)
    assert store.members("", "k", each, "b2") is None and store.members("bob", "k", each, "b1") is None


def test_lists_of_before_that_say_not_of_which_content_they_are_count_for_nothing(tmp_path: Path) -> None:
    each = Scatter("part", "names", ("name",), "list", ScatterForm.LINES)
    ResultsStore(tmp_path / "r").close()
    db = sqlite3.connect(tmp_path / "r")
    db.execute("DROP TABLE member_lists")
    columns = "tenant TEXT, key TEXT, path TEXT, form TEXT, columns TEXT, rows TEXT"
    db.execute(f"CREATE TABLE members ({columns}, PRIMARY KEY (tenant, key, path, form, columns)) WITHOUT ROWID")
    db.execute("INSERT INTO members VALUES ('', 'k', 'names', 'lines', '[\"name\"]', '[[\"x\"]]')")
    db.commit()
    db.close()
    store = open_to_read(tmp_path / "r")
    assert store is not None and store.members("", "k", each, "b1") is None and store.members_before("", "w", "a", each) is None
    store.close()
    store = ResultsStore(tmp_path / "r")
    assert store.members("", "k", each, "b1") is None
    assert store.db.execute("SELECT 1 FROM sqlite_master WHERE name = 'members'").fetchone() is None


def test_of_an_input_that_nobody_looked_at_it_is_told_when_it_was_seen_first(tmp_path: Path) -> None:
    """A cache gives the content that it had under this token, whatever is there now."""
    store = ResultsStore(tmp_path / "r")
    first = SeenAt("o", "p", "t1", 3, "b1", 1.0)
    store.write("", seen=[first])

    def seen(*again: SeenAt, looked: bool, finals: bool = False) -> SeenAt:
        store.write("", seen=again, looked=looked)
        return store.seen("", "o", ["p"], finals=finals)["p"]

    assert seen(replace(first, at=2.0), looked=False) == first
    assert seen(replace(first, at=2.0), looked=True).at == 2.0
    assert seen(other := replace(first, blake3="b2", at=3.0), looked=False) == other, "it was read anew"
    assert seen(other := replace(other, token="t2", at=4.0), looked=False) == other
    written = replace(first, verified="readback")
    seen(written, looked=True, finals=True)
    assert seen(replace(written, at=5.0), looked=False, finals=True).at == 5.0, "the run itself looked at that"
