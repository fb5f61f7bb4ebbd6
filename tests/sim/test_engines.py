"""Runs whose jobs a foreign engine runs: one behaviour at a time. That all of them hold together is what the kinds `engine` and
`engine_faults` of test_properties.py are for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from stager.estimate import estimate
from stager.model.errors import Fault
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import Node, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Access
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.ledger import Standing, ledger_of
from stager.scheduler.machine import Machine
from stager.scheduler.states import JobState
from stager.service.waiting import waiting_of
from stager.sim.attempts import Trying
from stager.sim.checkers import all_checkers
from stager.sim.engine import Habits
from stager.sim.faults import Faults, Trouble
from stager.sim.sampling import Spread
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import DISK_BYTES_PER_S, LINKS, watch_invariants
from tests.sim.drawn import ARCHIVE, HOME

MUTE = Habits(silent=0)


def job(name: str, reads: tuple[str, ...] = (), makes: tuple[str, ...] = ()) -> Job:
    return Job(name, name, inputs=tuple(JobInput(lfn, lfn) for lfn in reads), outputs=tuple(JobOutput(lfn, lfn) for lfn in makes))


def external(lfn: str, size_bytes: int = 100) -> File:
    return File(lfn, size_bytes=size_bytes, sources=(Source(Location("home", f"in/{lfn}"), size_bytes, f"t{lfn}"),))


def final(lfn: str) -> File:
    return File(lfn, size_bytes=100, destination=Destination(Location("home", f"out/{lfn}")))


def workflow(files: list[File], jobs: list[Job], engine: str = "airflow") -> Workflow:
    return Workflow(
        "w", {file.lfn: file for file in files}, {each.id: each for each in jobs}, {"home": HOME, "archive": ARCHIVE}, engine=engine
    )


def chain() -> Workflow:
    """a reads an external, b what a made; b's is final."""
    return workflow(
        [external("in"), File("mid", size_bytes=100), final("out")], [job("a", ("in",), ("mid",)), job("b", ("mid",), ("out",))]
    )


@dataclass
class Played:
    """An engine that does what it is told: `computes` says how long a staged try takes, None that it never ends."""

    world: SimWorld
    commands: list[Any] = field(default_factory=list)
    staged: list[Trying] = field(default_factory=list)
    computes: Callable[[Trying], float | None] = lambda trying: 1.0

    def call(self, at: float, name: str, call: str = "", stage: ev.Stage = ev.Stage.PATHS, run: str = "r0") -> None:
        self.world.tell_at(at, lambda now: ev.JobCalled(at=now, run=run, job=name, call=call or f"{name}-1", stage=stage))

    def fail(self, at: float, name: str, call: str) -> None:
        self.world.tell_at(at, lambda now: ev.CallFailed(at=now, run="r0", job=name, call=call, message="exit code 3"))

    def end(self, at: float, outcome: ev.EngineOutcome = ev.EngineOutcome.SUCCEEDED) -> None:
        self.world.tell_at(at, lambda now: ev.EngineRunEnded(at=now, run="r0", outcome=outcome))

    def on_staged(self, trying: Trying) -> None:
        self.staged.append(trying)
        takes_s = self.computes(trying)
        if takes_s is not None:
            self.world.clock.after(takes_s, self.world.executor.finish, trying)

    def play(self) -> Machine:
        self.world.executor.on_staged = self.on_staged

        def watch(machine: Machine, events: Any, commands: Any) -> None:
            watch_invariants(machine, events, commands)
            self.commands += commands

        return simulate(self.world, watch)

    def given(self, kind: type) -> list[Any]:
        return [command for command in self.commands if type(command) is kind]

    def why_over(self, name: str) -> list[Fault]:
        return [command.fault for command in self.given(cmd.EndCall) if command.job == name]


def played(value: Workflow, capacity: int = 10_000, spill: str | None = None, nodes: int = 1, **more: Any) -> Played:
    topology = Topology(tuple(Node(f"node{n}", capacity, 1, disk_bytes_per_s=DISK_BYTES_PER_S) for n in range(nodes)), LINKS)
    world = SimWorld(topology, checkers=all_checkers(), keep_journal=True, **more)
    world.submit("r0", value, make_plan(value, topology, spill_origin=spill), habits=MUTE)
    return Played(world)


def test_nothing_runs_before_it_is_called_and_inputs_are_there_by_then() -> None:
    engine = played(chain())
    engine.call(50.0, "a")
    engine.call(60.0, "b")
    engine.end(70.0)
    engine.play()
    fetches = engine.given(cmd.Fetch)
    assert [(fetch.lfn, fetch.purpose, fetch.at < 1.0) for fetch in fetches] == [("in", cmd.Purpose.PREFETCH, True)]
    assert [(start.job, start.at >= 50.0) for start in engine.given(cmd.StartAttempt)] == [("a", True), ("b", True)]
    assert engine.world.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED


