"""Runs under a budget in the simulated world: what they come to never exceeds it, and they go on with a larger one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from msgspec import structs

from stager.estimate import Moves, Traffic
from stager.model.cluster import Charged, Cluster, WanLink
from stager.model.files import File, Location, Source
from stager.model.prices import ClusterPrices, InstancePrice, RequestPrice, Tier
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Workflow
from stager.planning.budget import Moved
from stager.planning.cost import Usage, bill_of
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.way_cost import way_of
from stager.planning.ways import Way
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.budget import BUDGET_CODE
from stager.scheduler.machine import Machine
from stager.scheduler.spending import spent_money
from stager.service.choices import egress_of, requests_of
from stager.sim.checkers import all_checkers
from stager.sim.faults import NO_FAULTS, Faults, Trouble
from stager.sim.sampling import Spread
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants
from tests.sim.drawn import HOME, sample_shared, sample_workflow
from tests.sim.test_direct_access import survey
from tests.sim.test_direct_access import topology as direct_topology
from tests.sim.test_tenants import wide

SAID = {"measured": True, "upload_measured": True, "latency_measured": True}
LINKS = (OriginLink("home", 1000.0, 500.0, 0.05, **SAID), OriginLink("archive", 2000.0, 2000.0, 0.02, **SAID))
TOPOLOGY = Topology((Node("node0", 10**9, 3, disk_bytes_per_s=20_000.0, disk_measured=True),), LINKS)


def prices(per_hour: float, per_gb: float, per_1000: float, every_s: float = 0.0) -> ClusterPrices:
    node = InstancePrice("lab", "cellar", "2026", "a test", "small", per_hour, billed_every_s=every_s, billed_at_least_s=0.0, own_disk=True)
    asked = RequestPrice("lab", "cellar", "2026", "a test", per_1000, per_1000)
    return ClusterPrices("USD", node, node, (Tier(1 << 20, per_gb), Tier(None, 2 * per_gb)), asked, 0.0, 0.0)


PRICED = (prices(3600.0, 0.0, 0.0), prices(360.0, 2e6, 50.0), prices(36.0, 1e7, 2000.0), prices(3600.0, 1e5, 1.0, every_s=2.0))


@dataclass
class Watched:
    """What a run moved and was told, by the commands and events of the world alone."""

    moves: Moves
    told: list[cmd.TellForecast] = field(default_factory=list)
    pauses: list[cmd.PauseRun] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)

    def __call__(self, machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
        watch_invariants(machine, events, commands)
        self.moves.watch(events, commands)
        self.told += [command for command in commands if type(command) is cmd.TellForecast]
        self.pauses += [command for command in commands if type(command) is cmd.PauseRun]
        run = machine.state.runs.get("r0")
        if run is not None and run.budget is not None:
            self.spent.append(spent_money(run, machine.state.now))


def simulated(world: SimWorld, workflow: Workflow) -> tuple[Machine, Watched]:
    watched = Watched(Moves({name: Traffic(name) for name in workflow.origins}))
    machine = simulate(world, watched)
    check_replay(world, machine)
    return machine, watched


def billed(cluster: Cluster, paid: ClusterPrices, workflow: Workflow, watched: Watched, wall_s: float) -> float:
    """As an estimate bills it: nothing of the budget's own sums."""
    traffic = list(watched.moves.by_origin.values())
    reads, writes = requests_of(workflow, traffic)
    return bill_of(Usage(wall_s, 1, 0, reads=reads, writes=writes, egress_bytes=egress_of(cluster, workflow, traffic)), paid).total


def planned_way(workflow: Workflow, paid: ClusterPrices, charged: Charged) -> tuple[Plan, Cluster, Way]:
    plan = make_plan(workflow, TOPOLOGY, with_range=True)
    links = {name: WanLink(TOPOLOGY.link(name), charged=charged) for name in workflow.origins}
    cluster = replace(Cluster(), links=links, io=replace(Cluster().io, on_compute_nodes=True))
    return plan, cluster, way_of(workflow, TOPOLOGY, cluster, paid, plan, frozenset())


