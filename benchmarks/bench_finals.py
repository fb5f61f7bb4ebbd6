"""Many small finals home over a long line: a run of one job, beside what a user would copy them with, in one run.

Two hosts of the bed: `lab` behind the line serves, `node0` runs. Ours is timed by the run's journal, from the end of the job's program to
the last final that is durable: committing is in it, and every final was hashed, verified at the origin and put on its disk. The peers copy
a directory that is there and look at nothing again; the file origin's peer syncs. CPU: of the I/O node, or of the client's processes, a
file. Busy: of the whole machine, which plays both hosts and the line; above 85 % a row says something of the machine, and is marked.
Kinds: sftp (a stock account), slow (its shell's start files take 0.1 s), noshell (no shell), s3, file; `large` is one file of 200 MB.
Again: `python benchmarks/bench_finals.py [--kinds sftp,slow] [--files 1000,10000] [--kib 4,64,256] [--rounds 3] [--only stager]`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fetching import OPENSSH, OutOfTime, Wanted, run
from benchmarks.measuring import Table, goal, watched
from stager.adapters.journal_sqlite import SqliteJournal
from stager.scheduler import events as ev
from tests.testbed.network import Host, Network, Wan, why_not
from tests.testbed.own_place import own_place
from tests.testbed.s3 import S3, running_s3
from tests.testbed.sshd import Sshd, running_sshd
from tests.testbed.stager import Stager
from tests.testbed.usage import cpu_of, machine

KINDS = ("sftp", "slow", "noshell", "s3", "file")
OURS, TAR, CP = "stager", "tar over ssh", "cp and sync"
S3_PEERS = ("rclone, 32 transfers", "boto3, 32 threads", "aws CLI")
BUCKET, MAKER = "finals", "import os, sys\nfor n in range(int(sys.argv[1])): open(f'f{n:06d}', 'wb').write(os.urandom(int(sys.argv[2])))\n"
LARGE_BYTES, PEER_S_MAX, OURS_S_MAX = 200_000_000, 120.0, 900.0
GOAL_OF_TAR, GOAL_NO_SHELL_PER_S, GOAL_OF_S3, GOAL_OF_CP = 1.3, 300.0, 0.9, 0.9
BOTO3 = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import boto3
from botocore.config import Config
endpoint, bucket, prefix, source = sys.argv[1:]
client = boto3.client("s3", endpoint_url=endpoint, config=Config(s3={"addressing_style": "path"}, max_pool_connections=32))
with ThreadPoolExecutor(32) as pool:
    list(pool.map(lambda name: client.upload_file(os.path.join(source, name), bucket, f"{prefix}/{name}"), os.listdir(source)))
"""


@dataclass(frozen=True)
class Case:
    files: int
    size_bytes: int

    @property
    def name(self) -> str:
        size = f"{self.size_bytes >> 10} KiB" if self.size_bytes < 1 << 20 else f"{self.size_bytes // 10**6} MB"
        return f"{self.files:,} x {size}"


# Copies the directory to a place of this name; gives the seconds of processor time.
Copy = Callable[[Path, str], float]


@dataclass(frozen=True)
class Site:
    """`url` is what a workflow says of the origin, `data` where its files come to lie."""

    kind: str
    url: str
    data: Path
    env: Mapping[str, str]
    options: str
    peers: Mapping[str, Copy]


def made(place: Path, case: Case) -> Path:
    place.mkdir()
    subprocess.run([sys.executable, "-c", MAKER, str(case.files), str(case.size_bytes)], cwd=place, check=True)
    return place


def workflow_text(site: Site, case: Case, target: str) -> str:
    outputs = "".join(f"      f{number:06d}: 'o:{target}/f{number:06d}'\n" for number in range(case.files))
    return (
        f"stager: 1\nname: finals\norigins:\n  o: {{url: '{site.url}'{site.options}}}\njobs:\n  make:\n"
        f"    run: [python3, make.py, '{case.files}', '{case.size_bytes}']\n    inputs: [here:make.py]\n    outputs:\n{outputs}"
    )


def ours(site: Site, case: Case, node: Host, place: Path, target: str) -> tuple[float, float]:
    """(seconds, seconds of the I/O node's processor time)"""
    place.mkdir()
    (place / "make.py").write_text(MAKER)
    (place / "w.yml").write_text(workflow_text(site, case, target))
    room = str(max(10**9, 3 * case.files * max(case.size_bytes, 16 << 10)))
    stager = Stager(place / "s", place / "home", env={**site.env, "STAGER_CAPACITY": room}, idle_exit_s=60, where=node)
    try:
        stager.run("submit", place / "w.yml", "--quiet", deadline_s=OURS_S_MAX)
        cpu_s = cpu_of(stager.node_pid() or 0).own_s
        ended_at, durable_at = 0.0, []
        for batch in SqliteJournal(place / "s" / "journal.sqlite", "bench").read_beside():
            for event in batch.events:
                if isinstance(event, ev.AttemptEnded):
                    ended_at = event.made_at or event.at
                elif isinstance(event, ev.TransferDone) and event.verified:
                    durable_at.append(event.at)
        finals = [at for at in durable_at if at >= ended_at]
        assert ended_at and len(finals) == case.files, f"{len(finals)} of {case.files} finals"
        return max(finals) - ended_at, cpu_s
    finally:
        stager.end()


