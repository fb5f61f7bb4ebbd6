"""Several nodes: a byte crosses the wide area once, what is made on one node is copied to its readers on others, and never made twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from stager.model.files import Destination, File, Location, Source
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Policy
from stager.scheduler import commands as cmd
from stager.scheduler.commands import RunOutcome
from stager.scheduler.machine import Machine
from stager.sim.checkers import all_checkers
from stager.sim.faults import NO_FAULTS, Faults, Trouble
from stager.sim.simulate import simulate
from stager.sim.transfers import LOST_SOURCE
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants

LAB = Origin("lab", OriginKind.SFTP, "sftp://lab/data")
LINKS = (OriginLink("lab", 100.0, 100.0, 0.0),)
# (what it reads, what it makes, how long it takes)
Jobs = Mapping[str, tuple[str, str, float]]


def workflow(externals: Mapping[str, int], jobs: Jobs, finals: tuple[str, ...] = ()) -> Workflow:
    """Every made file has 100 bytes."""
    files = {
        lfn: File(lfn, size_bytes=size, sources=(Source(Location("lab", f"in/{lfn}"), size, f"t-{lfn}"),))
        for lfn, size in externals.items()
    }
    made = {}
    for name, (reads, makes, compute_s) in jobs.items():
        inputs, outputs = tuple(JobInput(lfn, lfn) for lfn in reads.split()), tuple(JobOutput(lfn, lfn) for lfn in makes.split())
        made[name] = Job(name, "work", ("work",), inputs=inputs, outputs=outputs, compute_s=compute_s, retries=0)
        for lfn in makes.split():
            where = Destination(Location("lab", f"out/{lfn}")) if lfn in finals else None
            files[lfn] = File(lfn, size_bytes=100, destination=where)
    return Workflow("w", files, made, {"lab": LAB})


class Stage:
    """Two nodes whose network carries 1,000 bytes a second; jobs run where `where` says, else on node0. `decided`: more of the plan."""

    def __init__(
        self,
        what: Workflow,
        where: Mapping[str, str],
        faults: Faults = NO_FAULTS,
        policy: Policy | None = None,
        spill: str | None = None,
        **decided: Any,
    ) -> None:
        nodes = tuple(Node(name, 10_000, 4, disk_bytes_per_s=1e6, network_bytes_per_s=1000.0) for name in ("node0", "node1"))
        topology = Topology(nodes, LINKS)
        plan = make_plan(what, topology, spill_origin=spill)
        plan = replace(plan, jobs=tuple(structs.replace(job, node=where.get(job.job, "node0")) for job in plan.jobs), **decided)
        self.world = SimWorld(topology, policy, faults=faults, checkers=all_checkers(), resumes_max=3, keep_journal=True)
        self.world.submit("r", what, plan)
        self.commands: list[cmd.Command] = []

    def play(self) -> RunOutcome | None:
        def watch(machine: Machine, events: object, commands: list[cmd.Command]) -> None:
            watch_invariants(machine, events, commands)
            self.commands += commands

        machine = simulate(self.world, watch)
        check_replay(self.world, machine)
        return self.world.runs["r"].outcome

    def made(self, kind: type) -> list[cmd.Command]:
        return [command for command in self.commands if type(command) is kind]


BOTH = workflow({"in": 1000}, {"a": ("in", "x", 1.0), "b": ("in", "y", 1.0)})


def test_an_input_of_two_nodes_is_fetched_by_one_and_copied_to_the_other() -> None:
    stage = Stage(BOTH, {"b": "node1"})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert (stage.world.transfers.fetched_bytes, stage.world.transfers.copied_bytes) == (1000, 1000)
    # 10 s over the wide area, 1 s from node to node, 1 s of computing.
    assert 12.0 <= stage.world.runs["r"].finished_at < 12.1


def test_a_fetch_that_another_node_waits_for_overtakes_prefetch() -> None:
    """It is needed on node0 much later, and on node1 at once."""
    what = workflow({"in": 1000}, {"long": ("", "l", 50.0), "late": ("in l", "x", 1.0), "now": ("in", "y", 1.0)})
    stage = Stage(what, {"now": "node1"})
    assert stage.play() is RunOutcome.SUCCEEDED
    reprioritized = {command.transfer for command in stage.made(cmd.Reprioritize) if isinstance(command, cmd.Reprioritize)}
    fetched = [command for command in stage.made(cmd.Fetch) if isinstance(command, cmd.Fetch)]
    assert len(fetched) == 1
    assert fetched[0].purpose is cmd.Purpose.DEMAND or fetched[0].transfer in reprioritized


def test_what_is_made_on_one_node_is_copied_to_its_reader_on_another_and_not_made_again() -> None:
    stage = Stage(workflow({}, {"a": ("", "x", 1.0), "b": ("x", "y", 1.0)}, ("y",)), {"b": "node1"})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert [command.source for command in stage.made(cmd.CopyReplica) if isinstance(command, cmd.CopyReplica)] == ["node0"]
    assert len(stage.made(cmd.StartAttempt)) == 2
    assert stage.world.transfers.fetched_bytes == 0


def test_an_intermediate_goes_ahead_of_its_reader_that_waits_for_something_else() -> None:
    what = workflow({}, {"a": ("", "x", 1.0), "slow": ("", "z", 5.0), "b": ("x z", "y", 1.0)}, ("y",))
    stage = Stage(what, {"slow": "node1", "b": "node1"})
    assert stage.play() is RunOutcome.SUCCEEDED
    copies = [command for command in stage.made(cmd.CopyReplica) if isinstance(command, cmd.CopyReplica)]
    assert [(command.lfn, command.purpose) for command in copies] == [("x", cmd.Purpose.PREFETCH)]
    assert copies[0].at < 2.0


def test_a_copy_whose_source_is_lost_is_made_again_by_its_producer() -> None:
    damage = Trouble(at=1.2, what="corrupt", lasts_s=0.0, at_share=0.0)
    what = workflow({}, {"a": ("", "x", 1.0), "slow": ("", "z", 5.0), "b": ("x z", "y", 1.0)}, ("y",))
    stage = Stage(what, {"slow": "node1", "b": "node1"}, Faults(troubles=(damage,)), Policy(lookahead=False))
    assert stage.play() is RunOutcome.SUCCEEDED
    assert len([command for command in stage.made(cmd.StartAttempt) if isinstance(command, cmd.StartAttempt) and command.job == "a"]) == 2


def test_while_the_only_node_that_has_it_is_away_its_reader_waits_and_nothing_is_made_again() -> None:
    away = Trouble(at=2.0, what="outage", lasts_s=30.0, at_share=0.0)
    what = workflow({}, {"a": ("", "x", 1.0), "slow": ("", "z", 5.0), "b": ("x z", "y", 1.0)}, ("y",))
    stage = Stage(what, {"slow": "node1", "b": "node1"}, Faults(troubles=(away,)), Policy(lookahead=False))
    assert stage.play() is RunOutcome.SUCCEEDED
    assert not stage.made(cmd.RemakeFile)
    assert stage.world.runs["r"].finished_at > 32.0


def test_a_fetch_on_a_node_that_went_away_is_not_waited_for() -> None:
    away = Trouble(at=3.0, what="outage", lasts_s=300.0, at_share=0.0)
    stage = Stage(workflow({"in": 1000}, {"a": ("in", "x", 1.0), "b": ("in", "y", 1.0)}), {"b": "node1"}, Faults(troubles=(away,)))
    stage.play()
    began = [command.at for command in stage.made(cmd.StartAttempt) if isinstance(command, cmd.StartAttempt) and command.job == "b"]
    assert len(began) == 1
    assert began[0] < 60.0


def test_of_two_holders_one_may_be_evicted_and_the_last_one_may_not() -> None:
    """Checked by the checkers: here only that it comes to it."""
    what = workflow({"big": 9800}, {"a": ("", "x", 1.0), "b": ("x", "y", 1.0), "c": ("big y", "z", 1.0), "d": ("x z", "e", 1.0)}, ("e",))
    stage = Stage(what, {"b": "node1", "c": "node1"})
    assert stage.play() is RunOutcome.SUCCEEDED
    evicted = [command for command in stage.made(cmd.DeleteReplica) if isinstance(command, cmd.DeleteReplica) and "evicted" in command.why]
    assert [command.node for command in evicted] == ["node1"]


def test_what_became_the_only_copy_within_reach_is_spilled_where_room_is_short() -> None:
    """It lay there as what can be evicted, while another node had it too. `c` does not wait until that one is back."""
    what = workflow(
        {"big": 9800}, {"a": ("", "x", 1.0), "b": ("x", "y", 1.0), "slow": ("", "w", 5.0), "c": ("big w", "z", 1.0), "d": ("x z", "e", 1.0)}
    )
    away = Trouble(at=4.0, what="outage", lasts_s=300.0, at_share=0.0)
    where = {"b": "node1", "slow": "node1", "c": "node1"}
    stage = Stage(what, where, Faults(troubles=(away,)), Policy(lookahead=False), spill="lab")
    assert stage.play() is RunOutcome.SUCCEEDED
    spilled = [command for command in stage.made(cmd.Upload) if isinstance(command, cmd.Upload)]
    assert [(command.lfn, command.node, command.purpose) for command in spilled] == [("x", "node1", cmd.Purpose.SPILL)]
    began = [command.at for command in stage.made(cmd.StartAttempt) if isinstance(command, cmd.StartAttempt) and command.job == "c"]
    assert len(began) == 1
    # 5 s for `w`, 1 s to spill, 98 s for `big`.
    assert began[0] < 110.0


def without_copies(stage: Stage) -> Stage:
    """No copy between its nodes ever succeeds."""
    stage.world.transfers._copy_fault = lambda moving, command: LOST_SOURCE
    return stage


def test_an_input_that_cannot_be_copied_comes_from_its_origin_in_the_end() -> None:
    stage = without_copies(Stage(BOTH, {"b": "node1"}))
    assert stage.play() is RunOutcome.SUCCEEDED
    assert len(stage.made(cmd.CopyReplica)) == Policy().transfer_attempts_max
    assert stage.world.transfers.fetched_bytes == 2000


def test_an_intermediate_that_cannot_be_copied_fails_its_reader_which_says_why() -> None:
    stage = without_copies(Stage(workflow({}, {"a": ("", "x", 1.0), "b": ("x", "y", 1.0)}, ("y",)), {"b": "node1"}))
    assert stage.play() is RunOutcome.FAILED
    fault = stage.world.runs["r"].fault
    assert fault is not None
    assert fault.message == LOST_SOURCE.message
    assert not stage.made(cmd.RemakeFile)