def test_calls_take_no_core_of_ours() -> None:
    """One core, and a run of ours that keeps it; ten calls at once are staged all the same."""
    many = workflow([external("in")], [job(f"j{n}", ("in",)) for n in range(10)])
    engine = played(many)
    ours = workflow([], [replace(job("long"), argv=("sleep",), compute_s=1000.0)], engine="")
    engine.world.submit("r1", ours, make_plan(ours, engine.world.topology))
    for n in range(10):
        engine.call(5.0, f"j{n}")
    engine.end(20.0)
    engine.play()
    assert len(engine.staged) == 10 and all(trying.begun_at < 10.0 for trying in engine.staged)
    assert engine.world.runs["r0"].finished_at < 30.0


def test_the_same_call_again_changes_nothing_and_a_newer_one_takes_its_place() -> None:
    engine = played(chain())
    engine.computes = lambda trying: None if trying.command.number == 1 else 1.0
    for at in (5.0, 6.0, 7.0):
        engine.call(at, "a", "try-1")
    engine.call(10.0, "a", "try-2")
    # A word of the first try that comes late.
    engine.call(11.0, "a", "try-1")
    engine.call(12.0, "a", "try-2")
    engine.end(20.0)
    machine = engine.play()
    assert [(kill.at, kill.void) for kill in engine.given(cmd.KillAttempt)] == [(10.0, True)]
    assert [trying.command.number for trying in engine.staged] == [1, 2]
    assert machine.state.job("r0", "a").call == "try-2" and machine.state.job("r0", "a").state is JobState.DONE


def test_a_call_whose_input_was_not_published_is_refused_by_name_and_the_run_goes_on() -> None:
    engine = played(chain())
    engine.call(5.0, "b", "early")
    engine.call(10.0, "a")
    engine.call(20.0, "b", "again")
    engine.end(30.0)
    engine.play()
    fault = engine.why_over("b")[0]
    assert fault.code == "not_published" and "'mid'" in fault.message and "'a'" in fault.message
    assert engine.world.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED


def test_a_call_waits_for_what_is_just_being_published() -> None:
    engine = played(chain())
    engine.call(5.0, "a")
    engine.call(5.5, "b")
    engine.end(20.0)
    engine.play()
    assert not engine.given(cmd.EndCall)
    first, second = engine.given(cmd.StartAttempt)
    assert (first.job, second.job) == ("a", "b") and second.at < 8.0


def test_but_not_for_ever() -> None:
    engine = played(chain())
    engine.computes = lambda trying: None
    engine.call(5.0, "a")
    engine.call(6.0, "b")
    engine.fail(100.0, "a", "a-1")
    engine.end(120.0, ev.EngineOutcome.FAILED)
    engine.play()
    assert [fault.code for fault in engine.why_over("b")] == ["not_published"]
    ended = next(command for command in engine.given(cmd.EndCall) if command.job == "b")
    assert 60.0 < ended.at <= 67.0


def test_what_has_no_room_is_refused_by_name_and_never_the_run() -> None:
    files = [external("small"), external("large", 900), File("mid", size_bytes=300)]
    engine = played(workflow(files, [job("a", ("small",), ("mid",)), job("b", ("large",)), job("c", ("mid",))]), capacity=1000)
    for at, name in ((5.0, "a"), (10.0, "b"), (20.0, "c")):
        engine.call(at, name)
    engine.end(30.0)
    engine.play()
    assert [fault.code for fault in engine.why_over("b")] == ["no_space_node"]
    assert "spill" in engine.why_over("b")[0].message
    assert [trying.command.job for trying in engine.staged] == ["a", "c"]
    assert engine.world.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED


def test_with_a_place_to_spill_to_it_gets_its_room() -> None:
    files = [external("small"), external("large", 900), File("mid", size_bytes=300)]
    jobs = [job("a", ("small",), ("mid",)), job("b", ("large",)), job("c", ("mid",))]
    engine = played(workflow(files, jobs), capacity=1000, spill="archive")
    for at, name in ((5.0, "a"), (10.0, "b"), (20.0, "c")):
        engine.call(at, name)
    engine.end(30.0)
    engine.play()
    assert [trying.command.job for trying in engine.staged] == ["a", "b", "c"]
    assert not engine.given(cmd.EndCall)


