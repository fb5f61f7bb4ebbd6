"""What a scheduler writes down of the jobs of its runs, and what it says where it cannot."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from stager.adapters import results_store
from stager.adapters.results_store import ResultsStore, open_to_read
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import embedded
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import ReusedJob, ReusedOutput, Sharing
from stager.planning.policy import Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.scheduler.states import ACTIVE
from stager.service import recording as recording_module
from stager.service.recording import AGAIN_S, Recording
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld

HOME = Origin("home", OriginKind.SFTP, "sftp://lab/data")


def flow() -> Workflow:
    files = [
        File("in", size_bytes=10, sources=(Source(Location("home", "in"), 10, "t1"),)),
        File("mid", size_bytes=20),
        File("out", size_bytes=30, destination=Destination(Location("home", "out"))),
    ]
    jobs = [
        Job("a", "t", ("a", "x" * 10_000), inputs=(JobInput("in", "in"),), outputs=(JobOutput("mid", "mid"),), compute_s=1.0),
        Job("b", "t", ("b",), inputs=(JobInput("mid", "mid"),), outputs=(JobOutput("out", "out"),), compute_s=1.0, env_pass=("S",)),
    ]
    return Workflow("w", {file.lfn: file for file in files}, {job.id: job for job in jobs}, {"home": HOME})


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


def in_step() -> float:
    return 0.0


Saw = Callable[[Recording, Sequence[ev.Event], Sequence[cmd.Command]], None]


def simulated(
    path: Path,
    *,
    live: bool,
    reused: tuple[ReusedJob, ...] = (),
    hear: Saw | None = None,
    ahead_s: float = 0.0,
    sharing: Sharing | None = None,
) -> tuple[Machine, Recording]:
    """`live`: it heard of each batch; else only of the state at the end, as after a kill. `hear`: has it hear of a batch; then it stays
    open.
    """
    world = SimWorld(embedded(100_000), Policy(keep_results_bytes=1_000, keep_results_s=1e9))
    world.submit("w-1", flow(), make_plan(flow(), embedded(100_000)), reused=reused, sharing=sharing)
    recordings: list[Recording] = []

    def watch(machine: Machine, events: object, commands: object) -> None:
        if not recordings:
            recordings.append(Recording(path, machine.state, lambda: ahead_s))
        if live:
            (hear or Recording.saw)(recordings[0], events, commands)  # type: ignore[arg-type]

    machine = simulate(world, watch)
    machine.state.runs["w-1"].passed = {"S": "digest"}
    if not live:
        recordings[0].saw((), ())
    if hear is None:
        recordings[0].close()
    return machine, recordings[0]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for no other program, and writes each result by itself."""
    monkeypatch.setattr(results_store, "BUSY_S", 0.01)
    monkeypatch.setattr(recording_module, "WRITE_TOGETHER", 1)


def jobs_in(path: Path) -> list[str]:
    store = open_to_read(path)
    return sorted(result.job for result in store.results("")) if store is not None else []


def test_what_ended_well_is_recorded_with_all_that_it_read_and_made(tmp_path: Path) -> None:
    machine, recording = simulated(tmp_path / "r", live=True)
    assert jobs_in(tmp_path / "r") == ["a"] and not recording.faults, "of b nobody knew the value of its variable"
    store = ResultsStore(tmp_path / "r")
    (result,) = store.results("")
    made, state = result.outputs[0], machine.state
    assert (made.path, made.size_bytes, made.blake3) == ("mid", 20, state.file_of("w-1", "mid").blake3)
    assert result.parts["input in"] == state.file_of("w-1", "in").blake3 and result.compute_s
    (seen,) = store.seen(
        "", next(iter(store.db.execute("SELECT origin FROM seen WHERE final = 1")))[0], ["in", "out"], finals=True
    ).values()
    assert (seen.path, seen.blake3) == ("out", state.file_of("w-1", "out").blake3) and store.complete() == {"w-1"}


def test_what_was_not_written_before_a_kill_is_made_up_from_the_state(tmp_path: Path) -> None:
    simulated(tmp_path / "r", live=False)
    assert jobs_in(tmp_path / "r") == ["a", "b"]


def test_what_cannot_be_written_is_told_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    machine, recording = simulated(tmp_path / "r", live=True)
    assert machine.state.runs["w-1"].outcome == "succeeded"
    assert "cannot be recorded, so a later run makes it again" in recording.faults["w-1"].message


def test_what_is_reused_is_done_from_the_start_and_is_no_result_of_this_run(tmp_path: Path) -> None:
    reused = tuple(
        ReusedJob(job, "w-0", f"k{job}", (ReusedOutput(lfn, 5, f"b {lfn}", token="t" if lfn == "out" else "", verified="readback"),))
        for job, lfn in (("a", "mid"), ("b", "out"))
    )
    machine, recording = simulated(tmp_path / "r", live=True, reused=reused)
    run = machine.state.runs["w-1"]
    assert run.outcome == "succeeded" and {job.attempts for job in run.jobs.values()} == {0} and run.fetched_bytes == 0
    assert jobs_in(tmp_path / "r") == [] and {job.reused_from for job in run.jobs.values()} == {"w-0"}


