"""Ways to fetch files from an origin to a host of the bed: the I/O node's, and those of the usual tools.

One rule: each way is a program as its users run it, fresh for each round; what is missing says so instead of a figure.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.testbed.ionode import IoNode
from tests.testbed.network import Host
from tests.testbed.processes import Server, descendants
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd
from tests.testbed.usage import cpu_of
from tests.testbed.waiting import wait_until
from tests.testbed.web import Web

STREAMS = (1, 4, 8)
OPENSSH = "OpenSSH sftp"
SPACE_BYTES = 1 << 42
CALLERS = 4
PATHS_AT_ONCE = 250
GCM = "aes128-gcm@openssh.com"


@dataclass(frozen=True)
class Wanted:
    """`root` is the one file, or the directory that all files are in."""

    root: str
    paths: tuple[str, ...]
    size_bytes: int
    limit_s: float

    @property
    def is_large(self) -> bool:
        return len(self.paths) == 1


class OutOfTime(Exception):
    """Stopped at the limit; the processor time until then."""

    def __init__(self, cpu_s: float) -> None:
        super().__init__("not done within its time")
        self.cpu_s = cpu_s


# Fetches and gives the processor time that it took, in seconds.
Fetch = Callable[[Wanted, Path], float]


@dataclass
class Peer:
    name: str
    fetch: Fetch | None = None
    missing: str = ""

    @contextlib.contextmanager
    def ready(self) -> Iterator[Fetch]:
        assert self.fetch is not None
        yield self.fetch

    def brought_bytes(self, target: Path) -> int:
        return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())

    def check(self, wanted: Wanted, target: Path) -> None:
        got = self.brought_bytes(target)
        assert got == wanted.size_bytes, f"{self.name} brought {got} bytes of {wanted.size_bytes}"


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(host: Host, wanted: Wanted, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> float:
    """Processor time of the program and all that it waited for; stopped with all its children at the limit."""
    # Proxies and certificates of this machine's own way out have no meaning on a host of the bed.
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower() and name != "AWS_CA_BUNDLE"}
    before = children_s()
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    program = subprocess.Popen(host.command(argv), env=kept | dict(env or {}), text=True, start_new_session=True, **pipes)
    try:
        said, _ = program.communicate(timeout=wanted.limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()
        raise OutOfTime(children_s() - before) from None
    assert program.returncode == 0, f"{argv[0]} ended with {program.returncode}: {said[-300:]}"
    return children_s() - before


class Caller(http.client.HTTPConnection):
    """One connection to the control API: quick, so that asking for 10,000 files is no part of the figure."""

    def __init__(self, node: IoNode) -> None:
        super().__init__("node")
        self.node = node
        token = Path(node.rendezvous["token_file"]).read_text().strip()
        self.always = {"Authorization": f"Bearer {token}", "X-Stager-Api": "1", "X-Stager-Epoch": "1"}
        self.always |= {"X-Stager-Incarnation": node.incarnation, "Content-Type": "application/json"}

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.node.rendezvous["socket"])

    def do(self, method: str, path: str, body: Any) -> Any:
        self.request(method, path, json.dumps(body), self.always | {"X-Stager-Command": path.rpartition("/")[2]})
        answer = self.getresponse()
        text = answer.read()
        assert answer.status < 300, f"{method} {path}: {answer.status} {text[:300]!r}"
        return json.loads(text)


@dataclass
class Ours:
    """A fresh I/O node with a fresh store for each round; its start is not counted, its connections to the origin are."""

    binary: Path
    host: Host
    store: Path
    rounds: count[int] = count()

    def fetching(self, origin: dict[str, object]) -> Peer:
        return Node("stager", ours=self, origin=origin)


@dataclass
class Node(Peer):
    ours: Ours | None = None
    origin: dict[str, object] | None = None

    @contextlib.contextmanager
    def ready(self) -> Iterator[Fetch]:
        assert self.ours
        store = self.ours.store.with_name(f"store{next(self.ours.rounds)}")
        node = IoNode(self.ours.binary, store, SPACE_BYTES, where=self.ours.host)
        node.start()
        try:
            node.do("PUT", "/v1/origins/o", self.origin)
            yield lambda wanted, _: self.bring(node, wanted)
        finally:
            node.stop()
            shutil.rmtree(store, ignore_errors=True)

    def bring(self, node: IoNode, wanted: Wanted) -> float:
        before = cpu_of(node.pid)
        paths = list(wanted.paths)
        callers = [threading.Thread(target=ask, args=(Caller(node), paths[at::CALLERS])) for at in range(CALLERS)]
        for caller in callers:
            caller.start()
        left = len(paths)
        for event in node.events(wait_s=wanted.limit_s):
            assert event["kind"] == "transfer_done", f"{event}"
            left -= 1
            if left == 0:
                break
        for caller in callers:
            caller.join()
        return (cpu_of(node.pid) - before).own_s

    def check(self, wanted: Wanted, target: Path) -> None:
        """Each event said its size and that it is on disk."""


def ask(caller: Caller, paths: Sequence[str]) -> None:
    """What is there, then a transfer for each; a part of them at a time, so that the first bytes come while the rest is looked at."""
    for at in range(0, len(paths), PATHS_AT_ONCE):
        found = caller.do("POST", "/v1/origins/o/stat", {"paths": paths[at : at + PATHS_AT_ONCE]})
        for entry in found["entries"]:
            name = entry["path"].replace("/", "-")
            body = {"kind": "fetch", "file_id": name, "generation": "g", "priority": 5, "executable": False}
            body["source"] = {"origin_id": "o", "path": entry["path"]}
            body["expected"] = {"size_bytes": entry["size_bytes"], "token": entry["token"], "blake3": None, "sha256": None}
            caller.do("PUT", f"/v1/transfers/t-{name}", body)
    caller.close()


def tool(name: str, program: str, package: str, fetch: Fetch) -> Peer:
    return Peer(name, fetch) if shutil.which(program) else Peer(name, missing=f"{program} is not installed ({package})")


def sftp_peers(server: Sshd, node: Host, wanted: Wanted, place: Path) -> list[Peer]:
    config = place / "ssh_config"
    config.write_text(server.ssh_config_text("lab") + f"  Ciphers {GCM}\n  BatchMode yes\n")
    source = f"{server.data}/{wanted.root}"
    recursive = [] if wanted.is_large else ["-r"]

    def openssh(wanted: Wanted, target: Path) -> float:
        return run(node, wanted, ["sftp", "-q", "-F", config, *recursive, f"lab:{source}", f"{target}/"])

    def tar(wanted: Wanted, target: Path) -> float:
        line = 'ssh -F "$0" lab "tar -C \'$1\' -cf - \'$2\'" | tar -C "$3" -xf -'
        return run(node, wanted, ["bash", "-o", "pipefail", "-c", line, config, server.data, wanted.root, target])

    def sshfs(wanted: Wanted, target: Path) -> float:
        return through_mount(server, node, config, wanted, target, place)

    peers = [tool(OPENSSH, "sftp", "openssh-client", openssh), tool("sshfs", "sshfs", "sshfs", sshfs)]
    if not wanted.is_large:
        peers.append(tool("tar over ssh", "tar", "tar", tar))
    settings = {"TYPE": "sftp", "HOST": server.where.address, "PORT": str(server.port), "USER": server.user}
    settings |= {"KEY_FILE": str(server.identity_file), "KNOWN_HOSTS_FILE": str(server.known_hosts), "CIPHERS": GCM, "CHUNK_SIZE": "255Ki"}
    return peers + rclone_peers(settings, source, node, wanted)


def through_mount(server: Sshd, node: Host, config: Path, wanted: Wanted, target: Path, place: Path) -> float:
    mount = place / "mount"
    mount.mkdir(exist_ok=True)
    argv = ["sshfs", "-f", "-F", str(config), f"lab:{server.data}", str(mount), "-o", f"ro,Ciphers={GCM}"]
    daemon = Server(argv, place / "sshfs.log", where=node)
    daemon.start()
    try:
        wait_until(lambda: daemon.gone() or mount.is_mount(), "sshfs", 20)
        assert not daemon.gone(), f"sshfs: {daemon.log_text()[-300:]}"
        mounts_s = lambda: sum(cpu_of(pid).own_s for pid in [daemon.pid, *descendants(daemon.pid)])  # noqa: E731
        try:
            return run(node, wanted, ["cp", "-r", mount / wanted.root, target]) + mounts_s()
        except OutOfTime as cut:
            raise OutOfTime(cut.cpu_s + mounts_s()) from None
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], capture_output=True)
        daemon.stop()


def rclone_peers(settings: Mapping[str, str], source: str, node: Host, wanted: Wanted) -> list[Peer]:
    env = {f"RCLONE_CONFIG_LAB_{name}": value for name, value in settings.items()} | {"RCLONE_CONFIG": "/dev/null"}

    def with_streams(streams: int) -> Fetch:
        several = ["--multi-thread-streams", str(streams), "--multi-thread-cutoff", "1M", "--transfers", str(streams), "--checkers", "8"]
        return lambda wanted, target: run(node, wanted, ["rclone", "copy", "-q", *several, f"lab:{source}", target], env)

    return [tool(f"rclone, {streams} streams", "rclone", "rclone", with_streams(streams)) for streams in STREAMS]


BOTO3 = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import boto3
from botocore.config import Config
endpoint, bucket, target, *keys = sys.argv[1:]
client = boto3.client("s3", endpoint_url=endpoint, config=Config(s3={"addressing_style": "path"}, max_pool_connections=16))
if len(keys) == 1:
    client.download_file(bucket, keys[0], os.path.join(target, os.path.basename(keys[0])))
else:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: client.download_file(bucket, key, os.path.join(target, os.path.basename(key))), keys))
"""


