"""A run told by hand, fact by fact, as its journal would have it. One rule: what is not told did not happen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stager.model.errors import ErrorClass, Fault
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Access
from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.critical_path import critical_path
from stager.scheduler.run_times import RunTimes
from tests.model.test_estimate import CHAIN, topology, workflow

FAULT = Fault(ErrorClass.TRANSIENT, "timeout", "it took too long", "in")
BAG = """
workflow w
  made x 10
  made y 10 final
  job a -> x compute=5
  job b -> y compute=5
"""
REPORT = {"incarnation": "i", "capacity_bytes": 10**6, "can_link": True, "replicas": (), "transfers": ()}
Told = list[tuple[str, float, float, str]]


class Tale:
    """A run, told one fact after the other. Times count from 0, when it is submitted; ids of commands do not matter here."""

    def __init__(self, text: str = CHAIN, cores: int = 1, run: str = "r", engine: str = "") -> None:
        self.run, self.times = run, RunTimes("r")
        self.workflow: Workflow = replace(workflow(text), engine=engine)
        self.hear(ev.PolicySet, -1.0, policy=Policy(), limits=Limits(cores=cores))
        self.submit(run)

    def submit(self, run: str, at: float = 0.0) -> None:
        self.hear(ev.RunSubmitted, at, run=run, workflow=self.workflow, plan=make_plan(self.workflow, topology(10**6)))

    def hear(self, kind: type, at: float, **facts: Any) -> None:
        self.times.heard(kind(at=at, **facts))

    def emit(self, kind: type, at: float, **facts: Any) -> None:
        self.times.gave(kind(id="c", at=at, cause="e", **facts))

    def fetch(self, at: float, transfer: str = "t1", lfn: str = "in", origin: str = "home", node: str = "node0") -> None:
        facts = {"token": "", "purpose": cmd.Purpose.DEMAND, "priority": 0, "size_bytes": 1000, "path": lfn, "origin": origin}
        self.emit(cmd.Fetch, at, node=node, transfer=transfer, file=f"f-{lfn}", lfn=lfn, run=self.run, **facts)

    def copy(self, at: float, transfer: str, source: str, generation: str, node: str = "node0", lfn: str = "in") -> None:
        facts = {"size_bytes": 1000, "purpose": cmd.Purpose.DEMAND, "priority": 0, "source": source, "source_generation": generation}
        self.emit(cmd.CopyReplica, at, node=node, transfer=transfer, file=f"f-{lfn}", lfn=lfn, run=self.run, **facts)

    def upload(
        self, at: float, transfer: str = "u1", lfn: str = "end", generation: str = "b-1", purpose: cmd.Purpose = cmd.Purpose.FINAL
    ) -> None:
        facts = {"size_bytes": 100, "purpose": purpose, "priority": 0, "path": lfn, "origin": "home", "generation": generation}
        self.emit(cmd.Upload, at, node="node0", transfer=transfer, file=f"f-{lfn}", lfn=lfn, run=self.run, **facts)

    def done(self, at: float, transfer: str, node: str = "node0") -> None:
        self.hear(ev.TransferDone, at, node=node, transfer=transfer, size_bytes=1000, blake3="x")

    def failed(self, at: float, transfer: str, not_before: float, lfn: str, upload: bool = False) -> None:
        self.hear(ev.TransferFailed, at, node="node0", transfer=transfer, fault=FAULT)
        self.emit(cmd.RetryTransferAt, at, file=f"f-{lfn}", run=self.run, upload=upload, not_before=not_before)

    def admit(self, at: float, job: str, run: str = "", node: str = "node0") -> None:
        self.emit(cmd.AdmitJob, at, run=run or self.run, job=job, node=node, reserve_bytes=10)

    def start(self, at: float, job: str, *inputs: str, number: int = 1, run: str = "", node: str = "node0") -> None:
        """`inputs`: generations."""
        staged = tuple(cmd.StagedInput("in", "f-in", generation, "in", Access.LINK) for generation in inputs)
        facts = {"attempt": f"{run}{job}-{number}", "number": number, "reserve_bytes": 10, "inputs": staged}
        self.emit(cmd.StartAttempt, at, node=node, run=run or self.run, job=job, **facts)

    def end(self, at: float, job: str, number: int = 1, outcome: ev.Outcome = ev.Outcome.OK, run: str = "", **facts: Any) -> None:
        self.hear(ev.AttemptEnded, at, run=run or self.run, job=job, attempt=f"{run}{job}-{number}", outcome=outcome, **facts)

    def begin(self, at: float, job: str, *inputs: str, until: float, node: str = "node0") -> None:
        """From admission to the end, at once and without anything beside its program."""
        self.admit(at, job, node=node)
        self.start(at, job, *inputs, node=node)
        self.end(until, job)

    def finish(self, at: float, outcome: cmd.RunOutcome = cmd.RunOutcome.SUCCEEDED) -> Told:
        self.emit(cmd.FinishRun, at, run=self.run, outcome=outcome)
        return self.told()

    def told(self) -> Told:
        spans = critical_path(self.times)
        assert sum(span.ended_at - span.begun_at for span in spans) == pytest.approx((self.times.finished_at or 0.0) - 0.0)
        return [(span.cause.value, span.begun_at, span.ended_at, span.about or span.job) for span in spans]
