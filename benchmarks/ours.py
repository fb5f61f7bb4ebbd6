"""Our side of the benchmarks: a node on the disk that is measured, and `stager-ionode bench` against it or against the store alone.

May know: the node's options and what `bench` prints. The one rule: what is measured is durable (fsync on) unless the row says otherwise.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import watched
from benchmarks.peers import Phases
from tests.testbed.ionode import IoNode
from tests.testbed.places import ionode_binary

CAPACITY_BYTES = 1 << 40


@contextlib.contextmanager
def running_node(place: Path, *options: str) -> Iterator[IoNode]:
    """On TCP, as clients on other hosts reach it."""
    node = IoNode(ionode_binary(), place / "store", CAPACITY_BYTES, options=["--tcp", "127.0.0.1:0", *options])
    node.start()
    try:
        yield node
    finally:
        node.stop()


def begin_job(node: IoNode, name: str, sandbox: Path, space_bytes: int) -> None:
    """A job without inputs, as a worker begins it."""
    node.do("PUT", f"/v1/reservations/{name}", {"bytes": space_bytes})
    node.do("POST", f"/v1/attempts/{name}/stage-in", {"sandbox_dir": str(sandbox), "inputs": []})


def stage_out(node: IoNode, name: str, sandbox: Path, outputs: dict[str, str]) -> None:
    """The outputs of a job, by file id; the job is over then."""
    declared = [{"file_id": file, "generation": "g", "path": path, "kind": "file", "optional": False} for file, path in outputs.items()]
    body = {"sandbox_dir": str(sandbox), "reservation_id": name, "outputs": declared, "mounts": [], "keep": [], "want_sha256": False}
    body["release"] = {"sandbox_dir": None, "remove_sandbox": True, "reservation_id": name}
    answer = node.do("POST", f"/v1/attempts/{name}/stage-out", body)
    assert len(answer["outputs"]) == len(outputs), answer


def bench_node(node: IoNode, files: int, size: int = 0, clients: int = 1, batch: int = 1) -> Phases:
    """Through the API. The share of the machine is that of all phases together."""
    argv = ["--node", f"http://{node.rendezvous['tcp']}", "--token-file", node.token_file, "--bytes", size, "--json"]
    said, busy = _bench(argv, files, clients, batch)
    return {name: phase | {"busy": busy} for name, phase in json.loads(said)["phases"].items()}


def bench_store(directory: Path, files: int, size: int = 0, clients: int = 1, batch: int = 1) -> Phases:
    """The store by itself, in one process."""
    said, busy = _bench(["--dir", directory, "--size", size], files, clients, batch)
    phases = (json.loads(line) for line in said.splitlines() if '"phase"' in line)
    return {phase["phase"]: {"ops_per_s": phase["per_s"], "seconds": phase["seconds"], "busy": busy} for phase in phases}


def _bench(which: list[object], files: int, clients: int, batch: int) -> tuple[str, float]:
    argv = [ionode_binary(), "bench", *which, "--files", files, "--clients", clients, "--batch", batch]
    with watched() as watch:
        done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout, watch.busy