def tar_over_ssh(server: Sshd, node: Host, config: Path) -> Copy:
    line = 'tar -C "$1" -cf - . | ssh -F "$0" lab "mkdir \'$2\' && tar -C \'$2\' -xf -"'
    return lambda source, target: run(
        node, limited(), ["bash", "-o", "pipefail", "-c", line, str(config), str(source), f"{server.data}/{target}"]
    )


def openssh_sftp(server: Sshd, node: Host, config: Path) -> Copy:
    def copy(source: Path, target: str) -> float:
        batch = config.with_name("batch")
        batch.write_text(f"put -r {source} {server.data}/{target}\n")
        return run(node, limited(), ["sftp", "-q", "-F", config, "-b", batch, "lab"])

    return copy


def rclone(node: Host, settings: Mapping[str, str], root: str, transfers: int) -> Copy:
    env = {f"RCLONE_CONFIG_LAB_{name}": value for name, value in settings.items()} | {"RCLONE_CONFIG": "/dev/null"}
    options = ["--transfers", str(transfers), "--checkers", "8", "--no-traverse"]
    return lambda source, target: run(node, limited(), ["rclone", "copy", "-q", *options, source, f"lab:{root}/{target}"], env)


def limited() -> Wanted:
    return Wanted("", (), 0, PEER_S_MAX)


def sftp_site(kind: str, lab: Host, node: Host, place: Path, server: Sshd) -> Site:
    config = place / "ssh_config"
    config.write_text(server.ssh_config_text("lab") + "  Ciphers aes128-gcm@openssh.com\n  BatchMode yes\n")
    if kind == "slow":
        (server.directory / ".bashrc").write_text("sleep 0.1\n")
    settings = {"TYPE": "sftp", "HOST": server.where.address, "PORT": str(server.port), "USER": server.user}
    settings |= {"KEY_FILE": str(server.identity_file), "KNOWN_HOSTS_FILE": str(server.known_hosts)}
    peers = {TAR: tar_over_ssh(server, node, config)} if kind != "noshell" else {}
    peers |= {OPENSSH: openssh_sftp(server, node, config), "rclone, 16 transfers": rclone(node, settings, str(server.data), 16)}
    return Site(kind, f"sftp://lab{server.data}", server.data, {"STAGER_SSH_CONFIG": str(config)}, "", peers)


def s3_site(node: Host, place: Path, server: S3, data: Path) -> Site:
    env = server.credentials() | {"AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": server.region}
    script = place / "with_boto3.py"
    script.write_text(BOTO3)
    aws = ["aws", "--endpoint-url", server.endpoint, "s3", "cp", "--only-show-errors", "--recursive"]
    settings = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": server.endpoint, "ACCESS_KEY_ID": server.access_key}
    settings |= {"SECRET_ACCESS_KEY": server.secret_key, "REGION": server.region, "FORCE_PATH_STYLE": "true"}
    copies: list[Copy] = [
        rclone(node, settings, BUCKET, 32),
        lambda source, target: run(node, limited(), [sys.executable, script, server.endpoint, BUCKET, target, source], env),
        lambda source, target: run(node, limited(), [*aws, f"{source}/", f"s3://{BUCKET}/{target}/"], env),
    ]
    options = f", endpoint: '{server.endpoint}', region: {server.region}, allow_http: true, addressing: path"
    return Site("s3", f"s3://{BUCKET}", data, env, options, dict(zip(S3_PEERS, copies, strict=True)))


def cp_and_sync(data: Path) -> Copy:
    """Each file and the directory."""
    line = 'cp -r "$0" "$1" && find "$1" -type f -print0 | xargs -0 sync && sync "$1"'
    return lambda source, target: run_here(["bash", "-c", line, str(source), str(data / target)])


def run_here(argv: Sequence[str]) -> float:
    before = os.times()
    subprocess.run(argv, check=True, timeout=PEER_S_MAX)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@contextlib.contextmanager