def drawn_case(seed: int) -> tuple[Random, Workflow, ClusterPrices, Plan, Cluster, Way]:
    random = Random(f"budget/{seed}")
    workflow = sample_workflow(random, "w", sample_shared(random))
    paid, charged = random.choice(PRICED), random.choice((Charged.UPLOAD, Charged.BOTH, Charged.FETCH))
    return random, workflow, paid, *planned_way(workflow, paid, charged)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_what_a_run_comes_to_never_exceeds_its_budget_and_it_goes_on_with_a_larger_one(first: int) -> None:
    """At the pause, with what drains and goes home after it. The estimate's ranges hold here: the world is as the plan expects it, give or
    take what is believed of durations. In every other world the scheduler dies now and then.
    """
    paused = ended = 0
    for seed in range(first, first + 50):
        random, workflow, paid, plan, cluster, way = drawn_case(seed)
        amount = way.money * random.choice((0.5, 1.0, 1.5, 2.0, 4.0, 8.0)) + 1e-9
        crashes = tuple(Trouble(random.uniform(0.1, 1) * plan.makespan_s + 0.01, "crash", lasts_s=0.0) for _ in range(seed % 2))
        faults = replace(NO_FAULTS, troubles=tuple(sorted(crashes, key=lambda each: each.at))) if crashes else NO_FAULTS
        world = world_of(faults, Spread(seed, durations=random.choice((1.0, 1.2))))
        world.submit("r0", workflow, plan, budget=structs.replace(way.budget, amount=amount))
        machine, watched = simulated(world, workflow)
        run, what = machine.state.runs["r0"], f"seed {seed}: {workflow.name}, {amount}"
        assert run.outcome in (cmd.RunOutcome.SUCCEEDED, cmd.RunOutcome.INTERRUPTED), what
        assert all(spent <= amount * (1 + 1e-9) + 1e-9 for spent in watched.spent), what
        came_to = billed(cluster, paid, workflow, watched, run.finished_at - run.submitted_at)
        # Nodes are billed for no less than what an empty run takes; a budget below that begins nothing.
        assert came_to <= amount * (1 + 1e-9) + 1e-9 or not any(job.attempts for job in run.jobs.values()), what
        assert came_to == pytest.approx(spent_money(run, machine.state.now), rel=1e-6, abs=1e-9), what
        if run.outcome is cmd.RunOutcome.INTERRUPTED:
            paused += 1
            assert run.fault is not None and run.fault.code == BUDGET_CODE and len(watched.pauses) == 1, what
        else:
            ended += 1
    assert paused > 5 and ended > 5, (paused, ended)


def world_of(faults: Faults, spread: Spread) -> SimWorld:
    return SimWorld(TOPOLOGY, faults=faults, spread=spread, checkers=all_checkers(), keep_journal=True)


@pytest.mark.parametrize("seed", [3, 8, 11, 17])
def test_a_run_that_was_paused_ends_with_enough_money(seed: int) -> None:
    _, workflow, _, plan, _, way = drawn_case(seed)
    world = world_of(NO_FAULTS, Spread(seed))
    world.submit("r0", workflow, plan, budget=structs.replace(way.budget, amount=way.money * 0.4))
    resume = ev.RunResumed(at=0.0, run="r0", budget=way.money * 100 + 100)
    world.tell_at(plan.makespan_s * 5 + 60, lambda now: structs.replace(resume, at=now))
    machine, watched = simulated(world, workflow)
    run = machine.state.runs["r0"]
    assert run.outcome is cmd.RunOutcome.SUCCEEDED and run.fault is None
    assert [pause.run for pause in watched.pauses] == ["r0"]
    # What stood still meanwhile is not paid.
    assert run.interrupted_s > 0 and spent_money(run, machine.state.now) < way.money * 100


def in_rows(amount: float | None, finish_by: float | None, takes_s: float) -> tuple[Machine, Watched]:
    """12 jobs of 10 s each, three at a time, at 1 USD a second; they take longer than planned."""
    workflow = wide("w", 12, takes_s=10)
    plan, _, way = planned_way(workflow, prices(3600.0, 0.0, 0.0), Charged.NONE)
    truth = replace(plan, jobs=tuple(structs.replace(job, compute_s=takes_s) for job in plan.jobs))
    world = SimWorld(TOPOLOGY, checkers=all_checkers(), keep_journal=True)
    world.submit("r0", workflow, plan, truth=truth, budget=structs.replace(way.budget, amount=amount, finish_by=finish_by))
    return simulated(world, workflow)


