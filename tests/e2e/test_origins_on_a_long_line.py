"""Origins behind a long, narrow line of the bed: what a job waits for comes first, and servers are not asked for more than they stand."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.ionode import IoNode
from tests.testbed.network import Network, Wan
from tests.testbed.s3 import S3, running_s3
from tests.testbed.sshd import Sshd, running_sshd
from tests.testbed.waiting import wait_until
from tests.testbed.web import running_web

LINE, NARROW = Wan(rtt_s=0.03, rate_mbit_s=100), Wan(rtt_s=0.03, rate_mbit_s=10)
LARGE_BYTES, WANTED_BYTES = 20_000_000, 10_000_000
SIZES = {f"large{number}": LARGE_BYTES for number in range(6)} | dict.fromkeys(("alone", "first", "second"), WANTED_BYTES)
AHEAD_BYTES = 2_500_000
PREFETCH, DEMAND, WRITE_BACK = 10, 0, 20
REFUSALS = re.compile(r"MaxStartups|drop connection|no more sessions|maximum authentication|Too many|refused", re.IGNORECASE)


@pytest.fixture
def lab(net: Network, short_dir: Path, memory_dir: Path) -> Iterator[Sshd]:
    """A stock sshd behind the line."""
    (short_dir / "ssh").mkdir(mode=0o700)
    with running_sshd(short_dir / "ssh", memory_dir / "data", where=net.host("lab", wan=LINE)) as server:
        yield server


def make(place: Path, sizes: dict[str, int]) -> None:
    for name, size_bytes in sizes.items():
        (place / name).write_bytes(os.urandom(size_bytes))
        os.utime(place / name, (1_700_000_000, 1_700_000_000))


@contextmanager
def s3_behind(net: Network, line: Wan, short_dir: Path, sizes: dict[str, int]) -> Iterator[S3]:
    """With a bucket of such objects."""
    (short_dir / "s3").mkdir()
    cloud = net.host("cloud", wan=line)
    with running_s3(short_dir / "s3", where=cloud) as s3:
        with cloud.inside():
            s3.make_bucket("bucket")
            for name, size_bytes in sizes.items():
                s3.client().put_object(Bucket="bucket", Key=name, Body=os.urandom(size_bytes))
        yield s3


def fetch(node: IoNode, entry: dict[str, Any], priority: int, origin: str = "o") -> None:
    name = entry["path"]
    expected = {"size_bytes": entry["size_bytes"], "token": entry["token"], "blake3": None, "sha256": None}
    body = {"kind": "fetch", "file_id": name, "generation": "g", "source": {"origin_id": origin, "path": name}, "expected": expected}
    node.do("PUT", f"/v1/transfers/t-{name}", body | {"priority": priority, "executable": False})


def stat(node: IoNode, names: Sequence[str], origin: str = "o") -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = node.do("POST", f"/v1/origins/{origin}/stat", {"paths": list(names)})["entries"]
    return entries


def moved_bytes(node: IoNode, transfers: Sequence[str], size_bytes: int = LARGE_BYTES) -> int:
    """Of files of this size each. A transfer that was heard of as ended is not told of any more."""
    told = {transfer["transfer_id"]: transfer["bytes_done"] for transfer in node.get("/v1/transfers")["transfers"]}
    return sum(told.get(each, size_bytes) for each in transfers)


def ends(node: IoNode, count: int, wait_s: float = 60) -> list[dict[str, Any]]:
    events = []
    for event in node.events(wait_s=wait_s):
        events.append(event)
        if len(events) == count:
            break
    return events


def seconds_until_here(node: IoNode, wanted: dict[str, Any]) -> float:
    begin = time.monotonic()
    fetch(node, wanted, DEMAND)
    assert node.event_of(f"t-{wanted['path']}")["kind"] == "transfer_done"
    return time.monotonic() - begin


def most_of_the_line_is_had(node: IoNode) -> None:
    """Beside six that fill the line it would take seven times as long as alone; and those arrive in the end."""
    *large, alone, first, second = stat(node, list(SIZES))
    alone_s = seconds_until_here(node, alone)
    for entry in large:
        fetch(node, entry, PREFETCH)
    crowd = [f"t-{entry['path']}" for entry in large]
    wait_until(lambda: moved_bytes(node, crowd) > 30_000_000, "prefetch to fill the line")
    assert_most_is_had(node, crowd, alone_s, lambda: seconds_until_here(node, first), lambda: seconds_until_here(node, second))
    assert {event["kind"] for event in ends(node, len(large) + 2)} == {"transfer_done"}


def assert_most_is_had(node: IoNode, crowd: Sequence[str], alone_s: float, *moves: Callable[[], float]) -> None:
    """By the clock, or by what the crowd moved meanwhile: where others have the processors, all on the line are slow. The line is full for
    each of `moves`, and one is enough.
    """
    found = []
    for move in moves:
        before_bytes = moved_bytes(node, crowd)
        taken_s, crowd_bytes = move(), moved_bytes(node, crowd) - before_bytes
        if taken_s < 3 * alone_s or crowd_bytes < 2 * WANTED_BYTES:
            return
        found.append(f"{taken_s:.2f} s, alone {alone_s:.2f} s; the others moved {crowd_bytes:,} bytes")
    raise AssertionError("; ".join(found))


def test_a_file_that_a_job_waits_for_gets_most_of_a_full_line_from_sftp(net: Network, lab: Sshd, ionode: Callable[..., IoNode]) -> None:
    make(lab.data, SIZES)
    node = ionode(where=net.host("node0"))
    node.do("PUT", "/v1/origins/o", lab.origin())
    most_of_the_line_is_had(node)


def test_a_file_that_a_job_waits_for_gets_most_of_a_full_line_from_s3(net: Network, short_dir: Path, ionode: Callable[..., IoNode]) -> None:
    with s3_behind(net, LINE, short_dir, SIZES) as s3:
        node = ionode(where=net.host("node0"))
        node.do("PUT", "/v1/origins/o", s3.origin("bucket"))
        most_of_the_line_is_had(node)


def test_a_file_that_a_job_waits_for_gets_most_of_a_full_line_from_the_web(
    net: Network, short_dir: Path, ionode: Callable[..., IoNode]
) -> None:
    with running_web(short_dir / "web", where=net.host("archive", wan=LINE)) as web:
        make(web.data, SIZES)
        node = ionode(where=net.host("node0"))
        node.do("PUT", "/v1/origins/o", web.origin())
        most_of_the_line_is_had(node)


def test_on_a_narrow_line_what_a_job_waits_for_is_behind_two_seconds_of_it(
    net: Network, short_dir: Path, ionode: Callable[..., IoNode]
) -> None:
    """Pieces over connections of their own share the line, so each takes as long as all: that once looked like a long line, and what a
    job waited for was behind six seconds of it.
    """
    sizes = {f"ahead{number}": AHEAD_BYTES for number in range(9)} | {"first": 500_000, "second": 500_000}
    with s3_behind(net, NARROW, short_dir, sizes) as s3:
        node = ionode(where=net.host("node0"))
        node.do("PUT", "/v1/origins/o", s3.origin("bucket"))
        *ahead, first, second = stat(node, list(sizes))
        for entry in ahead:
            fetch(node, entry, PREFETCH)
        crowd, found = [f"t-{entry['path']}" for entry in ahead], []
        for moved, wanted in ((7_500_000, first), (12_000_000, second)):
            wait_until(lambda at_least=moved: moved_bytes(node, crowd, AHEAD_BYTES) > at_least, "the line to be known")
            before_bytes = moved_bytes(node, crowd, AHEAD_BYTES)
            seconds_until_here(node, wanted)
            found.append(moved_bytes(node, crowd, AHEAD_BYTES) - before_bytes)
    # Two megabytes are under way on such a line, and a few more pieces go in between. One try is enough: others have the processors.
    assert min(found) < 3_800_000, f"{found} bytes of others came meanwhile"


def upload(node: IoNode, name: str, priority: int) -> None:
    body = {"kind": "upload", "file_id": name, "generation": "g", "destination": {"origin_id": "o", "path": name}, "on_exists": "fail"}
    node.do("PUT", f"/v1/transfers/u-{name}", body | {"verify": "auto", "priority": priority, "make_executable": False})


def seconds_until_there(node: IoNode, name: str) -> float:
    begin = time.monotonic()
    upload(node, name, DEMAND)
    assert node.event_of(f"u-{name}")["kind"] == "transfer_done"
    return time.monotonic() - begin


def test_an_upload_that_is_waited_for_gets_most_of_a_full_line_to_sftp(
    net: Network, lab: Sshd, short_dir: Path, ionode: Callable[..., IoNode]
) -> None:
    (short_dir / "here").mkdir()
    make(short_dir / "here", SIZES)
    node = ionode(where=net.host("node0"))
    node.do("PUT", "/v1/origins/here", {"kind": "file", "base_path": str(short_dir / "here")})
    node.do("PUT", "/v1/origins/o", lab.origin(shell_checksum=True))
    for entry in stat(node, list(SIZES), "here"):
        fetch(node, entry, DEMAND, "here")
    assert {event["kind"] for event in ends(node, len(SIZES))} == {"transfer_done"}
    *large, alone, first, second = SIZES
    alone_s = seconds_until_there(node, alone)
    for name in large:
        upload(node, name, WRITE_BACK)
    crowd = [f"u-{name}" for name in large]
    wait_until(lambda: moved_bytes(node, crowd) > 30_000_000, "write-back to fill the line")
    assert_most_is_had(node, crowd, alone_s, lambda: seconds_until_there(node, first), lambda: seconds_until_there(node, second))


def test_a_stock_sshd_refuses_nothing_and_small_files_fill_the_line(net: Network, lab: Sshd, ionode: Callable[..., IoNode]) -> None:
    names = [f"f{number:04d}" for number in range(600)]
    make(lab.data, dict.fromkeys(names, 65_536))
    node = ionode(where=net.host("node0"))
    node.do("PUT", "/v1/origins/o", lab.origin())
    entries = stat(node, names)
    begin = time.monotonic()
    for entry in entries:
        fetch(node, entry, 5)
    assert {event["kind"] for event in ends(node, len(names))} == {"transfer_done"}
    taken_s = time.monotonic() - begin
    log = lab.server.log_text() if lab.server else ""
    assert not (refused := REFUSALS.findall(log)), refused
    assert 1 <= log.count("Starting session: subsystem 'sftp'") <= 4
    # 3.1 s by the line, 108 s by six round trips for one file after the other; 30 s where ten others want the processors.
    assert taken_s < 54, f"{taken_s:.1f} s"


@pytest.fixture
def crowded(net: Network, short_dir: Path, memory_dir: Path) -> Iterator[Sshd]:
    """Three logins at once are welcome, more than six are not."""
    (short_dir / "ssh").mkdir(mode=0o700)
    with running_sshd(short_dir / "ssh", memory_dir / "data", where=net.host("lab", wan=LINE), max_startups="3:50:6") as server:
        yield server


def turned_away(server: Sshd) -> int:
    assert server.server is not None
    return server.server.log_text().count("drop connection")


def test_nodes_at_one_crowded_sshd_get_all_files_and_do_not_hammer(net: Network, crowded: Sshd, ionode: Callable[..., IoNode]) -> None:
    """Strangers who never log in stand in the door when the nodes come, and go away later."""
    sizes = {f"f{number:04d}": 65_536 for number in range(200)} | {f"large{number}": 8_000_000 for number in range(4)}
    make(crowded.data, sizes)
    nodes = [ionode(where=net.host(f"node{number}")) for number in range(4)]
    for node in nodes:
        node.do("PUT", "/v1/origins/o", crowded.origin())
    with crowded.where.inside():
        unauthenticated = [socket.create_connection((crowded.where.address, crowded.port)) for _ in range(40)]
    wait_until(lambda: turned_away(crowded) >= 34, "all but six strangers to be turned away")
    before = turned_away(crowded)
    for number, node in enumerate(nodes):
        for name in list(sizes)[number::4]:
            entry = {"path": name, "size_bytes": sizes[name], "token": f"m=1700000000;s={sizes[name]}"}
            fetch(node, entry, 5)
    wait_until(lambda: turned_away(crowded) >= before + 4, "the nodes to be turned away")
    for stranger in unauthenticated:
        stranger.close()
    for number, node in enumerate(nodes):
        wanted = len(list(sizes)[number::4])
        assert {event["kind"] for event in ends(node, wanted)} == {"transfer_done"}
    # Each node knocks a few times for its first connection, with growing pauses, and now and then for one more.
    assert turned_away(crowded) - before <= 24, f"{turned_away(crowded) - before} times"
    log = crowded.server.log_text() if crowded.server else ""
    assert 4 <= log.count("Starting session: subsystem 'sftp'") <= 16