def s3_peers(server: S3, bucket: str, node: Host, wanted: Wanted, place: Path) -> list[Peer]:
    env = server.credentials() | {"AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": server.region}
    script = place / "with_boto3.py"
    script.write_text(BOTO3)

    def boto3(wanted: Wanted, target: Path) -> float:
        return run(node, wanted, [sys.executable, script, server.endpoint, bucket, target, *wanted.paths], env)

    def aws(wanted: Wanted, target: Path) -> float:
        argv = ["aws", "--endpoint-url", server.endpoint, "s3", "cp", "--only-show-errors"]
        return run(node, wanted, [*argv, *([] if wanted.is_large else ["--recursive"]), f"s3://{bucket}/{wanted.root}", f"{target}/"], env)

    settings = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": server.endpoint, "ACCESS_KEY_ID": server.access_key}
    settings |= {"SECRET_ACCESS_KEY": server.secret_key, "REGION": server.region, "FORCE_PATH_STYLE": "true"}
    return [Peer("boto3", boto3), tool("aws CLI", "aws", "awscli", aws), *rclone_peers(settings, f"{bucket}/{wanted.root}", node, wanted)]


def http_peers(server: Web, node: Host, wanted: Wanted, place: Path) -> list[Peer]:
    """curl is given the names; rclone reads them from nginx's index."""

    def curl(wanted: Wanted, target: Path) -> float:
        names = place / "urls"
        names.write_text("".join(f'url = "{server.url()}/{path}"\noutput = "{target}/{Path(path).name}"\n' for path in wanted.paths))
        return run(node, wanted, ["curl", "--silent", "--show-error", "--fail", "--parallel", "--parallel-max", "8", "--config", names])

    settings = {"TYPE": "http", "URL": f"{server.url()}/"}
    return [tool("curl, 8 at once", "curl", "curl", curl), *rclone_peers(settings, wanted.root, node, wanted)]