def test_calls_that_cannot_be_met_do_not_empty_the_cache() -> None:
    files = [external("small"), external("large", 900), File("mid", size_bytes=300)]
    engine = played(workflow(files, [job("a", ("small",), ("mid",)), job("b", ("large",)), job("c", ("small",))]), capacity=1000)
    engine.call(5.0, "a")
    for number in range(5):
        engine.call(10.0 + number, "b", f"b-{number}")
    engine.call(30.0, "c")
    engine.end(40.0)
    engine.play()
    assert [fetch.lfn for fetch in engine.given(cmd.Fetch) if fetch.at > 5.0] == []
    assert len(engine.why_over("b")) == 5


def test_an_intermediate_stays_until_the_engine_has_ended_its_run() -> None:
    engine = played(chain())
    for at, name in ((5.0, "a"), (10.0, "b")):
        engine.call(at, name)
    engine.call(100.0, "b", "b-2")
    engine.end(200.0)
    engine.play()
    deleted = [delete.at for delete in engine.given(cmd.DeleteReplica) if delete.generation.startswith("a") and delete.at < 200.0]
    # What b made a second time is as the first, and is not needed beside it.
    assert len(deleted) == 1
    assert len(engine.given(cmd.StartAttempt)) == 3
    assert any(delete.at == 200.0 for delete in engine.given(cmd.DeleteReplica))


def cleared(**more: Any) -> Played:
    """Both jobs are run again and make something else."""
    engine = played(chain(), spread=Spread(contents_vary=True), **more)
    for at, name, call in ((5.0, "a", "1"), (10.0, "b", "1"), (100.0, "a", "2"), (110.0, "b", "2")):
        engine.call(at, name, f"{name}-{call}")
    engine.end(200.0)
    return engine


def test_a_cleared_task_replaces_what_it_made_and_its_final_by_our_own_token() -> None:
    engine = cleared()
    machine = engine.play()
    first, second = [upload for upload in engine.given(cmd.Upload) if upload.lfn == "out"]
    assert (first.replaces, second.replaces, second.replace) == ("", "w1;s=100", False)
    stored = engine.world.origin_of("r0", "home").files["out/out"]
    assert stored.token == "w2;s=100" and stored.content == machine.state.file_of("r0", "out").blake3
    assert engine.world.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED


def test_what_somebody_else_wrote_over_our_final_is_left_alone_and_told() -> None:
    engine = cleared()
    home = engine.world.origin_of("r0", "home")
    engine.world.clock.at(50.0, lambda: home.put("out/out", "theirs", 7))
    engine.play()
    entry = engine.world.runs["r0"]
    assert home.files["out/out"].content == "theirs"
    assert entry.outcome is cmd.RunOutcome.NOT_DURABLE and entry.fault.code == "destination_exists"


def test_a_reader_that_is_under_way_keeps_the_making_it_was_given() -> None:
    engine = played(chain(), spread=Spread(contents_vary=True))
    engine.computes = lambda trying: 50.0 if trying.command.job == "b" else 1.0
    for at, name, call in ((5.0, "a", "a-1"), (10.0, "b", "b-1"), (20.0, "a", "a-2")):
        engine.call(at, name, call, ev.Stage.PINS)
    engine.end(100.0)
    engine.play()
    start = next(start for start in engine.given(cmd.StartAttempt) if start.job == "b")
    assert [entry.access for entry in start.inputs] == [Access.HELD]
    old = [delete.at for delete in engine.given(cmd.DeleteReplica) if delete.generation == start.inputs[0].generation]
    assert len(old) == 1 and old[0] > 55.0


def test_nor_does_a_node_that_comes_back_take_it_away() -> None:
    trouble = Trouble(30.0, "restart", lasts_s=1.0, at_share=0.9)
    engine = played(chain(), spread=Spread(contents_vary=True), faults=Faults(until_s=60.0, troubles=(trouble,)))
    engine.computes = lambda trying: 50.0 if trying.command.job == "b" else 1.0
    for at, name, call in ((5.0, "a", "a-1"), (10.0, "b", "b-1"), (20.0, "a", "a-2")):
        engine.call(at, name, call, ev.Stage.PINS)
    engine.end(100.0)
    engine.play()
    start = next(start for start in engine.given(cmd.StartAttempt) if start.job == "b")
    old = [delete.at for delete in engine.given(cmd.DeleteReplica) if delete.generation == start.inputs[0].generation]
    assert len(old) == 1 and old[0] > 55.0


