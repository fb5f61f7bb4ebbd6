"""Warm GETs of 64 MiB and of 4 KiB to 1 and 32 clients: the node's content route and its S3 endpoint beside nginx (sendfile) and versitygw.

One generator for all, wrk with kept connections; the keys of S3 are in presigned URLs. Generator and server share the processors, so the
server's own processor time stands beside each rate: it says what a server costs whatever the generator takes.
Again: `python benchmarks/bench_serving.py [--seconds N] [--rounds N] [--quick] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import bench_s3
from benchmarks.measuring import Table, goal, watched
from benchmarks.ours import bench_node, running_node
from tests.testbed.ionode import IoNode
from tests.testbed.own_place import own_place
from tests.testbed.places import ionode_binary, program
from tests.testbed.processes import descendants
from tests.testbed.usage import cpu_of, machine
from tests.testbed.web import Web

SIZES = {"4 KiB": 4096, "64 MiB": 64 << 20}
CLIENTS = (1, 32)
PACK_FILES, PACK_BATCH = 20_000, 100
NODE, PACKS, S3, NGINX = "stager, node token", "stager, packs", "stager, S3", "nginx, sendfile"
GOAL_SMALL_PER_S = 60_000
# As Debian's nginx.conf has it, apart from its log of each request.
NGINX_LOCATIONS = "sendfile on; tcp_nopush on; access_log off;"


@dataclass(frozen=True)
class Server:
    name: str
    pid: int
    urls: dict[str, str]
    headers: dict[str, str] = field(default_factory=dict)

    def cpu_s(self) -> float:
        return sum(cpu_of(pid).own_s for pid in (self.pid, *descendants(self.pid)))


def load(server: Server, size: str, clients: int, seconds: float) -> tuple[float, float, float]:
    """Requests a second, processor seconds of the server a request, the share of the machine."""
    argv = ["wrk", "-t1", f"-c{clients}", f"-d{seconds:g}s", "--timeout", "60s"]
    argv += [word for name, value in server.headers.items() for word in ("-H", f"{name}: {value}")]
    before = server.cpu_s()
    with watched() as watch:
        said = subprocess.run([*argv, server.urls[size]], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    requests, took_s, came_bytes = counted(said)
    assert "Non-2xx" not in said and "Socket errors" not in said, f"{server.name}: {said}"
    # Requests that the end of the time cut off are not counted, their bytes are.
    done = max(requests, came_bytes / (SIZES[size] + 1024)) if size == "64 MiB" else requests
    return done / took_s, (server.cpu_s() - before) / max(done, 1), watch.busy


def counted(said: str) -> tuple[int, float, float]:
    """From wrk's summary: requests, seconds, bytes."""
    found = re.search(r"(\d+) requests in ([\d.]+)(s|m), ([\d.]+)(B|KB|MB|GB|TB) read", said)
    assert found, said
    seconds = float(found[2]) * (60 if found[3] == "m" else 1)
    return int(found[1]), seconds, float(found[4]) * 1024 ** ["B", "KB", "MB", "GB", "TB"].index(found[5])


def contents(place: Path) -> dict[str, Path]:
    made = {}
    for name, size in SIZES.items():
        made[name] = place / name.replace(" ", "")
        made[name].write_bytes(os.urandom(size))
    return made


def of_node(node: IoNode, files: dict[str, Path]) -> Server:
    urls = {}
    for name, path in files.items():
        argv = [ionode_binary(), "push", path, "--node", f"{node.address}@{node.token_file}", "--file", path.name, "--generation", "g"]
        subprocess.run([str(word) for word in argv], check=True, capture_output=True)
        urls[name] = f"http://{node.address}/v1/replicas/{path.name}/g/content"
    headers = {"Authorization": f"Bearer {node.token_file.read_text().strip()}", "X-Stager-Api": "1", "X-Stager-Epoch": "1"}
    return Server(NODE, node.pid, urls, headers | {"X-Stager-Incarnation": node.incarnation})


