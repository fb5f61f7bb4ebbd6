"""`stager://` as fsspec's own suites, pandas and dask see it: a real service, its node, nothing in between."""

from __future__ import annotations

import asyncio
import pickle
import random
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import obstore
import pandas
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from stager.fs import StagerFileSystem, access
from tests.e2e.serve_rig import Service

MB = 1_000_000
PROJECT = Path(__file__).resolve().parents[2]
# An environment that was set up before the entry point came does not know it.
fsspec.register_implementation("stager", StagerFileSystem, clobber=True)


@pytest.fixture(scope="module")
def service(session_dir: Path) -> Iterator[Service]:
    place = session_dir / "fs"
    place.mkdir()
    service = Service(place, "[tenants.alice]\n[tenants.bob]\n", ("--storage", "150 MB", "--storage-listen", "127.0.0.1:0"))
    service.start()
    yield service
    service.end()


@pytest.fixture(scope="module")
def said(service: Service) -> dict[str, str]:
    """storage_options of alice."""
    return {"server": service.url, "token": service.token("alice", "submit")}


@pytest.fixture(scope="module")
def alice(said: dict[str, str]) -> StagerFileSystem:
    return StagerFileSystem(**said)


class Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, alice: StagerFileSystem) -> StagerFileSystem:
        return alice

    @pytest.fixture
    def fs_path(self) -> str:
        return "abstract"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestCopy(AbstractCopyTests, Fixtures):
    pass


class TestGet(AbstractGetTests, Fixtures):
    pass


class TestPut(AbstractPutTests, Fixtures):
    pass


class TestOpen(AbstractOpenTests, Fixtures):
    pass


class TestPipe(AbstractPipeTests, Fixtures):
    pass


def test_the_package_tells_fsspec_of_it() -> None:
    named = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]["fsspec.specs"]
    assert EntryPoint("stager", named["stager"], "fsspec.specs").load() is StagerFileSystem


def test_what_is_there_is_seen_as_buckets_directories_and_objects(alice: StagerFileSystem) -> None:
    alice.pipe({"seen/a": b"1", "seen/d/b": b"22", "seen/d/e/c": b"333", "seen/d.txt": b"4444"})
    assert "seen" in alice.ls("", detail=False) and alice.info("stager://seen")["type"] == "directory"
    assert alice.ls("stager://seen/", detail=False) == ["seen/a", "seen/d", "seen/d.txt"]
    assert [each["type"] for each in alice.ls("seen")] == ["file", "directory", "file"]
    assert alice.ls("seen/a", detail=False) == ["seen/a"] and alice.info("seen/d")["type"] == "directory"
    found = alice.info("stager://seen/d/e/c")
    assert (found["name"], found["size"], found["type"]) == ("seen/d/e/c", 3, "file") and found["LastModified"] == alice.modified(
        "seen/d/e/c"
    )
    assert alice.find("seen") == ["seen/a", "seen/d.txt", "seen/d/b", "seen/d/e/c"]
    assert alice.find("seen/d", withdirs=True) == ["seen/d", "seen/d/b", "seen/d/e", "seen/d/e/c"]
    assert alice.find("seen", maxdepth=1) == ["seen/a", "seen/d.txt"] and alice.glob("seen/**/c") == ["seen/d/e/c"]
    assert alice.du("seen") == 10 and alice.du("seen/d", total=False) == {"seen/d/b": 2, "seen/d/e/c": 3}
    assert [(top, sorted(dirs), sorted(files)) for top, dirs, files in alice.walk("seen/d")] == [
        ("seen/d", ["e"], ["b"]),
        ("seen/d/e", [], ["c"]),
    ]
    for absent in ("seen/none", "seen/d/none", "never-made", "never-made/x"):
        assert not alice.exists(absent)
        for look in (alice.info, alice.ls, *((alice.cat_file,) if "/" in absent else ())):
            with pytest.raises(FileNotFoundError):
                look(absent)
    with pytest.raises(IsADirectoryError):
        alice.cat_file("seen")
    with pytest.raises(ValueError, match="3 to 63"):
        alice.pipe_file("X/y", b"")


def test_a_move_is_a_copy_and_a_removal_also_between_buckets(alice: StagerFileSystem) -> None:
    body = random.Random(1).randbytes(3 * MB)
    alice.pipe({"from/x/1": body, "from/x/2": b"two"})
    alice.mv("from/x/1", "from/y/1")
    assert alice.find("from") == ["from/x/2", "from/y/1"] and alice.cat_file("from/y/1") == body
    alice.mv("from/", "onto/", recursive=True)
    assert alice.find("onto") == ["onto/x/2", "onto/y/1"] and alice.cat_file("onto/y/1") == body and alice.find("from") == []
    with pytest.raises(IsADirectoryError):
        alice.rm("onto/x")
    with pytest.raises(FileNotFoundError):
        alice.rm("onto/none")
    alice.rm("onto", recursive=True)
    assert not alice.exists("onto") and not {"onto", "onto/x"} & set(alice.ls("", detail=False))


