"""Two active runs never write to one place: whatever they call the origin, however its URL is spelled, and also not one inside the
other.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stager import wire
from stager.adapters.run_records import RunRecords
from stager.model.errors import Refused
from stager.model.files import Destination, File, FileKind, Location
from stager.model.topology import embedded
from stager.model.workflow import Job, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.runtime.credentials import CredentialBook
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.service.known_runs import KnownRuns
from stager.service.run_service import OWNER, RunService, Sender

LIMITS = Limits(cores=2)
CAPACITY = 1_000_000


def writing(url: str, path: str, name: str = "store", endpoint: str = "") -> Workflow:
    """One job with one final; a directory if its path ends with `/`."""
    origin = Origin(name, OriginKind(url.partition(":")[0]), url, "", (("endpoint", endpoint),) if endpoint else ())
    kind = FileKind.DIRECTORY if path.endswith("/") else FileKind.FILE
    final = File("final", kind, size_bytes=1, destination=Destination(Location(name, path.rstrip("/"))))
    return Workflow("w", {"final": final}, {"make": Job("make", "make", shell="x", outputs=(JobOutput("final", "final"),))}, {name: origin})


class Bench:
    """A RunService before a Machine that takes what was accepted at once, or (`slow`) not yet."""

    def __init__(self, place: Path, slow: bool = False) -> None:
        machine = Machine(Policy(), LIMITS)
        machine.step(ev.PolicySet(at=0.0, policy=Policy(), limits=LIMITS))
        machine.step(
            ev.NodeReported(at=0.0, node="node0", incarnation="i", capacity_bytes=CAPACITY, can_link=True, replicas=(), transfers=())
        )
        self.machine, self.slow = machine, slow
        book, records = CredentialBook(lambda run, origin: {}, lambda run, origin: False), RunRecords(place / "runs.sqlite")
        self.run_service = RunService(KnownRuns(machine, records), records, book, self.put)

    def put(self, event: ev.Event, *_: object) -> None:
        if not self.slow:
            self.machine.step(event)
            if isinstance(event, ev.RunSubmitted):
                self.run_service.took(event.run)

    def submit(self, workflow: Workflow) -> str:
        plan = make_plan(workflow, embedded(CAPACITY, cores=2), limits=LIMITS)
        return self.run_service.submit(wire.SubmitRequest(workflow, plan), 0.0, lambda: None)


ONE_PLACE = [
    (writing("sftp://lab/data", "out/x"), writing("sftp://lab/data", "out/x", "other")),
    (writing("sftp://lab/data", "out/x"), writing("sftp://ana@LAB:22/data/out/", "x", "other")),
    (writing("sftp://lab/data", "out/x"), writing("sshfs://lab/", "data/out/x")),
    (writing("file:///a%20b", "x"), writing("file:///", "a b/x")),
    (writing("s3://bucket/pre", "x"), writing("s3://bucket", "pre/x")),
    (writing("sftp://lab/data", "results/"), writing("sftp://lab/data", "results/x")),
    (writing("sftp://lab/data", "results/"), writing("sftp://lab/data", "results/deep/er/")),
    (writing("sftp://lab/data", "results/"), writing("sftp://bob@lab/data/results", "x", "other")),
    (writing("file:///data", "results/"), writing("file:///data", "results")),
]
TWO_PLACES = [
    (writing("sftp://lab/data", "out/x"), writing("sftp://lab/data", "out/y")),
    (writing("sftp://lab/data", "out/x"), writing("sftp://other/data", "out/x")),
    (writing("sftp://lab/data", "out/x"), writing("sftp://lab:2022/data", "out/x")),
    (writing("sftp://lab/data", "results/"), writing("sftp://lab/data", "results2/")),
    (writing("sftp://ana@lab/~", "x"), writing("sftp://bob@lab/~", "x")),
    (writing("s3://bucket", "x", endpoint="https://one"), writing("s3://bucket", "x", endpoint="https://two")),
]


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("pair", ONE_PLACE)
def test_one_place_is_refused_to_the_second_whichever_comes_first(pair: tuple[Workflow, Workflow], slow: bool, tmp_path: Path) -> None:
    for number, (first, second) in enumerate((pair, pair[::-1])):
        (tmp_path / str(number)).mkdir()
        run_service = Bench(tmp_path / str(number), slow)
        run = run_service.submit(first)
        with pytest.raises(Refused, match=f"the active run {run} writes to .*'final'.*stager wait {run}"):
            run_service.submit(second)


@pytest.mark.parametrize("pair", TWO_PLACES)
def test_two_places_are_given_side_by_side(pair: tuple[Workflow, Workflow], tmp_path: Path) -> None:
    run_service = Bench(tmp_path)
    assert [run_service.submit(workflow) for workflow in pair] == ["w-1", "w-2"]


def test_a_place_is_free_again_when_its_run_is_over_and_taken_when_it_would_be_resumed(tmp_path: Path) -> None:
    run_service = Bench(tmp_path)
    first = run_service.submit(writing("sftp://lab/data", "results/"))
    run_service.machine.step(ev.RunDrained(at=1.0, run=first))
    [attempt] = run_service.machine.state.attempts
    run_service.machine.step(ev.AttemptEnded(at=2.0, run=first, job="make", attempt=attempt, outcome=ev.Outcome.LOST))
    assert run_service.machine.state.runs[first].outcome == "interrupted"
    second = run_service.submit(writing("sftp://lab/data/results", "x"))
    with pytest.raises(Refused, match=f"the active run {second} writes to"):
        run_service.run_service.resume(first, wire.ResumeRequest(), lambda: None)


def test_a_mended_resume_that_needs_more_room_is_told_how_it_gets_that(tmp_path: Path) -> None:
    """A run that is there already is not submitted again."""
    run_service = Bench(tmp_path)
    workflow = writing("file:///data", "x")
    run = run_service.submit(workflow)
    run_service.machine.step(ev.RunDrained(at=1.0, run=run))
    [attempt] = run_service.machine.state.attempts
    run_service.machine.step(ev.AttemptEnded(at=2.0, run=run, job="make", attempt=attempt, outcome=ev.Outcome.LOST))
    mended = replace(workflow, jobs={"make": replace(workflow.jobs["make"], shell="y")})
    plan = replace(make_plan(mended, embedded(CAPACITY, cores=2), limits=LIMITS), smallest_node_bytes=2 * CAPACITY)
    with pytest.raises(Refused, match=f"`stager resume {run} --capacity SIZE`"):
        run_service.run_service.resume(run, wire.ResumeRequest(workflow=mended, plan=plan), lambda: None)


def test_what_somebody_stopped_stays_that_when_the_service_ends_as_well(tmp_path: Path) -> None:
    """A task that waits goes on by itself with what the end of a service interrupted, and with nothing else."""
    run_service = Bench(tmp_path)
    run = run_service.submit(writing("sftp://lab/data", "results/"))
    entry = run_service.machine.state.runs[run]
    for event, by in (
        (ev.RunDrained(at=1.0, run=run, by="service"), "service"),
        (ev.RunResumed(at=2.0, run=run), ""),
        (ev.RunDrained(at=3.0, run=run, by="mary"), "mary"),
        (ev.RunStopped(at=4.0, run=run, by="service"), "mary"),
        (ev.RunCancelled(at=5.0, run=run), ""),
    ):
        run_service.machine.step(event)
        assert entry.interrupted_by == by, event


def test_a_submit_is_once_for_each_sender_also_when_its_run_was_folded_away(tmp_path: Path) -> None:
    run_service = Bench(tmp_path)
    workflow = writing("sftp://lab/data", "out/x")
    request = wire.SubmitRequest(workflow, make_plan(workflow, embedded(CAPACITY, cores=2), limits=LIMITS), submit_id="k")
    alice = Sender("alice", "digest")
    run = run_service.run_service.submit(request, 0.0, lambda: None, alice)
    assert run_service.run_service.submit(request, 1.0, lambda: None, alice) == run and run_service.run_service.tenants == {run: "alice"}
    with pytest.raises(Refused, match="used for another request"):
        run_service.run_service.submit(request, 1.0, lambda: None, Sender("alice", "other"))
    run_service.run_service.records.finish(run, "succeeded", 2.0, 1, "{}", b"[]")
    later = Bench.__new__(Bench)
    later.machine, later.slow = Machine(Policy(), LIMITS), False
    records = run_service.run_service.records
    later.run_service = RunService(KnownRuns(later.machine, records), records, run_service.run_service.book, later.put)
    assert later.run_service.submit(request, 3.0, lambda: None, alice) == run, "the journal no longer knows it, and it is not made again"
    assert later.machine.state.runs == {}


def test_no_key_of_a_tenant_is_in_the_way_of_submits_without_one(tmp_path: Path) -> None:
    """Names of runs can be guessed, and a key may be called like one."""
    run_service, alice = Bench(tmp_path), Sender("alice")

    def submit(place: str, key: str) -> str:
        workflow = writing("sftp://lab/data", place)
        request = wire.SubmitRequest(workflow, make_plan(workflow, embedded(CAPACITY, cores=2), limits=LIMITS), submit_id=key)
        return run_service.run_service.submit(request, 0.0, lambda: None, alice)

    assert [submit("a", "w-2"), submit("b", ""), submit("c", "w-2"), submit("d", "w-4")] == ["w-1", "w-2", "w-1", "w-3"]
    assert run_service.run_service.made_by("w-3", "alice") is None and submit("e", "w-3") == "w-4"


def test_what_others_write_is_told_without_their_names(tmp_path: Path) -> None:
    run_service = Bench(tmp_path)
    workflow = writing("sftp://lab/data", "out/x")
    request = wire.SubmitRequest(workflow, make_plan(workflow, embedded(CAPACITY, cores=2), limits=LIMITS))
    run = run_service.run_service.submit(request, 0.0, lambda: None, Sender("alice"))
    for sender, told in ((Sender("alice"), True), (OWNER, True), (Sender("bob"), False)):
        with pytest.raises(Refused, match="writes to") as caught:
            run_service.run_service.submit(request, 1.0, lambda: None, sender)
        assert (run in caught.value.message + caught.value.subject) == told