def finished(run: str) -> cmd.FinishRun:
    return cmd.FinishRun(id="c", at=9.0, cause="", run=run, outcome=cmd.RunOutcome.SUCCEEDED)


def is_end_of(job: str) -> Callable[[Sequence[ev.Event], Sequence[cmd.Command]], bool]:
    return lambda events, commands: any(type(event) is ev.AttemptEnded and event.job == job for event in events)


def is_end_of_run(events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> bool:
    return any(type(command) is cmd.FinishRun for command in commands)


def locked_while(path: Path, is_then: Callable[[Sequence[ev.Event], Sequence[cmd.Command]], bool]) -> Saw:
    """Another program writes while it hears of such a batch."""
    ResultsStore(path).close()

    def hear(recording: Recording, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        if is_then(events, commands):
            with locked(path):
                recording.saw(events, commands)
        else:
            recording.saw(events, commands)

    return hear


def test_a_write_that_fails_while_a_run_goes_on_is_made_up_before_the_run_counts_as_complete(tmp_path: Path, impatient: None) -> None:
    path = tmp_path / "r"
    _, recording = simulated(path, live=True, hear=locked_while(path, is_end_of("a")))
    assert ResultsStore(path).complete() == {"w-1"} and jobs_in(path) == ["a"]
    assert not recording.faults and not recording.waiting, "it was told while it was so, and is no more"


@pytest.mark.parametrize("how", ["time", "another write", "close"])
def test_what_could_not_be_written_at_the_end_of_a_run_is_tried_again(tmp_path: Path, impatient: None, how: str) -> None:
    path = tmp_path / "r"
    machine, recording = simulated(path, live=True, hear=locked_while(path, is_end_of_run))
    assert "database is locked" in recording.faults["w-1"].message and ResultsStore(path).complete() == set()
    recording.saw((), ())
    assert ResultsStore(path).complete() == set(), "not with each batch: a try may hold up the scheduler"
    if how == "time":
        machine.state.now += AGAIN_S
        recording.saw((), ())
    elif how == "another write":
        machine.state.runs["w-2"] = replace(machine.state.runs["w-1"], id="w-2")
        recording.saw((), [finished("w-2")])
    else:
        recording.close()
    assert "w-1" in ResultsStore(path).complete() and jobs_in(path) == ["a"] and "w-1" not in recording.faults


def test_a_disk_that_is_full_for_a_while_costs_no_result(tmp_path: Path, impatient: None) -> None:
    path = tmp_path / "r"
    told: list[str] = []

    def hear(recording: Recording, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        if not is_end_of("a")(events, commands):
            recording.saw(events, commands)
            return
        recording.opened = ResultsStore(path)
        (pages,) = recording.opened.db.execute("PRAGMA page_count").fetchone()
        recording.opened.db.execute(f"PRAGMA max_page_count = {pages}")
        recording.saw(events, commands)
        recording.opened.db.execute("PRAGMA max_page_count = 100000")
        told.extend(fault.message for fault in recording.faults.values())

    _, recording = simulated(path, live=True, hear=hear)
    assert "database or disk is full" in told[0] and jobs_in(path) == ["a"] and not recording.faults


def test_a_run_that_was_resumed_is_not_taken_for_complete_whatever_was_killed(tmp_path: Path) -> None:
    """Its scheduler died, or another program wrote, before the file said that the run goes on."""
    path = tmp_path / "r"
    machine, _ = simulated(path, live=False)
    store = ResultsStore(path)
    store.forget(None)
    run = machine.state.runs["w-1"]
    run.state, run.outcome = ACTIVE, None
    after = Recording(path, machine.state, in_step)
    after.saw((), ())
    assert store.complete() == set()
    after.saw((), [finished("w-1")])
    assert jobs_in(path) == ["a", "b"] and store.complete() == {"w-1"}


def test_a_resume_that_could_not_be_noted_is_noted_later(tmp_path: Path, impatient: None) -> None:
    path = tmp_path / "r"
    machine, recording = simulated(path, live=True, hear=Recording.saw)
    assert ResultsStore(path).complete() == {"w-1"}
    with locked(path):
        recording.saw([ev.RunResumed(at=9.0, run="w-1")], ())
    assert ResultsStore(path).complete() == {"w-1"} and recording.faults
    machine.state.now += AGAIN_S
    recording.saw((), ())
    assert ResultsStore(path).complete() == set()


def test_what_nodes_hold_no_more_is_noted_when_that_can_be_written(tmp_path: Path, impatient: None) -> None:
    path = tmp_path / "r"
    machine, recording = simulated(path, live=True, hear=Recording.saw)
    store = ResultsStore(path)
    ((_, kept),) = store.kept_files()
    machine.state.files[kept.file].copies.clear()
    deleted = cmd.DeleteReplica(id="c", at=9.0, cause="", node="n", file=kept.file, generation="g", size_bytes=1, why="")
    with locked(path):
        recording.saw([], [deleted])
    assert store.kept_files()
    recording.close()
    assert store.kept_files() == []


def test_of_too_much_that_cannot_be_written_the_next_scheduler_makes_up_the_rest(
    tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r"
    monkeypatch.setattr(recording_module, "WAITING_MAX", 0)
    machine, recording = simulated(path, live=True, hear=locked_while(path, is_end_of("a")))
    assert jobs_in(path) == [] and ResultsStore(path).complete() == set() and recording.faults.keys() == {"w-1"}
    recording.close()
    after = Recording(path, machine.state, in_step)
    after.saw((), ())
    assert "a" in jobs_in(path) and ResultsStore(path).complete() == {"w-1"}


def test_what_was_seen_is_told_by_the_clock_that_files_are_told_by(tmp_path: Path) -> None:
    """Where that was set back, the scheduler's is ahead: what somebody changes now would count as older than the run."""
    machine, _ = simulated(tmp_path / "r", live=True, ahead_s=3600.0)
    run = machine.state.runs["w-1"]
    times = {row[0]: row[1] for row in ResultsStore(tmp_path / "r").db.execute("SELECT path, at FROM seen")}
    assert times == {"in": run.submitted_at - 3600.0, "out": run.finished_at - 3600.0}
    machine, _ = simulated(tmp_path / "r2", live=True, ahead_s=0.01)
    run = machine.state.runs["w-1"]
    assert ("out", run.finished_at) in ResultsStore(tmp_path / "r2").db.execute("SELECT path, at FROM seen").fetchall()


def test_the_newest_counts_also_where_the_one_before_could_not_be_written_in_time(tmp_path: Path, impatient: None) -> None:
    path = tmp_path / "r"
    ended: list[ev.AttemptEnded] = []
    hear = locked_while(path, is_end_of_run)

    def listen(recording: Recording, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        ended.extend(event for event in events if type(event) is ev.AttemptEnded and event.job == "a")
        hear(recording, events, commands)

    machine, recording = simulated(path, live=True, hear=listen)
    other = machine.state.runs["w-2"] = replace(machine.state.runs["w-1"], id="w-2")
    # The first one's job could not be written in time, either.
    recording.waiting["w-1"].results.append(ResultsStore(path).results("")[0])
    recording.saw([structs.replace(ended[0], run=other.id)], [finished("w-2")])
    assert [result.run for result in ResultsStore(path).results("")] == ["w-2"]


def test_all_runs_that_cannot_be_written_are_told_of(tmp_path: Path, impatient: None) -> None:
    path = tmp_path / "r"
    machine, recording = simulated(path, live=True, hear=locked_while(path, is_end_of_run))
    machine.state.runs["w-2"] = replace(machine.state.runs["w-1"], id="w-2")
    with locked(path):
        recording.saw((), [finished("w-2")])
    assert recording.faults.keys() == {"w-1", "w-2"}
    recording.close()
    assert not recording.faults and ResultsStore(path).complete() == {"w-1", "w-2"}


def test_what_is_written_of_a_run_keeps_what_was_known_when_its_job_ended(tmp_path: Path, impatient: None) -> None:
    """How long it took, and that it was used, is in no state."""
    path = tmp_path / "r"
    machine, _ = simulated(path, live=True, hear=Recording.saw)
    store = ResultsStore(path)
    store.reopen("w-1")
    (before,) = store.results("")
    store.write("", used=[(before.key, 99.0)])
    machine.state.now = 50.0
    Recording(path, machine.state, in_step).saw((), ())
    (after,) = [result for result in store.results("") if result.job == "a"]
    assert store.complete() == {"w-1"} and after.compute_s and (after.made_at, after.last_used_at) == (before.made_at, 99.0)


@pytest.mark.parametrize("sharing", [None, Sharing()])
def test_a_run_that_looked_at_its_inputs_says_so(tmp_path: Path, sharing: Sharing | None) -> None:
    path = tmp_path / "r"
    simulated(path, live=True)
    store = ResultsStore(path)
    store.db.execute("UPDATE seen SET at = -5.0")
    machine, _ = simulated(path, live=True, sharing=sharing, hear=heard_before)
    looked = machine.state.runs["w-1"].submitted_at if sharing is not None else -5.0
    assert store.db.execute("SELECT at FROM seen WHERE path = 'in'").fetchall() == [(looked,)]


def heard_before(recording: Recording, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
    """Of another batch."""
    if not recording.caught_up:
        recording.saw((), ())
    recording.saw(events, commands)
