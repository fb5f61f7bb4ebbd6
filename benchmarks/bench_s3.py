"""The S3 endpoint beside versitygw: small and large PUTs and GETs over the same sockets, with URLs that were signed before.

Each request is presigned (SigV4), so that the client's share is the same and small; processor time is the server's alone. versitygw does
not fsync what it acknowledges, we do: the row without fsync is the like for like.
Again: `python benchmarks/bench_s3.py [--small N] [--dir DIR]`.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.testbed.own_place import own_place
from tests.testbed.s3 import S3
from tests.testbed.s3_face import S3Face
from tests.testbed.usage import cpu_of, machine

SMALL_BYTES, LARGE_BYTES, LARGE_COUNT = 4096, 64 << 20, 12
CLIENTS = 16
BUCKET = "bench"


@dataclass(frozen=True)
class Side:
    name: str
    client: Any
    port: int
    pid: int


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float


def signed_urls(side: Side, what: str, count: int, prefix: str) -> list[str]:
    """Paths with their signatures."""
    sign = side.client.generate_presigned_url
    urls = (sign(what, Params={"Bucket": BUCKET, "Key": f"{prefix}/{number:06d}"}, ExpiresIn=3600) for number in range(count))
    return [url.split("/", 3)[3] for url in urls]


def ask(line: socket.socket, reader: Any, method: str, path: str, body: bytes, port: int) -> int:
    """One request; the number of bytes of its answer's body."""
    head = f"{method} /{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    if len(body) < 65536:
        line.sendall(head + body)
    else:
        line.sendall(head)
        line.sendall(body)
    status = reader.readline()
    assert b" 200 " in status or b" 204 " in status, (status, reader.read1(2000))
    length = 0
    while (header := reader.readline()) != b"\r\n":
        name, _, value = header.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    left, buffer = length, memoryview(bytearray(1 << 20))
    while left:
        left -= reader.readinto(buffer[: min(left, len(buffer))])
    return length


def one_client(port: int, method: str, paths: list[str], body: bytes, ready: Any, go: Any, done: Any) -> None:
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = line.makefile("rb", buffering=1 << 20)
        ready.release()
        go.wait()
        try:
            done.put(sum(ask(line, reader, method, path, body, port) for path in paths))
        except (AssertionError, OSError) as error:
            done.put(error)


def measure(side: Side, method: str, urls: list[str], body: bytes, clients: int, expected_bytes: int) -> Cost:
    """`expected_bytes`: of each answer to a GET."""
    context = multiprocessing.get_context("fork")
    ready, go, done = context.Semaphore(0), context.Event(), context.SimpleQueue()
    shares = [urls[at::clients] for at in range(clients)]
    workers = [context.Process(target=one_client, args=(side.port, method, share, body, ready, go, done)) for share in shares]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.acquire()
    before, begun = cpu_of(side.pid), time.monotonic()
    go.set()
    answers = [done.get() for _ in workers]
    wall_s = time.monotonic() - begun
    cost = Cost(wall_s, (cpu_of(side.pid) - before).own_s)
    for worker in workers:
        worker.join()
    if failed := [answer for answer in answers if isinstance(answer, Exception)]:
        raise AssertionError(f"{side.name}: {failed[0]!r}")
    came = sum(answers)
    expected = len(urls) * expected_bytes if method == "GET" else 0
    assert came == expected, f"{side.name}: {came} of {expected} bytes came"
    return cost


@contextlib.contextmanager
def ours(name: str, place: Path, *options: str) -> Iterator[Side]:
    face = S3Face(place / name, share_bytes=20 << 30, options=options)
    face.start()
    try:
        yield Side(name, face.client(signature_version="s3v4"), face.port, face.node.pid)
    finally:
        face.stop()


@contextlib.contextmanager
def versitygw(place: Path) -> Iterator[Side]:
    directory = place / "versitygw"
    directory.mkdir()
    server = S3(directory)
    # It closes each connection after one answer unless it is told to keep it.
    os.environ["VGW_KEEP_ALIVE"] = "true"
    server.start()
    try:
        assert server.server is not None and server.kind == "versitygw", "versitygw is not there: `make setup` builds it where there is go"
        import boto3
        from botocore.config import Config

        keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
        config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
        client = boto3.client("s3", endpoint_url=server.endpoint, region_name=server.region, config=config, **keys)
        yield Side("versitygw", client, server.port, server.server.pid)
    finally:
        server.stop()


def rows(side: Side, small: int) -> dict[str, Cost]:
    side.client.create_bucket(Bucket=BUCKET)
    body, large = bytes(range(256)) * (SMALL_BYTES // 256), bytes(range(256)) * (LARGE_BYTES // 256)
    cases = [("4 KiB", small, CLIENTS, body), ("64 MiB", LARGE_COUNT, 2, large)]
    costs = {}
    for name, count, clients, content in cases:
        for method, what in (("PUT", "put_object"), ("GET", "get_object")):
            urls = signed_urls(side, what, count, name.replace(" ", ""))
            costs[f"{method} {name}"] = measure(side, method, urls, content if method == "PUT" else b"", clients, len(content))
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=10_000, help="how many small objects")
    parser.add_argument("--dir", help="where the stores are made; the disk there counts")
    given = parser.parse_args()
    print(f"{given.small} objects of 4 KiB from {CLIENTS} clients, {LARGE_COUNT} of 64 MiB from 2; clients and server share {machine()}")
    print(f"{'':<26}{'':<14}{'per second':>12}{'MB/s':>9}{'server CPU':>16}{'of versitygw':>14}")
    measured: dict[str, dict[str, Cost]] = {}
    with own_place(given.dir) as place:
        for started in (versitygw(place), ours("stager", place), ours("stager --fsync off", place, "--fsync", "off")):
            with started as side:
                measured[side.name] = rows(side, given.small)
    for case, peer in measured["versitygw"].items():
        count, size = (given.small, SMALL_BYTES) if "KiB" in case else (LARGE_COUNT, LARGE_BYTES)
        for name, costs in measured.items():
            cost = costs[case]
            cpu = f"{cost.cpu_s / count * 1e6:.0f} us each" if size == SMALL_BYTES else f"{cost.cpu_s / (count * size) * 1e9:.2f} s/GB"
            rate = f"{count / cost.wall_s:>12.0f}{count * size / cost.wall_s / 1e6:>9.0f}"
            print(f"{name:<26}{case:<14}{rate}{cpu:>16}{peer.wall_s / cost.wall_s:>13.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
