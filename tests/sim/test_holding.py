"""A run that is to hold less than a node has room for: it never holds more, no node evicts for it, and it always comes to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from stager.planning.make_plan import make_plan
from stager.planning.plan_json import from_json, to_json
from stager.scheduler import commands as cmd
from stager.scheduler.commands import RunOutcome
from stager.scheduler.machine import Machine
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import JobState
from stager.sim.faults import NO_FAULTS
from stager.sim.sampling import Spread
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import Case, nodes_case, plain_case, topology_of, world_of
from tests.sim.drawn import sample_tangled
from tests.sim.held_cases import held
from tests.sim.test_balance import EIGHT
from tests.sim.test_several_nodes import Stage, workflow

BEGUN = (JobState.ADMITTED, JobState.RUNNING)


def begun_on(run: RunEntry, node: NodeEntry) -> list[str]:
    """Those that hold any room there."""
    footprints = {entry.job: entry.footprint_bytes for entry in run.plan.jobs}
    return [job.id for job in run.jobs.values() if job.state in BEGUN and job.node == node.id and footprints[job.id]]


def held_by_hand(state: State, run: RunEntry, node: NodeEntry) -> int:
    """From the workflow alone: each input once, what is set aside for outputs, and what comes ahead for no other run."""
    begun, plan = begun_on(run, node), {entry.job: entry for entry in run.plan.jobs}
    inputs = {entry.lfn for job in begun for entry in run.workflow.jobs[job].inputs}
    ahead = {lfn for lfn, file in run.file_ids.items() if file in node.prefetching} - inputs
    sizes = {lfn: file.size_bytes or 0 for lfn, file in run.workflow.files.items()}
    return sum(plan[job].reserve_bytes for job in begun) + sum(sizes[lfn] for lfn in inputs | ahead)


def exact(case: Case) -> Case:
    """One run alone, of which every size and time is as planned."""
    return replace(case, workflows=case.workflows[:1], plans=case.plans[:1], starts_s=(), habits=(), faults=NO_FAULTS, spread=Spread())


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_a_run_never_holds_more_than_its_plan_says_but_for_one_job_alone(first: int) -> None:
    most_begun = 0
    for seed in range(first, first + 20):
        case = exact(held(nodes_case(seed) if seed % 2 else plain_case(seed)))
        world, most = world_of(case), case.plans[0].holds_max_bytes

        def watch(machine: Machine, events: Sequence[Any], commands: Sequence[cmd.Command], most: int = most) -> None:
            nonlocal most_begun
            run = machine.state.runs.get("r0")
            for node in machine.state.nodes.values() if run is not None else ():
                begun = begun_on(run, node)
                most_begun = max(most_begun, len(begun))
                assert len(begun) <= 1 or held_by_hand(machine.state, run, node) <= most

        simulate(world, watch)
        assert world.runs["r0"].outcome is RunOutcome.SUCCEEDED, seed
    assert most_begun > 1


def test_with_no_room_at_all_jobs_run_one_by_one() -> None:
    """Eight jobs that could all run at once; two nodes, of which the second takes none."""
    stage = Stage(workflow({}, EIGHT), {}, holds_max_bytes=1, keeps_to=("node0",))
    assert stage.play() is RunOutcome.SUCCEEDED
    assert 80.0 < stage.world.runs["r"].finished_at < 81.0


def test_a_node_that_is_balanced_takes_no_more_than_it_may_hold() -> None:
    """Each node has one job at a time, though it has cores for four."""
    stage = Stage(workflow({}, EIGHT), {}, holds_max_bytes=199)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert 40.0 < stage.world.runs["r"].finished_at < 41.0


@pytest.mark.parametrize(("most", "at_once"), [(0, 12), (1500, 5), (1100, 1), (1000, 0)])
def test_as_much_comes_ahead_as_fits_beside_the_next_jobs(most: int, at_once: int) -> None:
    """One job makes 100 bytes that twelve wait for, with an input of their own each. The next three need 300 bytes each."""
    jobs = {"long": ("", "f", 50.0)} | {f"j{number}": (f"f i{number}", f"g{number}", 1.0) for number in range(12)}
    stage = Stage(workflow({f"i{number}": 100 for number in range(12)}, jobs), {}, holds_max_bytes=most, keeps_to=("node0",))
    seen = [0]

    def watch(machine: Machine, events: Sequence[Any], commands: Sequence[cmd.Command]) -> None:
        seen[0] = max([seen[0], *(len(node.prefetching) for node in machine.state.nodes.values())])

    simulate(stage.world, watch)
    assert stage.world.runs["r"].outcome is RunOutcome.SUCCEEDED
    assert seen == [at_once]


def test_nothing_is_evicted_for_it() -> None:
    """What the first run left stays, however little the second is to hold; with as little room in truth some goes."""
    first, second = workflow({"old": 3000}, {"a": ("old", "x", 1.0)}), workflow({"new": 3000}, {"b": ("new", "y", 1.0)})
    evicted: list[int] = []
    for capacity, most in ((10_000, 3200), (3200, 0)):
        world = SimWorld(topology_of(capacity, 4))
        for name, what, at in (("r0", first, 0.0), ("r1", replace(second, name="v"), 100.0)):
            plan = make_plan(what, topology_of(capacity, 4))
            world.submit(name, what, replace(plan, holds_max_bytes=most), at)
        seen = [0]

        def watch(machine: Machine, events: Sequence[Any], commands: Sequence[cmd.Command], seen: list[int] = seen) -> None:
            seen[0] += sum(type(command) is cmd.DeleteReplica and command.size_bytes == 3000 for command in commands)

        simulate(world, watch)
        assert all(run.outcome is RunOutcome.SUCCEEDED for run in world.runs.values())
        evicted += seen
    assert evicted == [0, 1]


def test_a_run_that_holds_little_moves_no_more_bytes_than_with_all_the_room() -> None:
    for seed in range(30):
        what = sample_tangled(Random(seed), "w")
        capacity = 2 * sum(file.size_bytes or 0 for file in what.files.values())
        plan = make_plan(what, topology_of(capacity, 4), spill_origin="home")
        world = SimWorld(topology_of(capacity, 4))
        world.submit("r", what, replace(plan, holds_max_bytes=max(1, capacity // 16)))
        simulate(world)
        assert world.runs["r"].outcome is RunOutcome.SUCCEEDED
        assert world.transfers.uploaded_bytes == 0


def test_plans_from_before_hold_all() -> None:
    plan = make_plan(workflow({}, EIGHT), topology_of(10_000, 4))
    older = to_json(plan).replace('"holds_max_bytes": 0,\n', "")
    assert older != to_json(plan) and from_json(older) == plan
    less = replace(plan, holds_max_bytes=77)
    assert from_json(to_json(less)) == less
