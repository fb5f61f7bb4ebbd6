"""`stager://` where it could lose, mix or hide something: moves onto themselves, versions, names, forks. A real service and its node."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import random
import threading
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import boto3
import obstore
import pytest
from botocore.config import Config
from fsspec.tests import abstract
from obstore.exceptions import GenericError

from stager.client import RestClient
from stager.fs import StagerFileSystem, browsing, listing
from stager.fs.filesystem import GAP_BYTES, joined
from tests.e2e import test_fs
from tests.e2e.serve_rig import Service

MB = 1_000_000


@pytest.fixture(scope="module")
def service(session_dir: Path) -> Iterator[Service]:
    place = session_dir / "fs-care"
    place.mkdir()
    service = Service(place, "[tenants.alice]\n", ("--storage", "300 MB", "--storage-listen", "127.0.0.1:0"))
    service.start()
    yield service
    service.end()


@pytest.fixture(scope="module")
def said(service: Service) -> dict[str, str]:
    return {"server": service.url, "token": service.token("alice", "submit")}


@pytest.fixture(scope="module")
def alice(said: dict[str, str]) -> StagerFileSystem:
    return StagerFileSystem(**said)


def test_all_suites_that_fsspec_has_are_run() -> None:
    there = {name for name in dir(abstract) if name.startswith("Abstract") and name.endswith("Tests")}
    run = {base.__name__ for each in vars(test_fs).values() if isinstance(each, type) for base in each.__mro__}
    assert there and there <= run


# Moves.


def test_what_is_moved_onto_or_into_itself_is_still_there(alice: StagerFileSystem) -> None:
    alice.pipe({"self/d/x": b"x", "self/d/e/y": b"y", "self/file": b"f"})
    alice.mv("self/file", "self/")
    alice.mv("self/file", "self/file")
    assert alice.cat_file("self/file") == b"f"
    alice.mv("self/d", "self", recursive=True)
    assert alice.find("self/d") == ["self/d/e/y", "self/d/x"], "it is there already"
    alice.mv("self/d", "self/d/sub", recursive=True)
    assert alice.find("self/d") == ["self/d/sub/e/y", "self/d/sub/x"] and alice.cat_file("self/d/sub/x") == b"x"
    alice.mv("self/d/sub/*", "self/flat/", recursive=True)
    assert alice.find("self/flat") == ["self/flat/e/y", "self/flat/x"] and not alice.exists("self/d")
    alice.mv(["self/flat/x", "self/file"], ["self/1", "self/2"])
    assert alice.find("self") == ["self/1", "self/2", "self/flat/e/y"]
    with pytest.raises(FileNotFoundError):
        alice.mv("self/none", "self/other")
    with pytest.raises(IsADirectoryError):
        alice.mv("self/flat", "self/other")
    assert alice.find("self/flat") == ["self/flat/e/y"]


def test_an_empty_bucket_is_removed_and_a_full_one_is_not(alice: StagerFileSystem) -> None:
    alice.mkdir("emptied")
    alice.rmdir("emptied")
    assert not alice.exists("emptied")
    alice.pipe_file("filled/x", b"x")
    with pytest.raises(OSError, match="still holds objects"):
        alice.rmdir("filled")
    alice.rmdir("filled/x/y")
    assert alice.cat_file("filled/x") == b"x"
    with pytest.raises(FileNotFoundError):
        alice.rmdir("never-there")


# Versions.


def test_ranges_that_are_read_together_are_of_one_version(alice: StagerFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = [bytes([letter]) * 8 * MB for letter in b"ab"]
    alice.pipe_file("mixed/x", versions[0])
    asked: list[int] = []
    real = obstore.get
    lock = threading.Lock()

    def get(*words: Any, **more: Any) -> Any:
        """As if somebody wrote it anew once the first answer had come."""
        with lock:
            asked.append(1)
            found = real(*words, **more)
            if len(asked) == 1:
                alice.access.store("mixed").put("x", versions[1])
            return found

    monkeypatch.setattr(obstore, "get", get)
    found = alice.cat_ranges(["mixed/x"] * 3, [0, 3 * MB, 6 * MB], [100, 3 * MB + 100, 6 * MB + 100])
    assert found == [b"b" * 100] * 3 and len(asked) == 6


def test_what_is_read_is_never_of_two_versions_while_others_write(alice: StagerFileSystem) -> None:
    """A byte of its own for each version; whoever reads meets one of them, or is told that it changed."""
    size = 3 * MB
    alice.pipe_file("races/x", b"0" * size)
    over = threading.Event()

    def write(start: int) -> None:
        for number in range(start, start + 12):
            alice.pipe_file("races/x", b"%c" % (97 + number % 26) * (size + number))
        over.set()

    writers = [threading.Thread(target=write, args=(start,)) for start in (0, 12)]
    for each in writers:
        each.start()
    reads = 0
    while not over.is_set() or reads < 5:
        whole = alice.cat_file("races/x")
        assert len(set(whole)) == 1 and len(whole) >= size
        try:
            with alice.open("races/x", block_size=MB) as stream:
                assert len(set(stream.read())) == 1
            parts = alice.cat_ranges(["races/x"] * 2, [0, 2 * MB + 500_000], [100, size], on_error="raise")
            assert len(set(b"".join(parts))) == 1
        except OSError as problem:
            assert problem.errno == errno.ESTALE, problem
        reads += 1
    for each in writers:
        each.join()


def test_ranges_near_each_other_are_read_at_once() -> None:
    assert joined([(0, 10), (20, 30)]) == [(0, 30)] and joined([(20, 30), (0, 10), (5, 25)]) == [(0, 30)]
    far = GAP_BYTES + 11
    assert joined([(far, far + 1), (0, 10)]) == [(0, 10), (far, far + 1)]
    assert joined([(0, 100 * MB), (0, 200 * MB), (1, 2)]) == [(0, 200 * MB)]
    rng = random.Random(7)
    for _ in range(200):
        ranges = [(start, start + rng.randrange(1, 3_000_000)) for start in (rng.randrange(200_000_000) for _ in range(30))]
        spans = joined(ranges)
        assert spans == sorted(spans) and all(a[1] < b[0] for a, b in zip(spans, spans[1:], strict=False))
        assert all(any(first <= start and end <= last for first, last in spans) for start, end in ranges)


# Names and kinds.


@pytest.mark.parametrize("key", ["/a", "a//b", "../x", "a/./b", "a/..", "new\nline", "tab\t", "\x7f"])
def test_a_name_that_cannot_be_is_refused_as_such(alice: StagerFileSystem, key: str) -> None:
    path = f"names/{key}"
    for act in (lambda: alice.pipe_file(path, b"x"), lambda: alice.cat_file(path), lambda: alice.open(path, "wb").close()):
        with pytest.raises(ValueError, match="no empty parts"):
            act()


def test_names_are_taken_as_they_are(alice: StagerFileSystem) -> None:
    names = [f"names2/{key}" for key in ("a%2Fb", "a b", "ü-数据-שלום", "q?x#y&z=1+2", "b\\c", "~t|p", "end ", "k" * 1024)]
    alice.pipe({name: name.encode() for name in names})
    assert sorted(alice.find("names2")) == sorted(names) and alice.cat(names) == {name: name.encode() for name in names}
    for name in names:
        assert alice.info(f"stager://{name}")["name"] == name
    with pytest.raises(OSError, match="1024 bytes") as long:
        alice.pipe_file("names2/" + "ü" * 513, b"")
    assert long.value.errno == errno.ENAMETOOLONG


def of_another_client(said: dict[str, str]) -> Any:
    with RestClient(said["server"], said["token"]) as client:
        given = client.storage()
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 10})
    keys = {"aws_access_key_id": given.access_key_id, "aws_secret_access_key": given.secret_access_key}
    return boto3.client("s3", endpoint_url=given.endpoint, region_name=given.region, config=config, **keys)


@pytest.mark.parametrize("odd", ["/a", "a//b", "d/../x", "new\nline", "d/tab\t", "//"])
def test_a_name_of_another_client_that_cannot_be_hides_no_others(said: dict[str, str], odd: str, caplog: pytest.LogCaptureFixture) -> None:
    there, client = StagerFileSystem(**said, skip_instance_cache=True), of_another_client(said)
    bucket = f"odd-{odd.encode().hex()}"
    there.pipe({f"{bucket}/a/x": b"1", f"{bucket}/d/e/y": b"22", f"{bucket}/z": b"333"})
    for key in (odd, "made/"):
        client.put_object(Bucket=bucket, Key=key, Body=b"")
    plain = [f"{bucket}/a/x", f"{bucket}/d/e/y", f"{bucket}/z"]
    assert there.find(bucket) == plain and there.glob(f"{bucket}/**/[xyz]") == plain and there.du(bucket) == 6
    assert there.find(bucket, maxdepth=1) == [f"{bucket}/z"] and there.find(f"{bucket}/d", withdirs=True)[-1] == f"{bucket}/d/e/y"
    assert there.ls(bucket, detail=False) == [f"{bucket}/{name}" for name in ("a", "d", "made", "z")]
    assert there.ls(f"{bucket}/a", detail=False) == plain[:1] and there.ls(f"{bucket}/made") == [] and there.isdir(f"{bucket}/made")
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING and record.name.startswith("stager.fs")]
    assert len(told) == 1 and repr(odd) in told[0] and f"stager://{bucket}" in told[0], told
    with pytest.raises(OSError, match="still holds objects"):
        there.rm(bucket, recursive=True)
    client.delete_object(Bucket=bucket, Key=odd)
    client.delete_object(Bucket=bucket, Key="made/")
    there.rmdir(bucket)


def test_a_list_of_many_pages_is_whole(alice: StagerFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(f"paged/{number % 3}/{number:03}" for number in range(40))
    alice.pipe(dict.fromkeys(names, b"x"))
    monkeypatch.setattr(listing, "PAGE", 7)
    assert alice.find("paged") == names and alice.ls("paged", detail=False) == ["paged/0", "paged/1", "paged/2"]
    assert alice.ls("paged/1", detail=False) == [name for name in names if name.startswith("paged/1/")]


def test_a_bucket_that_cannot_be_is_not_there(alice: StagerFileSystem) -> None:
    assert not alice.exists("Bad_Bucket") and not alice.exists("Bad_Bucket/x") and not alice.isdir("Bad_Bucket")
    for look in (alice.info, alice.ls, alice.cat_file):
        with pytest.raises(FileNotFoundError):
            look("Bad_Bucket/x" if look == alice.cat_file else "Bad_Bucket")


def test_a_directory_is_no_file_and_has_no_time(alice: StagerFileSystem) -> None:
    alice.pipe_file("kinds/d/x", b"x")
    for path in ("kinds", "kinds/d"):
        with pytest.raises(IsADirectoryError):
            alice.open(path, "rb")
        with pytest.raises(IsADirectoryError):
            alice.modified(path)


def test_a_server_without_its_scheme_is_named_at_once() -> None:
    with pytest.raises(ValueError, match="begins with http"):
        StagerFileSystem("127.0.0.1:7433", "stg_x")


# Processes.


def read_there(said: dict[str, str], answers: Queue[Any]) -> None:
    try:
        answers.put(StagerFileSystem(**said, skip_instance_cache=True).cat_file("forks/x"))
    except BaseException as problem:
        answers.put(f"{type(problem).__name__}: {problem}")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_that_was_forked_off_is_told_so_and_does_not_wait_for_ever(
    alice: StagerFileSystem, said: dict[str, str], method: str
) -> None:
    alice.pipe_file("forks/x", b"x")
    context: Any = multiprocessing.get_context(method)
    answers = context.Queue()
    process = context.Process(target=read_there, args=(said, answers))
    process.start()
    try:
        answer = answers.get(timeout=240)
        assert answer == b"x" if method == "spawn" else "spawn or forkserver" in answer
    finally:
        process.kill()
        process.join()


def test_a_file_that_was_open_over_a_fork_is_told_so(alice: StagerFileSystem) -> None:
    alice.pipe_file("forks/y", b"x")
    reader, writer = alice.open("forks/y", cache_type="none"), alice.open("forks/z", "wb")
    child = os.fork()
    if child == 0:
        told = 0
        for act in (lambda: reader.read(1), lambda: (writer.write(b"z"), writer.close())):
            try:
                act()
            except RuntimeError:
                told += 1
        os._exit(7 if told == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    writer.write(b"here")
    writer.close()
    assert alice.cat_file("forks/z") == b"here"


# Nodes that end.

UNSENT = """Generic S3 error: Error performing GET http://127.0.0.1:1/kept/x in 296.172µs - HTTP error: error sending request
HttpError { kind: Unknown, source: reqwest::Error { kind: Request, source: hyper::Error(Canceled, "connection was not ready") } }"""
CUT = UNSENT.replace("Canceled", "IncompleteMessage").replace("connection was not ready", "connection closed before message completed")


class Breaking:
    """Each of these calls of obstore ends so, the first `times` that it is made: what a node leaves that is killed just then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, said: str, times: int) -> None:
        self.calls = 0
        for name in ("get", "head", "put"):
            monkeypatch.setattr(obstore, name, self.instead(getattr(obstore, name), GenericError(said), times))
        monkeypatch.setattr(browsing, "PAUSES_S", (0.0, 0.0))

    def instead(self, real: Callable[..., Any], broken: Exception, times: int) -> Callable[..., Any]:
        left = iter(range(times))

        def call(*words: Any, **more: Any) -> Any:
            self.calls += 1
            if next(left, None) is not None:
                raise broken
            return real(*words, **more)

        return call


