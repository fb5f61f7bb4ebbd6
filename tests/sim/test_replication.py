"""Extra copies: where a plan wants two copies, the loss of a node costs no job; they take room that nobody wants, and are the first to
go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from stager.model.errors import ErrorClass, Fault
from stager.model.topology import Node, Topology
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.accounting import pin
from stager.scheduler.commands import RunOutcome
from stager.scheduler.ledger import Standing, ledger_of
from stager.scheduler.machine import Machine
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.replication import EXTRA_COPIES_MAX
from stager.scheduler.state import Copy, FileEntry, State
from stager.scheduler.states import CopyState
from stager.sim.checkers import all_checkers
from stager.sim.faults import NO_FAULTS, Faults, Trouble
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants
from tests.sim.test_several_nodes import LINKS, Jobs, workflow

# `x` is made in 10 s, and read when `slow` has ended.
LATE: Jobs = {"make": ("", "x", 10.0), "slow": ("", "z", 100.0), "read": ("x z", "y", 1.0)}
LOST = Faults(troubles=(Trouble(at=50.0, what="lost", lasts_s=5.0, at_share=0.0),))


class Stage:
    """Two nodes; all jobs run on node0, `elsewhere` on node1. `safe`: on how many nodes each file is to be, or those of `only`. `decided`:
    more of the plan.
    """

    def __init__(
        self,
        jobs: Jobs,
        faults: Faults = NO_FAULTS,
        safe: int = 2,
        room: int = 10_000,
        elsewhere: str = "",
        externals: dict[str, int] | None = None,
        cores: int = 4,
        only: str = "",
        spill: str | None = None,
        **decided: Any,
    ) -> None:
        what = workflow(externals or {}, jobs, ("y",))
        nodes = tuple(Node(name, room, cores, disk_bytes_per_s=1e6, network_bytes_per_s=100.0) for name in ("node0", "node1"))
        plan = make_plan(what, Topology(nodes, LINKS), spill_origin=spill)
        placed = tuple(structs.replace(job, node="node1" if job.job in elsewhere.split() else "node0") for job in plan.jobs)
        files = tuple(structs.replace(file, safe_copies=safe if not only or file.lfn in only.split() else 1) for file in plan.files)
        policy = Policy(lookahead=cores > 1)
        self.world = SimWorld(Topology(nodes, LINKS), policy, faults=faults, checkers=all_checkers(), resumes_max=3, keep_journal=True)
        self.world.submit("r", what, replace(plan, jobs=placed, files=files, **decided))
        self.commands: list[cmd.Command] = []
        self.standing: dict[float, dict[str, Standing]] = {}
        self.machine: Machine | None = None

    def play(self) -> RunOutcome | None:
        def watch(machine: Machine, events: list[ev.Event], commands: list[cmd.Command]) -> None:
            watch_invariants(machine, events, commands)
            self.commands += commands
            if "r" in machine.state.runs:
                self.standing[machine.state.now] = {entry.lfn: entry.standing for entry in ledger_of(machine.state, "r")}

        self.machine = simulate(self.world, watch)
        check_replay(self.world, self.machine)
        return self.world.runs["r"].outcome

    def extra_copies(self) -> list[cmd.CopyReplica]:
        return [command for command in self.commands if isinstance(command, cmd.CopyReplica) and command.purpose is cmd.Purpose.EXTRA_COPY]

    def deleted(self) -> list[cmd.DeleteReplica]:
        return [command for command in self.commands if isinstance(command, cmd.DeleteReplica)]

    def ran(self, job: str) -> int:
        return sum(isinstance(command, cmd.StartAttempt) and command.job == job for command in self.commands)


def test_a_lost_node_costs_no_job_where_another_holds_what_it_held() -> None:
    stage = Stage(LATE, LOST)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert [(command.lfn, command.node) for command in stage.extra_copies()[:1]] == [("x", "node1")]
    assert (stage.ran("make"), stage.ran("slow")) == (1, 2)
    assert not [command for command in stage.commands if isinstance(command, cmd.RemakeFile)]


def test_a_node_that_is_away_for_long_holds_nobody_up_where_another_holds_what_it_held() -> None:
    """Its jobs go to the other node. With one copy they wait: a node that cannot be asked may have it still."""
    gone = Faults(troubles=(Trouble(at=50.0, what="lost", lasts_s=1000.0, at_share=0.0),))
    stage = Stage(LATE, gone)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.world.runs["r"].finished_at < 160.0
    single = Stage(LATE, gone, safe=1)
    assert single.play() is RunOutcome.SUCCEEDED
    assert single.world.runs["r"].finished_at > 1050.0


def test_with_one_copy_it_is_made_again() -> None:
    stage = Stage(LATE, LOST, safe=1)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert (stage.extra_copies(), stage.ran("make")) == ([], 2)


def test_the_one_that_is_left_is_copied_again() -> None:
    """Lost at 50, back at 55: from then on node0 is to hold it again, though its reader comes at 155."""
    stage = Stage(LATE, LOST)
    stage.play()
    back = [command for command in stage.commands if isinstance(command, cmd.CopyReplica) and command.lfn == "x"]
    assert [(command.source, command.node) for command in back] == [("node0", "node1"), ("node1", "node0")]


def test_the_ledger_calls_it_safe_when_as_many_nodes_hold_it_as_the_plan_says() -> None:
    """Made at 10 s, copied in 1 s."""
    stage = Stage(LATE)
    stage.play()
    told = [(at, standing["x"]) for at, standing in stage.standing.items()]
    assert {standing for at, standing in told if 10.0 <= at < 10.9} == {Standing.AT_RISK}
    assert {standing for at, standing in told if 11.1 < at < 101.0} == {Standing.SAFE}


def test_it_goes_when_nobody_needs_it_any_more() -> None:
    stage = Stage(LATE)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.machine is not None
    copies = {node: copy.state for file in stage.machine.state.files.values() if file.lfn == "x" for node, copy in file.copies.items()}
    assert not copies or set(copies.values()) == {CopyState.DELETING}
    assert not [key for node in stage.world.nodes.values() for key in node.replicas if stage.machine.state.files[key[0]].lfn == "x"]


LARGE: Jobs = {
    "make": ("", "x", 10.0),
    "slow": ("x", "z", 100.0),
    "read": ("x z", "y", 1.0),
    "early": ("in used", "e", 1.0),
    "wait": ("e", "w", 20.0),
    "large": ("big in w", "v", 1.0),
}
INPUTS = {"in": 100, "used": 100, "big": 700}


def test_it_is_the_first_to_go_where_a_job_needs_the_room() -> None:
    """`large` takes 1,000 of 1,150 bytes on node1, where the extra copy of `x` lies, and `used`, which nobody reads any more: the extra
    copy goes, is not sent again, and `x` is not lost.
    """
    stage = Stage(LARGE, room=1_150, elsewhere="early wait large", externals=INPUTS, cores=1)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert [command.lfn for command in stage.extra_copies()].count("x") == 1
    assert stage.machine is not None
    gone = [(command.node, stage.machine.state.files[command.file].lfn) for command in stage.deleted() if "evicted" in command.why]
    assert gone == [("node1", "x")]
    assert stage.ran("make") == 1


def test_one_on_its_way_is_called_off_where_a_job_needs_the_room() -> None:
    """`x` is made as `wait` ends: its extra copy would arrive a second later."""
    jobs = {**LARGE, "make": ("", "x", 22.0), "early": ("in", "e", 1.0)}
    stage = Stage(jobs, room=1_050, elsewhere="early wait large", externals=INPUTS, cores=1, only="x")
    assert stage.play() is RunOutcome.SUCCEEDED
    (extra_copy,) = stage.extra_copies()
    (off,) = [command for command in stage.commands if isinstance(command, cmd.CancelTransfer)]
    (admitted,) = [command for command in stage.commands if isinstance(command, cmd.AdmitJob) and command.job == "large"]
    assert (off.transfer, extra_copy.at <= off.at) == (extra_copy.transfer, True)
    assert admitted.at < extra_copy.at + 0.9


def test_the_last_one_is_spilled_and_not_evicted_where_a_job_needs_the_room() -> None:
    """node0 cannot be reached, so the extra copy is all there is."""
    away = Faults(troubles=(Trouble(at=15.0, what="restart", lasts_s=300.0, at_share=0.0),))
    jobs = {**LARGE, "early": ("in", "e", 1.0)}
    stage = Stage(jobs, away, room=1_050, elsewhere="early wait large", externals=INPUTS, cores=1, only="x", spill="lab")
    assert stage.play() is RunOutcome.SUCCEEDED
    spilled = [command.lfn for command in stage.commands if isinstance(command, cmd.Upload) and command.purpose is cmd.Purpose.SPILL]
    assert spilled == ["x"]
    assert stage.ran("make") == 1


def test_a_lost_extra_copy_is_sent_again() -> None:
    lost = Faults(troubles=(Trouble(at=50.0, what="lost", lasts_s=5.0, at_share=0.75),))
    stage = Stage(LATE, lost)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert [round(command.at) for command in stage.extra_copies() if command.lfn == "x"] == [10, 55]


def test_it_waits_while_its_node_sends_what_a_job_waits_for() -> None:
    """`p` goes to its reader from 1 to 2 s; `x` is made at 1.5 s."""
    jobs: Jobs = {**LATE, "make": ("", "x", 1.5), "early": ("", "p", 1.0), "far": ("p", "q", 1.0)}
    stage = Stage(jobs, elsewhere="far", only="x")
    assert stage.play() is RunOutcome.SUCCEEDED
    (extra_copy,) = stage.extra_copies()
    assert 2.0 <= extra_copy.at < 2.1


def test_it_is_called_off_when_its_last_reader_ends_first() -> None:
    stage = Stage({"make": ("", "x", 10.0), "read": ("x", "y", 0.5)}, only="x")
    assert stage.play() is RunOutcome.SUCCEEDED
    off = [command.transfer for command in stage.commands if isinstance(command, cmd.CancelTransfer)]
    assert off == [command.transfer for command in stage.extra_copies()] != []


def test_a_job_that_needs_one_on_its_way_reprioritizes_it() -> None:
    """`read` on node1 has its other input at 10.5 s, when the extra copy is half there."""
    jobs: Jobs = {"make": ("", "x", 10.0), "other": ("", "z", 10.5), "read": ("x z", "y", 1.0)}
    stage = Stage(jobs, elsewhere="other read", only="x", cores=1)
    assert stage.play() is RunOutcome.SUCCEEDED
    reprioritized = [command.transfer for command in stage.commands if isinstance(command, cmd.Reprioritize)]
    assert reprioritized == [command.transfer for command in stage.extra_copies()] != []


def test_one_that_a_job_has_used_is_a_copy_like_others() -> None:
    state = State(Policy(), Limits(), nodes={"a": NodeEntry("a", reachable=True)})
    file = state.files["x"] = FileEntry("x", "x", "r", 1)
    file.copies["a"] = Copy(CopyState.PRESENT, "g", 1, extra_copy=True)
    assert not pin(state, file, "a").extra_copy


def test_none_is_sent_where_the_next_jobs_would_have_no_room_beside_it() -> None:
    stage = Stage(LATE, room=330)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.extra_copies() == []


def test_one_that_never_arrives_is_given_up_and_harms_nobody() -> None:
    stage = Stage(LATE)
    stage.world.transfers._copy_fault = lambda moving, command: Fault(ErrorClass.TRANSIENT, "connection_lost", "as it happens")
    assert stage.play() is RunOutcome.SUCCEEDED
    assert 1 <= len([command for command in stage.extra_copies() if command.lfn == "x"]) <= EXTRA_COPIES_MAX
    assert not [command for command in stage.commands if isinstance(command, cmd.GiveUpTransfer | cmd.RetryTransferAt | cmd.RequeueJob)]
    assert stage.world.runs["r"].finished_at < 103.01
    assert stage.machine is not None
    assert {file.fetch.copies_failed for file in stage.machine.state.files.values() if file.fetch is not None} == {0}


def test_a_job_that_is_admitted_where_the_extra_copy_goes_waits_for_it_and_for_no_second_copy() -> None:
    jobs: Jobs = {"make": ("", "x", 10.0), "read": ("x", "y", 1.0)}
    stage = Stage(jobs, elsewhere="read")
    assert stage.play() is RunOutcome.SUCCEEDED
    assert len([command for command in stage.commands if isinstance(command, cmd.CopyReplica)]) == 1
