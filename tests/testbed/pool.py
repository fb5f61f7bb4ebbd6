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
from tests.testbed.processes import HERE, Server, pid_in
from tests.testbed.waiting import wait_until


def environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "STAGER_TESTBED") if name in os.environ}
    marks = {name: value for name, value in os.environ.items() if name.startswith("STAGER_TEST")}
    return kept | marks | {"STAGER_IONODE": str(ionode_binary()), "PYTHONPATH": str(PROJECT)}


@dataclass
class Host:
    """`stager worker`. Its jobs outlive it."""

    name: str
    scratch: Path
    server: Server

    def worker_pid(self) -> int | None:
        """Of the process that Dask asks, which `stager worker` starts again."""
        children = Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def kill_worker(self) -> None:
        pid = wait_until(self.worker_pid, f"a worker of {self.name}")
        os.kill(pid, signal.SIGKILL)

    def reaper_pids(self) -> list[int]:
        found = []
        for lock in (self.scratch / "attempts").glob("*/lock"):
            with contextlib.suppress(OSError, ValueError):
                found.append(pid_in(lock, int(lock.read_text())))
        return [pid for pid in found if pid]


@dataclass
class Pool:
    """`node`: where the store of the I/O node of each is."""

    place: Path
    tls: Path | None = None
    port: int = field(default_factory=HERE.free_port)
    server: Server | None = None
    hosts: dict[str, Host] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"{'tls' if self.tls else 'tcp'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = ["pool", "--listen", f"127.0.0.1:{self.port}", *(["--tls-dir", str(self.tls)] if self.tls else [])]
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

    def _server(self, words: Sequence[str], log: str, env: Mapping[str, str]) -> Server:
        self.place.mkdir(exist_ok=True)
        return Server([sys.executable, "-m", "stager.cli", *words], self.place / log, env={**environment(), **env})

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
