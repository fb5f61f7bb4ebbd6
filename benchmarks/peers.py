"""The peers of the benchmarks: our C program that drives files, Redis and LMDB, and Redis itself.

May know: benchmarks/peers.c. The one rule: a peer that is not installed is named as not measured, with how to get it; never passed over.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.testbed.places import program
from tests.testbed.processes import Server, free_port
from tests.testbed.waiting import wait_until

SOURCE = Path(__file__).with_name("peers.c")
Phases = dict[str, dict[str, float]]


class Peers:
    """The program, compiled anew into `directory`."""

    def __init__(self, directory: Path) -> None:
        self.binary = directory / "peers"
        compiling = ["cc", "-O2", "-o", str(self.binary), str(SOURCE)]
        with_lmdb = subprocess.run([*compiling, "-DWITH_LMDB", "-llmdb"], capture_output=True)
        self.has_lmdb = with_lmdb.returncode == 0
        if not self.has_lmdb:
            print("LMDB is not measured: apt-get install liblmdb-dev")
            subprocess.run(compiling, check=True)

    def run(self, what: str, place: Path | int, files: int, size: int = 0, clients: int = 1, batch: int = 1) -> Phases:
        return self._said(what, place, files, size, clients, batch)

    def checkpoint(self, what: str, size: int, paths: list[Path]) -> None:
        """`write-synced` or `read`: a process for each path."""
        self._said(what, size, *paths)

    def writing(self, size: int, paths: list[Path]) -> Iterator[int]:
        """Writes without a sync; the numbers of the paths as their writers end."""
        argv = [str(self.binary), "write", str(size), *map(str, paths)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as writers:
            assert writers.stdout is not None
            yield from (int(line) for line in writers.stdout if not line.startswith("{"))
        assert writers.returncode == 0, f"writing {len(paths)} files failed"

    def _said(self, *words: Any) -> Phases:
        done = subprocess.run([str(self.binary), *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def running_redis(directory: Path, fsync: str) -> Iterator[int | None]:
    """Its port; every write in its append-only file, synced as said. None, and a line about it, where it is not installed."""
    server = program("redis-server")
    if server is None:
        print("Redis is not measured: apt-get install redis-server")
        yield None
        return
    directory.mkdir()
    port = free_port()
    argv = [str(server), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--save", ""]
    # Its rewrite of the log would be work of another kind in the middle of a phase.
    argv += ["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"]
    running = Server(argv, directory / "log")
    running.start_on(port)
    try:
        wait_until(lambda: "Ready to accept connections" in running.log_text(), "Redis to be ready")
        yield port
    finally:
        running.stop()