def of_s3(side: bench_s3.Side, files: dict[str, Path], name: str) -> Server:
    side.client.create_bucket(Bucket=bench_s3.BUCKET)
    urls = {}
    for what, path in files.items():
        with path.open("rb") as body:
            side.client.put_object(Bucket=bench_s3.BUCKET, Key=path.name, Body=body)
        asked = {"Bucket": bench_s3.BUCKET, "Key": path.name}
        urls[what] = side.client.generate_presigned_url("get_object", Params=asked, ExpiresIn=3600)
    return Server(name, side.pid, urls)


@contextlib.contextmanager
def of_nginx(place: Path, files: dict[str, Path]) -> Iterator[Server]:
    web = Web(place / "nginx", NGINX_LOCATIONS, workers="auto")
    for path in files.values():
        os.link(path, web.data / path.name)
    web.start()
    try:
        assert web.server is not None
        yield Server(NGINX, web.server.pid, {name: f"{web.url()}/{path.name}" for name, path in files.items()})
    finally:
        web.stop()


class Bed:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.rates, self.costs = Table("GETs/s"), Table("CPU us each")

    def round(self, node: IoNode, servers: list[Server]) -> None:
        for size in SIZES:
            for clients in CLIENTS:
                case = f"{size}, {clients} client{'s' if clients > 1 else ''}"
                for server in servers:
                    rate, cpu_s, busy = load(server, size, clients, self.seconds)
                    note = f"{rate * SIZES[size] / 1e6:,.0f} MB/s" if SIZES[size] > 1 << 20 else ""
                    self.rates.add(case, server.name, rate, busy, note)
                    self.costs.add(case, server.name, cpu_s * 1e6, busy)
                if size == "4 KiB":
                    packed = bench_node(node, PACK_FILES, SIZES[size], clients, PACK_BATCH)["get"]
                    self.rates.add(
                        case, PACKS, packed["ops_per_s"], packed["busy"], f"{PACK_BATCH} a request; busy also with puts and deletes"
                    )

    def goals(self) -> None:
        rows, costs = self.rates.rows, self.costs
        for case in (case for case, side in rows if side == NODE and case.startswith("64")):
            ours, nginx = rows[case, NODE], rows[case, NGINX]
            print(goal(f"{case}, node token, of nginx", ours.median / nginx.median, 1.0, ours, nginx))
            print(f"  processor time of the server, of nginx: {costs.median(case, NODE) / costs.median(case, NGINX):.2f}")
        for side in (NODE, PACKS):
            ours = rows["4 KiB, 32 clients", side]
            print(goal(f"4 KiB, 32 clients, GETs/s of {side}", ours.median, GOAL_SMALL_PER_S, ours))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4, help="of each row in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one second each, one round")
    parser.add_argument("--dir", type=Path, help="where the files are (default: a temporary directory)")
    options = parser.parse_args()
    if program("wrk") is None:
        sys.exit("the generator is not installed: apt-get install wrk")
    seconds, rounds = (1, 1) if options.quick else (options.seconds, options.rounds)
    with own_place(options.dir) as place, contextlib.ExitStack() as stack:
        files, bed = contents(place), Bed(seconds)
        node = stack.enter_context(running_node(place, "--scrub-bytes-per-s", "0"))
        servers = [of_node(node, files), stack.enter_context(of_nginx(place, files))]
        servers.append(of_s3(stack.enter_context(bench_s3.ours("s3", place)), files, S3))
        servers.append(of_s3(stack.enter_context(bench_s3.versitygw(place)), files, "versitygw"))
        for server in servers:
            load(server, "64 MiB", 1, 1)
        for number in range(rounds):
            bed.round(node, servers if number % 2 == 0 else servers[::-1])
    print(f"warm files, wrk -t1 for {seconds:g} s each, median of {rounds}; nginx with a worker for each core")
    print(f"{bed.rates.text()}\n\nprocessor time of the server\n{bed.costs.text()}")
    bed.goals()
    print(machine())


if __name__ == "__main__":
    main()