def test_somebody_is_told_once_that_it_will_cost_more_before_it_is_paused() -> None:
    """Each row of jobs takes 12.5 s of 10: 50 s in all, with 46 USD to spend, of which 14 are set aside for the row that runs."""
    machine, watched = in_rows(46.0, None, takes_s=12.5)
    run = machine.state.runs["r0"]
    assert [told.about for told in watched.told] == [cmd.Forecast.COST]
    told = watched.told[0]
    assert told.allowed == 46.0 < told.expected < 60.0 and told.at <= watched.pauses[0].at
    assert run.outcome is cmd.RunOutcome.INTERRUPTED and sum(job.attempts for job in run.jobs.values()) == 9
    assert watched.pauses[0].spent == pytest.approx(37.5, abs=0.5)


def test_a_deadline_that_will_be_missed_is_told_once() -> None:
    machine, watched = in_rows(None, 46.0, takes_s=12.5)
    assert machine.state.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED and not watched.pauses
    assert [told.about for told in watched.told] == [cmd.Forecast.TIME]
    assert 46.0 < watched.told[0].expected < 53.0 and watched.told[0].at < 40.0


def test_a_run_that_does_as_planned_is_told_of_nothing() -> None:
    machine, watched = in_rows(60.0, 60.0, takes_s=10.0)
    assert machine.state.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED
    assert not watched.told and not watched.pauses


def test_money_that_time_eats_pauses_a_run_for_which_nothing_happens() -> None:
    """Its input takes an hour to come, and there is money for a minute: it is paused by the clock alone."""
    workflow = sample_slow()
    plan, _, way = planned_way(workflow, prices(3600.0, 0.0, 0.0), Charged.NONE)
    world = SimWorld(TOPOLOGY, checkers=all_checkers(), keep_journal=True)
    world.submit("r0", workflow, plan, budget=structs.replace(way.budget, amount=60.0))
    machine, watched = simulated(world, workflow)
    assert machine.state.runs["r0"].outcome is cmd.RunOutcome.INTERRUPTED
    assert 0 < watched.pauses[0].at <= 60.0 and max(watched.spent) <= 60.0 + 1e-6


def sample_slow() -> Workflow:
    files = {
        "in": File("in", size_bytes=3_600_000, sources=(Source(Location("home", "in"), 3_600_000, "t"),)),
        "out": File("out", size_bytes=10),
    }
    job = Job("j", "work", ("work",), inputs=(JobInput("in", "in"),), outputs=(JobOutput("out", "out"),), compute_s=1.0)
    return Workflow("slow", files, {"j": job}, {"home": HOME})


def test_what_was_read_directly_is_paid_and_set_aside_no_longer_where_others_fetch_it_after_all() -> None:
    """The mount of one attempt fails, so what both would read is fetched for it; the other one reads on, and ends."""
    workflow = survey()
    plan = make_plan(workflow, direct_topology(), with_range=True)
    cluster = replace(Cluster(), links={"lab": WanLink(direct_topology().link("lab"), charged=Charged.FETCH)})
    way = way_of(workflow, direct_topology(), cluster, prices(3600.0, 1.0, 0.0), plan, frozenset())
    paid = []
    for seed in range(1, 9):
        faults = Faults(seed, until_s=0.1, transfer_share=0.5)
        world = SimWorld(direct_topology(), faults=faults, checkers=all_checkers(), keep_journal=True)
        world.submit("r0", workflow, plan, budget=structs.replace(way.budget, amount=1e9))
        machine, watched = simulated(world, workflow)
        run = machine.state.runs["r0"]
        assert run.outcome is cmd.RunOutcome.SUCCEEDED and run.spent is not None
        assert run.spent.promised_reads == Moved(), f"seed {seed}"
        read_bytes = sum(world.executor.direct_bytes.values())
        fetched_bytes = watched.moves.by_origin["lab"].fetched_bytes
        assert run.spent.moved.egress_bytes >= fetched_bytes + read_bytes > 0, f"seed {seed}"
        paid.append((read_bytes > 0, bool(run.fell_back)))
    assert (True, True) in paid, "an attempt that read on while another could not"
