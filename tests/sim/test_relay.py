"""Nodes of other hosts, and directories beside a workflow: each file is read once where it lies, and finals go home through that node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from stager.model.files import OnExists
from stager.model.topology import Node, Topology
from stager.planning.make_plan import make_plan
from stager.planning.policy import Policy
from stager.scheduler import commands as cmd
from stager.scheduler.commands import RunOutcome
from stager.sim.checkers import all_checkers
from stager.sim.faults import NO_FAULTS, Faults, Trouble
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants
from tests.sim.test_several_nodes import LAB, LINKS, Jobs, workflow

BESIDE = replace(LAB, beside_workflow=True)
# All of them run on nodes of other hosts.
READERS: Jobs = {"a": ("in", "x", 1.0), "b": ("in", "y", 1.0), "c": ("in", "z", 1.0)}
FINALS = ("x", "y", "z")


class Stage:
    """node0 is the scheduler's; node1 and node2 are on other hosts."""

    def __init__(
        self,
        jobs: Jobs,
        where: Mapping[str, str],
        faults: Faults = NO_FAULTS,
        home_bytes: int = 10_000,
        on_exists: OnExists = OnExists.FAIL,
    ) -> None:
        what = replace(workflow({"in": 1000}, jobs, FINALS), origins={"lab": BESIDE})
        finals = {lfn: file for lfn, file in what.files.items() if file.destination is not None}
        for lfn, file in finals.items():
            assert file.destination is not None
            what.files[lfn] = replace(file, destination=replace(file.destination, on_exists=on_exists))
        rates = {"disk_bytes_per_s": 1e6, "network_bytes_per_s": 1000.0}
        sizes = {"node0": home_bytes, "node1": 10_000, "node2": 10_000}
        topology = Topology(tuple(Node(name, size, 4, **rates) for name, size in sizes.items()), LINKS)
        plan = make_plan(what, topology)
        plan = replace(plan, jobs=tuple(structs.replace(job, node=where.get(job.job, "node1")) for job in plan.jobs))
        checkers = all_checkers()
        self.world = SimWorld(
            topology, Policy(), faults=faults, checkers=checkers, resumes_max=3, keep_journal=True, apart=("node1", "node2")
        )
        self.world.submit("r", what, plan)
        self.commands: list[cmd.Command] = []

    def play(self) -> RunOutcome | None:
        def watch(machine: object, events: object, commands: list[cmd.Command]) -> None:
            watch_invariants(machine, events, commands)  # type: ignore[arg-type]
            self.commands += commands

        check_replay(self.world, simulate(self.world, watch))
        return self.world.runs["r"].outcome

    def copies(self) -> list[cmd.CopyReplica]:
        return [command for command in self.commands if isinstance(command, cmd.CopyReplica)]

    def at_origins(self) -> set[str]:
        return {command.node for command in self.commands if isinstance(command, cmd.Fetch | cmd.Upload)}


def test_an_input_is_read_once_and_each_final_goes_home_through_the_node_that_reaches_it() -> None:
    stage = Stage(READERS, {"c": "node2"})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.world.transfers.fetched_bytes == 1000 and stage.at_origins() == {"node0"}
    relayed = [command.lfn for command in stage.copies() if command.purpose is cmd.Purpose.RELAY]
    assert sorted(relayed) == ["x", "y", "z"]
    inputs = sorted(command.node for command in stage.copies() if command.lfn == "in")
    assert inputs == ["node1", "node2"]


def test_an_input_that_the_scheduler_s_node_cannot_hold_is_refused_by_name() -> None:
    stage = Stage(READERS, {}, home_bytes=500)
    assert stage.play() is RunOutcome.FAILED
    fault = stage.world.runs["r"].fault
    assert fault is not None and "'in' has 1 kB, and node0, through which files beside the workflow" in fault.message


def test_finals_that_the_scheduler_s_node_cannot_hold_stay_where_they_are() -> None:
    stage = Stage({"a": ("", "x", 1.0), "b": ("", "y", 1.0), "c": ("", "z", 1.0)}, {}, home_bytes=50)
    assert stage.play() is RunOutcome.NOT_DURABLE
    fault = stage.world.runs["r"].fault
    assert fault is not None and "give it more capacity" in fault.message
    assert not [command for command in stage.copies() if command.purpose is cmd.Purpose.RELAY]


def test_finals_go_home_one_after_the_other_where_there_is_room_for_one() -> None:
    stage = Stage({"a": ("", "x", 1.0), "b": ("", "y", 1.0), "c": ("", "z", 1.0)}, {"c": "node2"}, home_bytes=150)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert len([command for command in stage.commands if isinstance(command, cmd.Upload)]) == 3


def test_what_was_written_while_the_node_that_made_a_final_was_away_is_not_replaced() -> None:
    trouble = Trouble(at=1.05, what="restart", lasts_s=10.0, at_share=0.5)
    stage = Stage({"a": ("", "x", 1.0)}, {}, Faults(troubles=(trouble,)), on_exists=OnExists.REPLACE)
    home = stage.world.origin_of("r", "lab")
    stage.world.clock.at(5.0, lambda: home.put("out/x", "theirs", 7, 5.0))
    assert stage.play() is RunOutcome.SUCCEEDED
    assert home.files["out/x"].content == "theirs"


def test_a_final_on_its_way_home_survives_the_restart_of_either_node() -> None:
    for node in (0.0, 0.5):
        trouble = Trouble(at=12.55, what="restart", lasts_s=3.0, at_share=node)
        stage = Stage(READERS, {"c": "node2"}, Faults(troubles=(trouble,)))
        assert stage.play() is RunOutcome.SUCCEEDED, node
