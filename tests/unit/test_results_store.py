"""What is remembered of jobs over runs, on disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stager.adapters.results_store import ResultsStore, open_to_read
from stager.model.errors import Corrupt, Refused
from stager.model.results import MadeOutput, Result, SeenAt


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
    assert store.forget("") == 0 and store.forget(None) == 1


def test_an_input_and_a_final_at_one_place_are_two_things(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "r")
    read, written = SeenAt("o", "p", "t1", 3, "b1", 1.0), SeenAt("o", "p", "t2", 3, "b2", 2.0, "readback")
    store.write("", (), [read, written])
    assert store.seen("", "o", ["p"], finals=False) == {"p": read} and store.seen("", "o", ["p"], finals=True) == {"p": written}


def test_what_is_forgotten_is_all_of_what_is_named(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "r")
    store.write("", [made("k1"), made("k2", "w-2"), made("k3", "w-2", "b", 9.0)])
    store.write("", used=[("k1", 20.0)])
    assert store.forget("", run="w-2", job="a") == 1 and store.forget("", unused_since=10.0) == 1
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