@pytest.mark.parametrize("broke", [UNSENT, CUT], ids=["unsent", "cut"])
def test_what_is_read_is_asked_again_where_the_connection_broke(
    alice: StagerFileSystem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broke: str
) -> None:
    alice.pipe({"broken/x": b"0123456789", "broken/y": b"y"})
    Breaking(monkeypatch, broke, 2)
    assert alice.info("broken/x")["size"] == 10
    assert alice.cat_file("broken/x", 2, 4) == b"23"
    monkeypatch.undo()
    Breaking(monkeypatch, broke, 1)
    assert alice.cat_ranges(["broken/x", "broken/x"], [0, 8], [2, 10]) == [b"01", b"89"]
    monkeypatch.undo()
    Breaking(monkeypatch, broke, 2)
    alice.get_file("broken/x", str(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"0123456789"
    monkeypatch.undo()
    for_good = Breaking(monkeypatch, broke, 9)
    with pytest.raises(OSError, match="the connection broke"):
        alice.cat_file("broken/x")
    assert for_good.calls == 3


def test_what_is_written_is_sent_again_only_where_nothing_was_asked(alice: StagerFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    alice.pipe("broken/w", b"before")
    Breaking(monkeypatch, UNSENT, 2)
    alice.pipe("broken/w", b"after")
    monkeypatch.undo()
    assert alice.cat_file("broken/w") == b"after"
    cut = Breaking(monkeypatch, CUT, 1)
    with pytest.raises(OSError, match="the connection broke"):
        alice.pipe("broken/w", b"once more")
    assert cut.calls == 1
    monkeypatch.undo()
    assert alice.cat_file("broken/w") == b"after"