def test_ranges_are_those_that_were_asked_for(alice: StagerFileSystem) -> None:
    body = random.Random(2).randbytes(3 * MB + 7)
    alice.pipe({"ranges/large": body, "ranges/small": b"small", "ranges/none": b""})
    for start, end in ((None, None), (0, 1), (5, None), (-7, None), (None, -5), (-9, -3), (len(body) - 3, len(body) + 10), (7, 7), (9, 3)):
        assert alice.cat_file("ranges/large", start=start, end=end) == body[start:end], (start, end)
    assert alice.cat_file("ranges/large", len(body) + 5, len(body) + 9) == b"" and alice.cat_file("ranges/none", 0, 5) == b""
    asked = [(0, 4), (2 * MB, 2 * MB + 100), (10, 3 * MB), (len(body) - 1, len(body))]
    paths = ["ranges/large"] * len(asked) + ["stager://ranges/small", "ranges/gone"]
    found = alice.cat_ranges(paths, [each[0] for each in asked] + [1, 0], [each[1] for each in asked] + [99, 1])
    assert found[:-1] == [body[start:end] for start, end in asked] + [b"mall"] and isinstance(found[-1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        alice.cat_ranges(["ranges/gone"], [0], [1], on_error="raise")
    with alice.open("ranges/large", block_size=100_000) as stream:
        stream.seek(-10, 2)
        assert stream.read() == body[-10:] and stream.seek(1234) == 1234 and stream.read(500_000) == body[1234:501_234]


def test_an_object_is_there_whole_when_it_is_closed_and_else_not_at_all(alice: StagerFileSystem) -> None:
    body = random.Random(3).randbytes(37 * MB)
    with alice.open("whole/large", "wb") as stream:
        for start in range(0, len(body), 5 * MB):
            stream.write(body[start : start + 5 * MB])
        assert not alice.exists("whole/large")
    assert alice.cat_file("whole/large") == body
    for size in (3, 20 * MB):
        with pytest.raises(KeyError), alice.open("whole/half", "wb") as stream:
            stream.write(body[:size])
            raise KeyError
        assert not alice.exists("whole/half")
    with alice.open("whole/once", "xb") as stream:
        stream.write(b"first")
        alice.pipe_file("whole/once", b"another came in between")
        with pytest.raises(FileExistsError):
            stream.close()
    assert alice.cat_file("whole/once") == b"another came in between"
    with alice.transaction:
        with alice.open("whole/later", "wb") as stream:
            stream.write(b"x")
        assert not alice.exists("whole/later")
    assert alice.cat_file("whole/later") == b"x"
    with alice.open("whole/text", "wt") as text:
        text.write("größe\n")
    assert alice.read_text("whole/text") == "größe\n"
    with pytest.raises(NotImplementedError, match="written whole"):
        alice.open("whole/text", "ab")


def test_who_reads_reads_one_version(alice: StagerFileSystem) -> None:
    alice.pipe_file("versions/x", b"a" * 20 * MB)
    with alice.open("versions/x", cache_type="none") as stream:
        assert stream.read(5) == b"aaaaa"
        alice.pipe_file("versions/x", b"b" * 20 * MB)
        with pytest.raises(OSError, match="written anew"):
            stream.read(5)


def test_files_go_and_come_whole(alice: StagerFileSystem, tmp_path: Path) -> None:
    body = random.Random(4).randbytes(40 * MB)
    (tmp_path / "up").write_bytes(body)
    (tmp_path / "down").write_text("what was there")
    alice.put_file(str(tmp_path / "up"), "files/two words/größe&c=d+e%41")
    alice.get_file("files/two words/größe&c=d+e%41", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == body and sorted(each.name for each in tmp_path.iterdir()) == ["down", "up"]
    with pytest.raises(FileNotFoundError):
        alice.get_file("files/none", str(tmp_path / "down"))
    with pytest.raises(FileExistsError):
        alice.put_file(str(tmp_path / "up"), "files/two words/größe&c=d+e%41", mode="create")
    assert (tmp_path / "down").read_bytes() == body


def test_what_does_not_fit_is_told_as_a_full_disk_and_leaves_nothing(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(access.RETRIES, "max_retries", 2)
    bob = StagerFileSystem(service.url, service.token("bob", "submit"))
    with pytest.raises(OSError, match="is full"), bob.open("much/x", "wb") as stream:
        for _ in range(20):
            stream.write(bytes(10 * MB))
    assert bob.find("much") == []
    bob.pipe_file("much/y", bytes(20 * MB))
    bob.rm("much", recursive=True)


def test_pandas_writes_and_reads(said: dict[str, str]) -> None:
    frame = pandas.DataFrame({"n": range(1000), "name": [f"row {number}" for number in range(1000)]})
    frame.to_csv("stager://frames/n.csv", index=False, storage_options=said)
    frame.to_parquet("stager://frames/n.parquet", storage_options=said)
    pandas.testing.assert_frame_equal(pandas.read_csv("stager://frames/n.csv", storage_options=said), frame)
    read = pandas.read_parquet("stager://frames/n.parquet", columns=["n"], storage_options=said)
    pandas.testing.assert_frame_equal(read, frame[["n"]])
    frame.to_csv("stager://frames/n.csv.gz", index=False, storage_options=said)
    pandas.testing.assert_frame_equal(pandas.read_csv("stager://frames/n.csv.gz", storage_options=said), frame)


def test_dask_writes_and_reads_in_parts(said: dict[str, str], alice: StagerFileSystem) -> None:
    # 2 s that every worker of pytest would spend, as each of them collects all tests.
    import dask.dataframe

    frame = pandas.DataFrame({"n": range(10_000), "half": [number / 2 for number in range(10_000)]})
    parts = dask.dataframe.from_pandas(frame, npartitions=4)
    parts.to_parquet("stager://dask/parquet", storage_options=said, write_index=False)
    parts.to_csv("stager://dask/csv/part-*.csv", storage_options=said, index=False)
    assert len(alice.glob("dask/parquet/*.parquet")) == len(alice.glob("dask/csv/*.csv")) == 4
    for read in (
        dask.dataframe.read_parquet("stager://dask/parquet", storage_options=said),
        dask.dataframe.read_csv("stager://dask/csv/part-*.csv", storage_options=said),
    ):
        pandas.testing.assert_frame_equal(read.compute().sort_values("n").reset_index(drop=True), frame)


def test_it_is_told_of_by_the_environment_and_travels(
    service: Service, said: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(said["token"] + "\n")
    for name in ("STAGER_SERVER", "STAGER_TOKEN", "STAGER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="STAGER_SERVER"):
        fsspec.filesystem("stager", skip_instance_cache=True)
    monkeypatch.setenv("STAGER_SERVER", service.url)
    with pytest.raises(ValueError, match="STAGER_TOKEN_FILE"):
        fsspec.filesystem("stager", skip_instance_cache=True)
    monkeypatch.setenv("STAGER_TOKEN_FILE", str(tmp_path / "token"))
    # Nothing of what the environment says of other clouds is taken for it.
    for name in ("AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with fsspec.open("stager://told/x", "wb") as stream:
        stream.write(b"x")
    there = pickle.loads(pickle.dumps(fsspec.filesystem("stager", skip_instance_cache=True)))
    assert there.cat_file("told/x") == b"x" and said["token"] not in repr(there) + str(there.__dict__.get("access"))


def test_a_program_that_ends_right_after_a_call_ends_well(said: dict[str, str], alice: StagerFileSystem) -> None:
    """Threads of obstore's runtime that come back to Python while it ends abort it, most times it is tried."""
    alice.pipe_file("ending/x", b"x")
    program = "import sys; from stager.fs import StagerFileSystem; there = StagerFileSystem(*sys.argv[1:3]); "
    calls = ('there.cat_file("ending/x")', 'there.find("ending")', 'there.info("ending/x")', 'there.pipe_file("ending/y", b"")')
    started = [subprocess.Popen([sys.executable, "-c", program + call, said["server"], said["token"]]) for call in calls]
    assert [each.wait(240) for each in started] == [0] * len(started)


def test_a_key_is_replaced_before_it_ends_also_under_a_store_that_is_in_use(said: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def short(server: str, token: str) -> Any:
        given.append(asked(server, token).model_copy(update={"expires_in_s": 6}))
        return given[-1]

    asked, clock = access.asked, SimpleNamespace(now_s=time.monotonic())
    monkeypatch.setattr(access, "asked", short)
    # Its own clock: how long the calls of a busy machine take is not asked.
    monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: clock.now_s, sleep=time.sleep))
    there = StagerFileSystem(**said, skip_instance_cache=True)
    there.pipe_file("keys/x", b"x")
    store = there.access.store("keys")
    for number in (1, 2, 3):
        count = len(given)
        assert there.cat_file("keys/x") == b"x" and bytes(obstore.get(store, "x").bytes()) == b"x"
        assert len(given) - count <= 1, number
        assert there.access.known("keys") is not None
        clock.now_s += given[-1].expires_in_s / 2
        assert there.access.known("keys") is None
        assert bytes(obstore.get(store, "x").bytes()) == b"x"
    assert 3 <= len(given) <= 8


def test_it_serves_loops_of_others(said: dict[str, str]) -> None:
    async def go() -> bytes:
        there = StagerFileSystem(**said, asynchronous=True, skip_instance_cache=True)
        await there._pipe_file("loops/x", b"over there")
        found: bytes = await there._cat_file("loops/x", 5, 10)
        return found

    assert asyncio.run(go()) == b"there"[0:5]
