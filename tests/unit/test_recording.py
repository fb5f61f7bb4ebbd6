"""What a scheduler writes down of the jobs of its runs, and what it says where it cannot."""

from __future__ import annotations

from pathlib import Path

from stager.adapters.results_store import ResultsStore, open_to_read
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import embedded
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import ReusedJob, ReusedOutput
from stager.scheduler.machine import Machine
from stager.service.recording import Recording
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
        Job("a", "t", ("a",), inputs=(JobInput("in", "in"),), outputs=(JobOutput("mid", "mid"),), compute_s=1.0),
        Job("b", "t", ("b",), inputs=(JobInput("mid", "mid"),), outputs=(JobOutput("out", "out"),), compute_s=1.0, env_pass=("S",)),
    ]
    return Workflow("w", {file.lfn: file for file in files}, {job.id: job for job in jobs}, {"home": HOME})


def simulated(path: Path, *, live: bool, reused: tuple[ReusedJob, ...] = ()) -> tuple[Machine, Recording]:
    """`live`: it heard of each batch; else only of the state at the end, as after a kill."""
    world = SimWorld(embedded(100_000))
    world.submit("w-1", flow(), make_plan(flow(), embedded(100_000)), reused=reused)
    recordings: list[Recording] = []

    def watch(machine: Machine, events: object, commands: object) -> None:
        if not recordings:
            recordings.append(Recording(path, machine.state))
        if live:
            recordings[0].saw(events, commands)  # type: ignore[arg-type]

    machine = simulate(world, watch)
    machine.state.runs["w-1"].passed = {"S": "digest"}
    if not live:
        recordings[0].saw((), ())
    recordings[0].close()
    return machine, recordings[0]


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