def site_of(kind: str, lab: Host, node: Host, place: Path, memory: Path) -> Iterator[Site]:
    """What is behind the line lies in memory there: its disk is not measured. A file origin's does not."""
    own, data = place / kind, memory / kind
    own.mkdir(mode=0o700)
    if kind == "file":
        data = own / "data"
        data.mkdir()
        yield Site("file", f"file:{data}", data, {}, "", {CP: cp_and_sync(data)})
    elif kind == "s3":
        data.mkdir()
        with running_s3(data, where=lab) as server:
            with lab.inside():
                server.client().create_bucket(Bucket=BUCKET)
            yield s3_site(node, own, server, data)
    else:
        with running_sshd(own, data, sftp_only=kind == "noshell", where=lab) as server:
            yield sftp_site(kind, lab, node, own, server)


@dataclass
class Bench:
    node: Host
    place: Path
    rounds: int
    only: Sequence[str]

    def __post_init__(self) -> None:
        self.rates, self.number = Table("files/s"), 0

    def fresh(self, name: str) -> Path:
        self.number += 1
        return self.place / f"{name}{self.number}"

    def sides(self, site: Site, case: Case, source: Path) -> dict[str, Callable[[str], tuple[float, float]]]:
        """Each gives (seconds, seconds of processor time)."""

        def peer(copy: Copy) -> Callable[[str], tuple[float, float]]:
            def timed(target: str) -> tuple[float, float]:
                begun = time.monotonic()
                cpu_s = copy(source, target)
                return time.monotonic() - begun, cpu_s

            return timed

        mine = {OURS: lambda target: ours(site, case, self.node, self.fresh("run"), target)}
        every = mine | {name: peer(copy) for name, copy in site.peers.items()}
        return {name: side for name, side in every.items() if not self.only or any(part in name for part in self.only)}

    def measure(self, site: Site, case: Case) -> None:
        source = made(self.fresh("source"), case)
        row = f"{site.kind}: {case.name}"
        for _ in range(self.rounds):
            for name, side in self.sides(site, case, source).items():
                target = self.fresh("target").name
                try:
                    with watched() as watch:
                        took_s, cpu_s = side(target)
                except (AssertionError, OutOfTime, subprocess.SubprocessError) as error:
                    print(f"{row}, {name}: not measured: {' '.join(str(error).split())[:300]}", flush=True)
                    continue
                note = f"{took_s:.2f} s, {cpu_s / case.files * 1e6:,.0f} us of CPU a file"
                self.rates.add(row, name, case.files / took_s, watch.busy, note)
                print(f"{row}, {name}: {note}, {watch.busy:.0%} busy", flush=True)
                shutil.rmtree(site.data / target, ignore_errors=True)
        shutil.rmtree(source)

    def judge(self, site: Site, case: Case) -> None:
        row = f"{site.kind}: {case.name}"
        sides = {name: self.rates.rows[row, name] for name in (OURS, *site.peers) if (row, name) in self.rates.rows}
        mine = sides.get(OURS)
        best = max((side for name, side in sides.items() if name in S3_PEERS), key=lambda side: side.median, default=None)
        if mine is None or case.size_bytes == LARGE_BYTES:
            return
        if site.kind in ("sftp", "slow") and TAR in sides:
            print(goal(f"rate of {row}, of {TAR}", mine.median / sides[TAR].median, 1 / GOAL_OF_TAR, mine, sides[TAR]))
        elif site.kind == "noshell":
            print(goal(f"{row}, files/s", mine.median, GOAL_NO_SHELL_PER_S, mine))
        elif best is not None:
            print(goal(f"rate of {row}, of {best.side}", mine.median / best.median, GOAL_OF_S3, mine, best))
        elif CP in sides:
            print(goal(f"rate of {row}, of {CP}", mine.median / sides[CP].median, GOAL_OF_CP, mine, sides[CP]))


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--files", type=numbers, default=[1_000, 10_000])
    parser.add_argument("--kib", type=numbers, default=[4, 64, 256])
    parser.add_argument("--rtt-ms", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=800.0, help="of the line, in Mbit/s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-large", action="store_true", help="not the one file of 200 MB")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="names of sides to measure, by a part of them")
    given = parser.parse_args()
    if reason := why_not():
        print(f"not measured: {reason}")
        return 0
    cases = [Case(files, kib << 10) for files in given.files for kib in given.kib] + ([] if given.no_large else [Case(1, LARGE_BYTES)])
    print(f"line: RTT {given.rtt_ms:g} ms, {given.rate:g} Mbit/s; median of {given.rounds} rounds; {machine()}", flush=True)
    with own_place() as place, own_place("/dev/shm") as memory, Network() as net:
        lab, node = net.host("lab", wan=Wan(given.rtt_ms / 1000, given.rate)), net.host("node0")
        bench = Bench(node, place, given.rounds, given.only)
        for kind in given.kinds:
            with site_of(kind, lab, node, place, memory) as site:
                for case in cases:
                    bench.measure(site, case)
                    bench.judge(site, case)
        print(bench.rates.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
