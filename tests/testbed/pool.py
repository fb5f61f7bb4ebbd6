"""A pool of compute hosts on this machine: `stager pool`, and a `stager worker` for each host, as a person starts them.

May know: the command line. One rule: what it started ends with it, jobs too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.testbed.places import PROJECT, ionode_binary
from tests.testbed.processes import HERE, Server, Where, pid_in
from tests.testbed.waiting import wait_until


def environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "STAGER_TESTBED") if name in os.environ}
    marks = {name: value for name, value in os.environ.items() if name.startswith("STAGER_TEST")}
    return kept | marks | {"STAGER_IONODE": str(ionode_binary()), "PYTHONPATH": str(PROJECT)}


@dataclass
class Host:
    """`stager worker`. Its jobs outlive it. `scratch`: as this process finds it."""

    name: str
    scratch: Path
    server: Server

    def worker_pid(self) -> int | None:
        """Of the process that Dask asks, which `stager worker` starts again."""
        children = Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def kill_worker(self) -> None:
        pid = wait_until(self.worker_pid, f"a worker of {self.name}")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def reaper_pids(self) -> list[int]:
        found = []
        for lock in (self.scratch / "attempts").glob("*/lock"):
            with contextlib.suppress(OSError, ValueError):
                found.append(pid_in(lock, int(lock.read_text())))
        return [pid for pid in found if pid]


@dataclass
class Pool:
    """`where`: the host of its meeting place, or the user who has it. `env`: of all its processes, beside the usual. `gateway`: for a
    service that is no client of it; the port where it listens, or 0.
    """

    place: Path
    tls: Path | None = None
    where: Where = HERE
    port: int = 0
    server: Server | None = None
    hosts: dict[str, Host] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    gateway: int = 0

    def __post_init__(self) -> None:
        self.port = self.port or self.where.free_port()

    @property
    def address(self) -> str:
        return f"{'tls' if self.tls else 'tcp'}://{self.where.address}:{self.port}"

    def start(self) -> None:
        words = ["pool", "--listen", f"{self.where.address}:{self.port}", *(["--tls-dir", str(self.tls)] if self.tls else [])]
        words += ["--gateway", f"{self.where.address}:{self.gateway}"] if self.gateway else []
        self.server = self._server(words, "pool.log", {})
        self.server.start()

    def host(self, name: str, cores: int, nodes: Mapping[str, Path], options: Sequence[str] = (), **env: str) -> Host:
        scratch = self.place / name
        words = ["worker", self.address, "--name", name, "--cores", str(cores), "--scratch", str(scratch)]
        words += [word for node, store in nodes.items() for word in ("--node", f"{node}={store}")]
        words += [*(["--tls-dir", str(self.tls)] if self.tls else []), *options]
        host = self.hosts[name] = Host(name, scratch, self._server(words, f"{name}.log", env))
        host.server.start()
        return host

    def host_apart(self, name: str, cores: int, node: str, where: Where, scratch: str, tls: str) -> Host:
        """On a host of the bed that shares no files with its I/O node. All paths are those of that host."""
        words = ["worker", self.address, "--name", name, "--cores", str(cores), "--node", node, "--scratch", scratch, "--tls-dir", tls]
        server = self._server(words, f"{name}.log", {"HOME": "/srv", **self.env}, where)
        host = self.hosts[name] = Host(name, where.outside(scratch), server)
        host.server.start()
        return host

    def intruding(self, name: str, tls: Path | None) -> Host:
        """A worker that comes with another certificate than this pool's."""
        words = ["worker", self.address, "--name", name, "--cores", "1", "--scratch", str(self.place / name), "--node", "n1"]
        host = self.hosts[name] = Host(name, self.place / name, self._server([*words, "--tls-dir", str(tls)], f"{name}.log", {}))
        host.server.start()
        return host

    def _server(self, words: Sequence[str], log: str, env: Mapping[str, str], where: Where | None = None) -> Server:
        self.place.mkdir(exist_ok=True)
        argv = [sys.executable, "-m", "stager.cli", *words]
        return Server(argv, self.place / log, env={**environment(), **self.env, **env}, where=where or self.where)

    def kill_scheduler(self) -> None:
        assert self.server is not None, "not started"
        self.server.kill()

    def log_text(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in sorted(self.place.glob("*.log")))

    def end(self) -> None:
        for host in self.hosts.values():
            host.server.stop()
            for pid in host.reaper_pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        if self.server is not None:
            self.server.stop()
        wait_until(lambda: not any(host.reaper_pids() for host in self.hosts.values()), "the jobs on hosts to end")
