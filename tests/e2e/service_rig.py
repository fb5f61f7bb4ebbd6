"""A scheduler with its I/O node on a state directory of its own, an origin beside it, and workflows made of small shell jobs.

One rule: what it started ends with it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stager import wire
from stager.client import Client, connect
from stager.client.socket import ALREADY_HELD_EXIT
from stager.model.files import Destination, File, Location, OnExists, Source
from stager.model.topology import embedded
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from tests.testbed.forked import SCHEDULER, started
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

CAPACITY_BYTES = 50_000_000


class Rig:
    """A scheduler on a state directory, an origin beside it, and workflows made of shell jobs."""

    def __init__(self, place: Path) -> None:
        self.stager = Stager(place / "s", place / "home")
        self.data = place / "data"
        self.data.mkdir()
        self.trace = place / "trace"
        self.gate = place / "gate"
        self.clients: list[Client] = []

    def client(self, **env: str) -> Client:
        """Of the living scheduler, or of one started with this environment added."""
        found = connect(self.stager.state_dir) or self._start(env)
        self.clients.append(found)
        return found

    def _start(self, env: Mapping[str, str]) -> Client:
        self.stager.state_dir.mkdir(mode=0o700, exist_ok=True)
        log = (self.stager.state_dir / "scheduler.log").open("ab")
        words = ["--state-dir", str(self.stager.state_dir), "--capacity", str(CAPACITY_BYTES), "--cores", "2"]
        environment = {**self.stager.environment(), **env}
        process = started(SCHEDULER, words, environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        log.close()
        client = self.until(lambda: self._ready() or process.poll() is not None, "the scheduler to be ready")
        if isinstance(client, Client):
            return client
        # A child of the one before it may hold the lock for a moment.
        assert process.returncode == ALREADY_HELD_EXIT, self.stager.log_tail()
        return self._start(env)

    def _ready(self) -> Client | None:
        client = connect(self.stager.state_dir)
        return client if client is not None and client.health().ready else None

    def origin(self, name: str = "lab") -> Origin:
        return Origin(name, OriginKind.FILE, f"file://{self.data}")

    def source(self, path: str, content: bytes) -> File:
        file = self.data / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        old = time.time() - 60
        os.utime(file, (old, old))
        token = f"m={file.stat().st_mtime_ns};s={len(content)}"
        return File(path, sources=(Source(Location("lab", path), len(content), token),), size_bytes=len(content))

    def final(self, lfn: str, size_bytes: int = 1000) -> File:
        return File(lfn, size_bytes=size_bytes, destination=Destination(Location("lab", f"out/{lfn}"), OnExists.REPLACE))

    def job(self, name: str, shell: str, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = (), **more: Any) -> Job:
        traced = f'echo "$STAGER_JOB" >> {self.trace}; {shell}'
        ins = tuple(JobInput(lfn, lfn) for lfn in inputs)
        outs = tuple(JobOutput(lfn, lfn) for lfn in outputs)
        return Job(name, name, shell=traced, inputs=ins, outputs=outs, **more)

    def workflow(self, name: str, files: list[File], jobs: list[Job], origins: list[Origin] | None = None) -> Workflow:
        known = origins or [self.origin()]
        return Workflow(name, {file.lfn: file for file in files}, {job.id: job for job in jobs}, {origin.name: origin for origin in known})

    def submit(self, client: Client, workflow: Workflow, credentials: wire.Credentials | None = None) -> str:
        plan = make_plan(workflow, embedded(CAPACITY_BYTES, cores=2), limits=Limits(cores=2))
        return client.submit(workflow, plan, credentials or self.credentials(workflow))

    def credentials(self, workflow: Workflow) -> wire.Credentials:
        return wire.Credentials({name: {"kind": "file", "base_path": str(self.data)} for name in workflow.origins}, {})

    def three(self, name: str = "three", pause_s: float = 0.0, *, held: bool = False) -> Workflow:
        """Two jobs that read one input each, and one that joins them. `held`: the two go on when `gate` is there."""
        hold = f"until test -e {self.gate}; do sleep 0.05; done" if held else f"sleep {pause_s}"
        files = [
            self.source("a", b"one\n"),
            self.source("b", b"two\n"),
            File("a.mid", size_bytes=10),
            File("b.mid", size_bytes=10),
            self.final("all"),
        ]
        jobs = [
            self.job("first", f"{hold}; tr a-z A-Z < a > a.mid", ("a",), ("a.mid",)),
            self.job("second", f"{hold}; tr a-z A-Z < b > b.mid", ("b",), ("b.mid",)),
            self.job("join", f"sleep {pause_s}; cat a.mid b.mid > all", ("a.mid", "b.mid"), ("all",)),
        ]
        return self.workflow(name, files, jobs)

    def ran(self) -> Counter[str]:
        return Counter(self.trace.read_text().split()) if self.trace.exists() else Counter()

    def finished(self, client: Client, run: str, deadline_s: float = 120.0) -> str:
        answer = client.run(run).wait_finished(deadline_s)
        assert answer.finished, f"{answer.state}\n{self.stager.log_tail()}"
        return answer.state

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_until(condition, f"{what}\n{self.stager.log_tail()}")

    def end(self) -> None:
        for client in self.clients:
            client.close()
        self.stager.end()