def test_finals_of_an_engines_run_are_in_the_ledger_though_it_goes_on() -> None:
    engine = played(chain())
    seen: dict[str, Standing] = {}
    for at, name in ((5.0, "a"), (10.0, "b")):
        engine.call(at, name)
    engine.end(50.0)
    machines: list[Machine] = []
    engine.world.clock.at(40.0, lambda: seen.update({entry.lfn: entry.standing for entry in ledger_of(machines[0].state, "r0")}))
    engine.world.executor.on_staged = engine.on_staged
    simulate(engine.world, lambda machine, events, commands: machines.append(machine))
    assert seen == {"mid": Standing.SAFE, "out": Standing.DURABLE}


def test_a_failed_call_counts_nothing_against_the_run() -> None:
    engine = played(chain())
    engine.computes = lambda trying: None if trying.command.number <= 4 else 1.0
    for number in range(1, 6):
        engine.call(10.0 * number, "a", f"a-{number}")
        if number < 5:
            engine.fail(10.0 * number + 5.0, "a", f"a-{number}")
    engine.end(100.0)
    machine = engine.play()
    assert [fault.message for fault in engine.why_over("a")] == ["exit code 3"] * 4
    assert machine.state.job("r0", "a").state is JobState.DONE


def test_a_drained_run_takes_no_calls_and_lets_those_under_way_end() -> None:
    engine = played(chain())
    engine.computes = lambda trying: 20.0
    engine.call(5.0, "a")
    engine.world.tell_at(10.0, lambda now: ev.RunDrained(at=now, run="r0"))
    engine.call(12.0, "b")
    machine = engine.play()
    assert engine.world.runs["r0"].outcome is cmd.RunOutcome.INTERRUPTED
    assert [job.state for job in machine.state.runs["r0"].jobs.values()] == [JobState.DONE, JobState.WAITING]
    assert not machine.state.job("r0", "b").call


def test_jobs_that_were_never_called_are_skipped_and_that_is_no_failure() -> None:
    engine = played(chain())
    engine.call(5.0, "a")
    engine.end(20.0)
    machine = engine.play()
    assert engine.world.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED
    assert machine.state.job("r0", "b").state is JobState.SKIPPED


def test_a_call_after_the_end_reopens_a_run_that_still_writes() -> None:
    """Somebody clears a task of a run that has just ended."""
    engine = played(chain())
    for at, name in ((5.0, "a"), (10.0, "b")):
        engine.call(at, name)
    home = engine.world.origin_of("r0", "home")
    engine.world.clock.at(10.5, lambda: setattr(home, "fault_code", "origin_unreachable"))
    engine.world.clock.at(60.0, lambda: setattr(home, "fault_code", ""))
    engine.end(20.0)
    engine.call(30.0, "a", "a-2")
    engine.end(200.0)
    machine = engine.play()
    assert machine.state.job("r0", "a").attempts == 2
    assert engine.world.runs["r0"].finished_at >= 200.0


def test_a_silent_engine_is_waited_for_until_somebody_cancels() -> None:
    engine = played(chain())
    engine.call(5.0, "a")
    engine.world.tell_at(100_000.0, lambda now: ev.RunCancelled(at=now, run="r0"))
    engine.play()
    entry = engine.world.runs["r0"]
    assert (entry.outcome, entry.finished_at) == (cmd.RunOutcome.CANCELLED, 100_000.0)


def test_that_nothing_was_heard_of_it_for_long_is_in_the_runs_status() -> None:
    engine = played(chain())
    engine.call(5.0, "a")
    engine.computes = lambda trying: None
    engine.world.tell_at(20_000.0, lambda now: ev.RunCancelled(at=now, run="r0"))
    told: dict[float, list[str]] = {}
    machines: list[Machine] = []

    def look(now: float) -> None:
        state = machines[-1].state
        told[now] = [each.message for each in waiting_of(state, state.runs["r0"], now)]

    for now in (100.0, 3 * 3600.0 + 5.0):
        engine.world.clock.at(now, look, now)
    engine.world.executor.on_staged = engine.on_staged
    simulate(engine.world, lambda machine, events, commands: machines.append(machine))
    assert list(told.values()) == [[], ["no word from airflow for 3 h 00 min (calls open: 1)"]]


def test_an_engines_run_can_be_estimated_where_no_checker_watches() -> None:
    """It never ended, or stood still: the engine heard neither that its run was open nor what was published."""
    topology = Topology((Node("node0", 10_000, 1, disk_bytes_per_s=DISK_BYTES_PER_S),), LINKS)

    def give_up(machine: Machine, events: Any, commands: Any) -> None:
        assert not events or events[0].at < 600.0, "the run does not end"

    report = estimate(chain(), topology, watch=give_up)
    assert report.outcome is cmd.RunOutcome.SUCCEEDED and report.attempts == 2
    assert 2.0 < report.wall_s < 60.0
