"""Of several plans the one that ends first in a simulation; and what such a plan says is what the Machine does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from benchmarks.sampled_shapes import sampled_workflow
from stager.best_plan import Rehearsals, Way, Ways, best_plan, fewer_nodes
from stager.estimate import estimate
from stager.model.topology import Node, OriginLink, Topology
from stager.model.units import format_size
from stager.model.workflow import Workflow
from stager.planning.bounds import lower_bound
from stager.planning.make_plan import lay_out, make_plan
from stager.planning.plan import Basis, LinkPlan, Plan
from stager.planning.plan_json import from_json, to_json
from stager.planning.policy import Limits
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.scheduler.machine import Machine
from stager.sim.faults import Faults, Trouble
from stager.sim.simulate import simulate
from tests.sim.test_balance import EIGHT, began
from tests.sim.test_several_nodes import Stage, workflow

# By seed: nodes and the room of each, of drawn workflows that gain by fewer jobs ahead, by another order, by fewer nodes, and by less
# room.
GAINS = {37: (4, 20_000_000_000), 22: (2, 80_400_000), 0: (4, 12_400_000), 26: (1, 436_000_000)}

# By seed: the room of each of two nodes, about twice what is needed.
SPILLING = {13: 40_000_000, 28: 30_000_000, 37: 60_000_000}


def drawn(seed: int) -> tuple[Workflow, Topology, Limits]:
    what, cores = sampled_workflow(seed)
    nodes, node_bytes = GAINS[seed]
    there = tuple(Node(f"node{number}", node_bytes, cores) for number in range(nodes))
    return what, Topology(there, (OriginLink("home", 50e6, 20e6),)), Limits(cores=cores)


def wall_s(what: Workflow, topology: Topology, limits: Limits, plan: Plan) -> float:
    report = estimate(what, topology, limits=limits, plan=plan)
    assert report.outcome is RunOutcome.SUCCEEDED
    return report.wall_s


@pytest.mark.slow
@pytest.mark.parametrize("seed", GAINS)
def test_a_run_ends_clearly_earlier_than_by_the_rules(seed: int) -> None:
    what, topology, limits = drawn(seed)
    ruled, best = make_plan(what, topology, limits=limits), best_plan(what, topology, limits=limits)
    first_s, best_s = (wall_s(what, topology, limits, plan) for plan in (ruled, best))
    assert best_s < 0.96 * first_s
    assert f"simulated, it takes {best_s:,.1f} s, and {first_s:,.1f} s without that" in best.notes[-1]
    assert to_json(best_plan(what, topology, limits=limits)) == to_json(best)
    assert from_json(to_json(best)) == best


@pytest.mark.slow
@pytest.mark.parametrize("seed", SPILLING)
def test_no_time_is_bought_with_bytes_over_the_wide_area(seed: int) -> None:
    """Where intermediates go to the spill origin and come back, another order may be quicker by moving more of them."""
    what, cores = sampled_workflow(seed)
    there = Topology((Node("node0", SPILLING[seed], cores), Node("node1", SPILLING[seed], cores)), (OriginLink("home", 50e6, 20e6),))
    moved = []
    for make in (make_plan, best_plan):
        report = estimate(what, there, spill_origin="home", plan=make(what, there, spill_origin="home"))
        moved.append(report.fetched_bytes + report.uploaded_bytes)
    assert moved[1] <= moved[0]


def test_where_the_rules_reach_the_bound_their_plan_stands() -> None:
    what, topology = workflow({}, EIGHT), Topology((Node("node0", 10_000, 8, overhead_s=0.0),))
    assert best_plan(what, topology) == make_plan(what, topology)


def test_times_that_are_guesses_choose_nothing() -> None:
    what, topology, limits = drawn(37)
    blind = replace(what, jobs={name: replace(job, compute_s=None) for name, job in what.jobs.items()})
    assert best_plan(blind, topology, limits=limits) == make_plan(blind, topology, limits=limits)


def test_a_run_keeps_to_a_part_of_the_room_where_that_is_quicker() -> None:
    """With half the room this one fetches less ahead, and ends 6 % earlier. With all it is not slower than with a bit over half."""
    what, topology, limits = drawn(26)
    plan = best_plan(what, topology, limits=limits)
    assert 0 < plan.holds_max_bytes < topology.node_bytes == plan.node_bytes
    assert f"with no more than {format_size(plan.holds_max_bytes)} of a node held at once" in plan.notes[-1]
    took_s = []
    for share in (0.54, 1.0, 2.0):
        there = replace(topology, nodes=tuple(replace(node, capacity_bytes=int(share * node.capacity_bytes)) for node in topology.nodes))
        took_s.append(wall_s(what, there, limits, best_plan(what, there, limits=limits)))
    assert max(took_s[1:]) <= 1.02 * took_s[0]


@pytest.mark.parametrize("seed", GAINS)
def test_the_parts_of_less_room_are_among_those_of_more(seed: int) -> None:
    """So what was best with less is looked at with more, too; none is smaller than what the run needs."""
    what, topology, limits = drawn(seed)
    found = []
    for share in (1, 3, 10):
        there = replace(topology, nodes=tuple(replace(node, capacity_bytes=share * node.capacity_bytes) for node in topology.nodes))
        layout = lay_out(what, there, limits=limits)
        ways = Ways(layout, lambda nodes, there=there: lay_out(what, there, limits=limits, nodes=nodes))
        parts, between = ways.parts(ways.nodes[0]), ways.parts_between(ways.nodes[0])
        found.append({*parts, *between})
        assert parts[0] == 0 and all(layout.orders.smallest.each <= part < there.node_bytes for part in (*parts[1:], *between))
        assert all(ways.orders(ways.nodes[0], part) for part in found[-1])
    assert found[0] <= found[1] <= found[2]
    assert len(parts) > 2 and len(between) > 1
    assert parts[-1] < 2 * layout.orders.smallest.each and layout.orders.smallest.each in parts


def test_with_the_room_of_its_nodes_alone_a_run_takes_as_long_as_if_there_were_no_others() -> None:
    """So what was best on fewer nodes is looked at on more of them, too. With the room of the second one more is begun at once, and what is
    in the way goes there: it takes longer here.
    """
    what, cores = sampled_workflow(13)
    limits, link, room = Limits(cores=cores), OriginLink("home", 50e6, 20e6), 96_565_151
    one, two = (Topology(tuple(Node(f"node{number}", room, cores) for number in range(count)), (link,)) for count in (1, 2))
    ways_of_one, ways_of_two = (
        Ways(lay_out(what, there, limits=limits), lambda nodes, there=there: lay_out(what, there, limits=limits, nodes=nodes))
        for there in (one, two)
    )
    assert room in ways_of_two.parts(1) and room not in ways_of_two.parts(2)
    alone_s = wall_s(what, one, limits, ways_of_one.plan(Way(1, 0, 2, "eager")))
    assert wall_s(what, two, limits, ways_of_two.plan(Way(1, room, 2, "eager"))) == pytest.approx(alone_s, rel=0.005)
    assert wall_s(what, two, limits, ways_of_two.plan(Way(1, 0, 2, "eager"))) > 1.02 * alone_s


class Told(Rehearsals):
    """Simulates nothing: each way takes as long as it is said to, and as many steps."""

    def __init__(self, what: Workflow, topology: Topology, took_s: Sequence[float], steps: int = 0) -> None:
        super().__init__(what, topology, None, None)
        self._told_s, self._each = iter(took_s), steps

    def simulated(self, plan: Plan) -> tuple[float, float]:
        self._steps = self._each
        return next(self._told_s), 0.0


def test_of_those_that_end_clearly_earlier_than_by_the_rules_the_earliest_is_taken() -> None:
    """By however little: what is tried next is like one that is clearly earlier than what was best before."""
    what, topology, limits = drawn(37)
    plan, ways = make_plan(what, topology, limits=limits), [Way(1, part, 0, "rank") for part in range(6)]
    first_s = 100 * plan.makespan_s
    heard = Told(what, topology, [share * first_s for share in (1.0, 0.991, 0.98, 0.975, 0.9749, 0.976)])
    assert heard.begin(ways[0], plan)
    kept = []
    for way in ways[1:]:
        assert heard.hear(way, plan)
        kept.append((heard.best.holds_max_bytes, heard.earliest.holds_max_bytes))
    assert kept == [(0, 0), (2, 2), (2, 3), (2, 4), (2, 4)]


@pytest.mark.parametrize(("run_s", "rehearsed_s"), [(99.0, 1.0), (200.0, 2.0), (20_000.0, 3.0)])
def test_a_long_run_is_rehearsed_for_longer(run_s: float, rehearsed_s: float) -> None:
    """For a hundredth of its time, within one and three seconds. Here each simulation counts about 0.04 s."""
    what, topology, limits = drawn(37)
    plan, way = make_plan(what, topology, limits=limits), Way(4, 0, 0, "rank")
    heard = Told(what, topology, [run_s] * 1_000, steps=1_000)
    assert heard.begin(way, plan)
    each_s, count = heard._takes_s(plan, 1_000), 2
    while heard.hear(way, plan):
        count += 1
    assert (count - 1) * each_s < rehearsed_s <= count * each_s


def test_where_little_is_to_win_a_fiftieth_of_the_run_is_taken() -> None:
    """By so much no run may be slower for having more nodes: one that leaves some of them out may be the last that is heard."""
    what, topology, limits = drawn(37)
    plan, way = make_plan(what, topology, limits=limits), Way(4, 0, 0, "rank")
    run_s = 1.03 * lower_bound(what, topology, plan).least_s
    heard = Told(what, topology, [run_s] * 1_000, steps=100)
    assert heard.begin(way, plan)
    each_s, count = heard._takes_s(plan, 100), 2
    while heard.hear(way, plan):
        count += 1
    assert (count - 1) * each_s < 0.02 * run_s <= count * each_s < 1.0


def test_nodes_are_left_out_one_at_first_and_by_halves() -> None:
    assert [fewer_nodes(count) for count in (1, 2, 4, 9)] == [[], [1], [3, 2, 1], [8, 4, 2, 1]]


def test_a_run_keeps_to_the_nodes_of_its_plan() -> None:
    """Eight jobs for four cores; the second node has four more, and stays idle."""
    stage = Stage(workflow({}, EIGHT), {}, keeps_to=("node0",))
    assert stage.play() is RunOutcome.SUCCEEDED
    assert set(began(stage).values()) == {"node0"}
    assert 20.0 < stage.world.runs["r"].finished_at < 21.0


def test_a_node_that_was_left_out_helps_while_another_is_away() -> None:
    away = Faults(troubles=(Trouble(1.0, "outage", 500.0, 0.0),), until_s=501.0)
    stage = Stage(workflow({}, EIGHT), {}, away, keeps_to=("node0",))
    assert stage.play() is RunOutcome.SUCCEEDED
    assert sorted(began(stage).values()) == ["node0"] * 4 + ["node1"] * 4


@pytest.mark.parametrize(
    ("ahead_max", "bytes_per_s", "most"),
    [(0, 250.0, (8, 4)), (3, 250.0, (3, 3)), (1, 250.0, (1, 2)), (1, 750.0, (1, 4)), (3, 1e6, (3, 9))],
)
def test_no_more_jobs_wait_and_no_more_files_come_ahead_than_the_plan_says(
    ahead_max: int, bytes_per_s: float, most: tuple[int, int]
) -> None:
    """Eight jobs read a file each; four more wait for them, and read another. More come where so few do not keep the line busy, one of
    which may be about to end.
    """
    inputs = {f"i{number}": 100 for number in range(12)}
    jobs = {f"j{number}": (f"i{number}", f"f{number}", 10.0) for number in range(8)}
    jobs |= {f"k{number}": (f"f{number} i{number + 8}", f"g{number}", 10.0) for number in range(4)}
    line = LinkPlan("lab", bytes_per_s, Basis.DEFAULT, bytes_per_s, Basis.DEFAULT, 0.05, Basis.DEFAULT)
    stage = Stage(workflow(inputs, jobs), {}, ahead_max=ahead_max, keeps_to=("node0",), links=(line,))
    seen = [0, 0]

    def watch(machine: Machine, events: Sequence[Any], commands: Sequence[cmd.Command]) -> None:
        for node in machine.state.nodes.values():
            seen[0], seen[1] = max(seen[0], node.admitted_waiting), max(seen[1], len(node.prefetching))

    simulate(stage.world, watch)
    assert stage.world.runs["r"].outcome is RunOutcome.SUCCEEDED
    assert tuple(seen) == most


def test_a_small_file_behind_a_large_one_does_not_keep_the_line_busy() -> None:
    """Each job waits for the first one, and reads a large file and small ones. When one large is there, the next is to be on its way."""
    inputs = {f"large{number}": 1000 for number in range(8)} | {f"small{number}-{of}": 10 for number in range(8) for of in range(6)}
    reads = [f"made large{number} " + " ".join(f"small{number}-{of}" for of in range(6)) for number in range(8)]
    jobs = {"first": ("small0-0", "made", 100.0)} | {f"j{number}": (reads[number], f"f{number}", 0.1) for number in range(8)}
    line = LinkPlan("lab", 250.0, Basis.DEFAULT, 250.0, Basis.DEFAULT, 0.05, Basis.DEFAULT)
    stage = Stage(workflow(inputs, jobs), {}, ahead_max=2, keeps_to=("node0",), links=(line,))
    coming: set[str] = set()
    asked: list[int] = []

    def watch(machine: Machine, events: Sequence[Any], commands: Sequence[cmd.Command]) -> None:
        ended = [event.transfer for event in events if isinstance(event, ev.TransferDone)]
        coming.difference_update(ended)
        coming.update([command.transfer for command in commands if isinstance(command, cmd.Fetch) and command.size_bytes == 1000])
        files, nodes = machine.state.files, machine.state.nodes
        if ended and any(files[file].size_bytes == 1000 for _, file in nodes["node0"].candidates):
            asked.append(len(coming))

    simulate(stage.world, watch)
    assert stage.world.runs["r"].outcome is RunOutcome.SUCCEEDED
    assert median(asked) == 2, asked


def test_plans_from_before_are_read() -> None:
    plan = make_plan(workflow({}, EIGHT), Topology((Node("node0", 10_000, 8),)))
    older = to_json(plan)
    for later in ('"keeps_to": [],\n', '"ahead_max": 0,\n', '"holds_max_bytes": 0,\n'):
        assert later in older
        older = older.replace(later, "")
    assert from_json(older) == plan
