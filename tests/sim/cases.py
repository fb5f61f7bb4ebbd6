"""Cases for the simulation: a seed gives workflows, a topology, sizes, faults and what has to come of it.

One rule: everything follows from the seed, so that a failure is reproduced by its kind and seed alone:  python -m tests.sim.cases faults
1234
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan, ReusedJob, Sharing
from stager.planning.policy import Policy, TenantShare
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.invariants import broken_invariants
from stager.scheduler.machine import Machine
from stager.sim.checkers import all_checkers
from stager.sim.engine import Habits
from stager.sim.faults import ALL_TROUBLES, HOST_TROUBLES, NO_FAULTS, WITH_DEPARTURES, WITH_LOSSES, Faults, sampled_faults
from stager.sim.sampling import Spread
from stager.sim.simulate import rebuilt, simulate
from stager.sim.world import SimWorld, Violation
from tests.sim.apart_cases import set_apart
from tests.sim.beside_cases import beside
from tests.sim.cut_off_cases import cut_off
from tests.sim.departure_cases import WITH_COPIES, copied, joined_late
from tests.sim.departures import DepartureWatch
from tests.sim.direct_access_cases import direct_access
from tests.sim.drawn import renamed, sample_shared, sample_tangled, sample_workflow
from tests.sim.engine_cases import engine_case, troubles_of
from tests.sim.held_cases import held
from tests.sim.hosts_cases import none_left, with_hosts
from tests.sim.hosts_cases import troubles_of as host_troubles
from tests.sim.kept_cases import kept
from tests.sim.large_cases import LARGE, large, striped
from tests.sim.outage_cases import with_long_outage
from tests.sim.plans import modest, with_deterministic
from tests.sim.reuse_cases import reused
from tests.sim.scatter_cases import ScatterCase, ScatterWatch, scattered, scattered_again
from tests.sim.slow_cases import slowed
from tests.sim.tenant_cases import TenantWatch, with_tenants

LINKS = (OriginLink("home", 1000.0, 500.0, 0.05), OriginLink("archive", 2000.0, 2000.0, 0.02))
DISK_BYTES_PER_S = 20_000.0
EVENTS_MAX = 20_000  # No case needs a tenth of it.
# How often a job can find its sandbox full: each time twice as much is set aside, from at least a tenth of what it makes.
FULL_TRIES_MAX = 6


@dataclass(frozen=True)
class Case:
    """`must_succeed`: nothing but success is right. Else a run may also end refused or failed, if it says why. `habits`: of the engines
    that run the jobs of some. `tenants`: of each run, whose it is, and its priority. `slack_s`: more time. `reused`: made before.
    `sharing`: what each run may take over while it goes on.
    """

    seed: int
    workflows: list[Workflow]
    plans: list[Plan]
    topology: Topology
    spread: Spread = field(default_factory=Spread)
    faults: Faults = NO_FAULTS
    resumes_max: int = 0
    must_succeed: bool = True
    policy: Policy = field(default_factory=Policy)
    starts_s: tuple[float, ...] = ()
    interrupts: tuple[tuple[float, int, str], ...] = ()
    habits: tuple[Habits | None, ...] = ()
    tenants: tuple[tuple[str, int], ...] = ()
    shares: Mapping[str, TenantShare] = field(default_factory=dict)
    host_tenants: Mapping[str, str] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    slack_s: float = 0.0
    reused: tuple[tuple[ReusedJob, ...], ...] = ()
    scatters: tuple[ScatterCase, ...] = ()
    sharing: tuple[Sharing | None, ...] = ()


def topology_of(capacity: int, cores: int) -> Topology:
    return Topology((Node("node0", capacity, cores, disk_bytes_per_s=DISK_BYTES_PER_S),), LINKS)


def smallest(workflow: Workflow, spill: str | None) -> Plan:
    return make_plan(workflow, topology_of(1, 1), spill_origin=spill)


def plans_for(workflows: list[Workflow], topology: Topology, spill: str | None) -> list[Plan]:
    return [make_plan(workflow, topology, spill_origin=spill) for workflow in workflows]


def true_footprint(workflow: Workflow, run: str, spread: Spread) -> int:
    """The largest job with sizes as they will be: a job reserves its estimate, and then what it needs."""
    largest = 0
    for job in workflow.jobs.values():
        inputs = sum(true_size(workflow, run, lfn, spread) for lfn in dict.fromkeys(entry.lfn for entry in job.inputs))
        drawn = sum(true_size(workflow, run, entry.lfn, spread) for entry in job.outputs)
        declared = sum(workflow.files[entry.lfn].size_bytes or 0 for entry in job.outputs)
        largest = max(largest, inputs + max(drawn, declared))
    return largest


def true_size(workflow: Workflow, run: str, lfn: str, spread: Spread) -> int:
    file = workflow.files[lfn]
    return (file.size_bytes or 0) if file.is_external else spread.size_bytes(file.size_bytes or 0, run, lfn)


def tight_capacity(random: Random, smallest_bytes: int) -> int:
    """1.0x and 1.1x of the smallest capacity, and upward."""
    return max(1, -(-smallest_bytes * random.choice((10, 10, 11, 11, 13, 20, 100)) // 10))


def plain_case(seed: int) -> Case:
    """Sizes as declared, no faults: at the smallest capacity and above every run succeeds, with a spill origin or without."""
    random = Random(f"plain/{seed}")
    workflow = sample_workflow(random, "w", sample_shared(random))
    spill = random.choice((None, "home", "archive"))
    capacity = tight_capacity(random, smallest(workflow, spill).smallest_capacity_bytes)
    topology = topology_of(capacity, random.choice((1, 2, 4, 16)))
    return Case(seed, [workflow], plans_for([workflow], topology, spill), topology, Spread(seed, durations=random.choice((1.0, 5.0))))


def sizes_case(seed: int) -> Case:
    """Outputs at a tenth to ten times of what was declared. With a spill origin and room for the largest job, every run succeeds."""
    random = Random(f"sizes/{seed}")
    workflow = sample_workflow(random, "w", sample_shared(random))
    spread = Spread(seed, sizes=10.0, durations=3.0)
    spill = random.choice((None, "home", "home"))
    enough = max(smallest(workflow, spill).smallest_capacity_bytes, true_footprint(workflow, "r0", spread))
    topology = topology_of(tight_capacity(random, enough), random.choice((1, 2, 4, 16)))
    return Case(seed, [workflow], plans_for([workflow], topology, spill), topology, spread, must_succeed=spill is not None)


def full_case(seed: int) -> Case:
    """Sizes as wrong, and little space where jobs write: who fills it comes back with more. Every other time a third is likely."""
    case = sizes_case(seed)
    random = Random(f"full/{seed}")
    nodes = tuple(
        replace(case.topology.nodes[0], id=f"node{number}", sandbox_bytes=random.choice((0, 0, 50, 500, 5000)))
        for number in range(random.choice((1, 1, 2)))
    )
    topology = replace(case.topology, nodes=nodes)
    spill = case.plans[0].spill_origin
    plans = plans_for(case.workflows, topology, spill)
    return replace(case, topology=topology, plans=[modest(plan, 3) for plan in plans] if seed % 2 else plans)


def runs_case(seed: int) -> Case:
    """Several runs that share inputs, begun at different times."""
    random = Random(f"runs/{seed}")
    shared = sample_shared(random) + sample_shared(random)[:0]
    workflows = [sample_workflow(random, f"w{number}", shared, jobs_max=8) for number in range(random.randint(2, 3))]
    workflows = [renamed(workflow) if number % 2 and seed % 3 else workflow for number, workflow in enumerate(workflows)]
    spill = random.choice((None, "home"))
    capacity = tight_capacity(random, max(smallest(workflow, spill).smallest_capacity_bytes for workflow in workflows))
    topology = topology_of(capacity, random.choice((1, 2, 4)))
    starts = tuple(random.choice((0.0, 0.0, random.random() * 5)) for _ in workflows)
    spread = Spread(seed, durations=2.0)
    return Case(seed, workflows, plans_for(workflows, topology, spill), topology, spread, starts_s=starts)


def several_nodes(seed: int, everything: int, largest: int) -> tuple[Topology, bool]:
    """Two to four nodes; whether each of them has room for all files. Else it has room for the largest job and a little more."""
    random = Random(f"topology/{seed}")
    roomy = random.random() < 0.5
    capacity = everything if roomy else tight_capacity(random, largest)
    count, cores = random.randint(2, 4), random.choice((1, 2, 4))
    rates = {"disk_bytes_per_s": DISK_BYTES_PER_S, "network_bytes_per_s": random.choice((2000.0, DISK_BYTES_PER_S))}
    return Topology(tuple(Node(f"node{number}", capacity, cores, **rates) for number in range(count)), LINKS), roomy


def nodes_case(seed: int, kinds: tuple[str, ...] = ()) -> Case:
    """One to three runs on several nodes, with all troubles or none. Where each node has room for everything, or there is a place to spill
    to, every run succeeds.
    """
    random = Random(f"nodes/{seed}")
    shared = sample_shared(random)
    workflows = [sample_workflow(random, f"w{number}", shared) for number in range(random.choice((1, 1, 3)))]
    spill = random.choice((None, "home"))
    again = max((job.reserve_bytes for workflow in workflows for job in smallest(workflow, spill).jobs), default=0)
    everything = sum(file.size_bytes or 0 for workflow in workflows for file in workflow.files.values()) + again
    enough = max(true_footprint(workflow, f"r{number}", Spread(seed)) for number, workflow in enumerate(workflows))
    topology, roomy = several_nodes(seed, everything, enough)
    plans = plans_for(workflows, topology, spill)
    horizon_s = 2.0 * sum(plan.makespan_s for plan in plans) + 1.0
    faults = sampled_faults(seed, horizon_s, kinds) if kinds else NO_FAULTS
    resumes = int(horizon_s) + 30 if kinds else 0
    starts = tuple(random.random() * horizon_s / 4 for _ in workflows)
    must = roomy or spill is not None
    policy = Policy(fan_out_bytes_min=Random(f"fan-out/{seed}").choice((0, 0, Policy().fan_out_bytes_min)))
    return Case(seed, workflows, plans, topology, Spread(seed, durations=2.0), faults, resumes, must, policy, starts_s=starts)


def pooled_case(seed: int) -> Case:
    """Several nodes that hold together what a run needs, and no place to spill to: what is in the way on one node has to go to another."""
    random = Random(f"pooled/{seed}")
    workflow = sample_tangled(random, "w") if seed % 2 else sample_workflow(random, "w", sample_shared(random))
    count, cores = random.randint(2, 4), random.choice((1, 2, 4))
    tiny = Topology(tuple(Node(f"node{number}", 1) for number in range(count)), LINKS)
    each = make_plan(workflow, tiny).smallest_node_bytes
    rates = {"disk_bytes_per_s": DISK_BYTES_PER_S, "network_bytes_per_s": random.choice((2000.0, DISK_BYTES_PER_S))}
    capacity = max(1, each * random.choice((10, 10, 11, 13)) // 10)
    topology = Topology(tuple(Node(f"node{number}", capacity, cores, **rates) for number in range(count)), LINKS)
    return Case(seed, [workflow], plans_for([workflow], topology, None), topology, Spread(seed, durations=random.choice((1.0, 5.0))))


def unequal_case(seed: int) -> Case:
    """The same on nodes of unequal capacity: each as small as a job, or smaller, or all in one."""
    case, random = pooled_case(seed), Random(f"unequal/{seed}")
    each = case.topology.nodes[0].capacity_bytes
    sizes = [max(1, each * random.choice((2, 5, 10, 20, 30)) // 10) for _ in case.topology.nodes]
    topology = replace(
        case.topology, nodes=tuple(replace(node, capacity_bytes=size) for node, size in zip(case.topology.nodes, sizes, strict=True))
    )
    plans = plans_for(case.workflows, topology, None)
    if plans[0].node_bytes < plans[0].smallest_node_bytes:
        largest = replace(topology.nodes[-1], capacity_bytes=plans[0].smallest_capacity_bytes)
        topology = replace(topology, nodes=(*topology.nodes[:-1], largest))
        plans = plans_for(case.workflows, topology, None)
        assert plans[0].node_bytes >= plans[0].smallest_node_bytes
    return replace(case, topology=topology, plans=plans)


def pooled_sizes_case(seed: int) -> Case:
    """The same with outputs of other sizes than declared: it may be refused, or fail, and says so."""
    case, random = pooled_case(seed), Random(f"pooled sizes/{seed}")
    return replace(case, spread=replace(case.spread, sizes=random.choice((1.5, 2.0, 4.0))), must_succeed=False)


def node_faults_case(seed: int) -> Case:
    return nodes_case(seed, ALL_TROUBLES)


def node_losses_case(seed: int) -> Case:
    """The same, and now and then a node comes back without its disk, which plans reckon with or not."""
    random = Random(f"losses/{seed}")
    case = nodes_case(seed, WITH_LOSSES)
    nodes = tuple(replace(node, failures_per_hour=random.choice((0.0, 30.0, 600.0))) for node in case.topology.nodes)
    topology = replace(case.topology, nodes=nodes)
    workflows = [with_deterministic(workflow, random) for workflow in case.workflows]
    plans = [make_plan(workflow, topology, spill_origin=plan.spill_origin) for workflow, plan in zip(workflows, case.plans, strict=True)]
    return replace(case, topology=topology, workflows=workflows, plans=plans)


def stripes_case(seed: int) -> Case:
    """Large files that nodes with narrow lines fetch in stripes, however little that brings, with all troubles or none; some runs are
    drained, stopped, cancelled and resumed.
    """
    random = Random(f"stripes/{seed}")
    case = nodes_case(seed)
    lines = {"node_fetch_bytes_per_s": random.choice((100.0, 300.0, 700.0)) * LARGE, "node_upload_bytes_per_s": random.choice((None, 4e7))}
    links = tuple(replace(large(link), **lines) for link in LINKS)
    slow = {"network_bytes_per_s": random.choice((2000.0, 200.0, 20.0)) * LARGE}
    topology = replace(case.topology, nodes=tuple(replace(large(node), **slow) for node in case.topology.nodes), links=links)
    workflows = [replace(workflow, files={lfn: large(file) for lfn, file in workflow.files.items()}) for workflow in case.workflows]
    plans = [striped(plan, len(topology.nodes), random) for plan in plans_for(workflows, topology, case.plans[0].spill_origin)]
    span = 2.0 * sum(plan.makespan_s for plan in plans) + 1.0
    faults = sampled_faults(seed, span, ALL_TROUBLES) if random.random() < 0.7 else NO_FAULTS
    interrupts = []
    for run in range(len(workflows)):
        if random.random() < 0.3:
            interrupts += [(random.random() * span, run, random.choice(("drain", "stop", "resume", "cancel"))), (2 * span, run, "resume")]
    resumes = int(span) + 30 if interrupts or faults is not NO_FAULTS else 0
    parts = {"workflows": workflows, "plans": plans, "topology": topology, "faults": faults, "interrupts": tuple(sorted(interrupts))}
    return replace(case, resumes_max=resumes, **parts)


def faults_case(seed: int, kinds: tuple[str, ...] = ALL_TROUBLES, counts: tuple[int, ...] = (1, 1, 2), names: bool = False) -> Case:
    """Everything goes wrong for a while. Somebody resumes a run that ended badly; once nothing goes wrong any more, it succeeds.

    Without a spill origin that needs room for all files, what was lost has to be made again beside what was made from it, and for the
    outputs of one job more: it makes all of them again, also those that were not lost.
    """
    random = Random(f"faults/{seed}")
    shared = sample_shared(random)
    workflows = [sample_workflow(random, f"w{number}", shared, jobs_max=10) for number in range(random.choice(counts))]
    workflows = [renamed(workflow) if names and number % 2 else workflow for number, workflow in enumerate(workflows)]
    spread = Spread(seed, sizes=random.choice((1.0, 1.0, 10.0)), durations=2.0)
    spill = "home" if spread.sizes > 1 else random.choice((None, "home"))
    enough = max(smallest(workflow, spill).smallest_capacity_bytes for workflow in workflows)
    enough = max(enough, *(true_footprint(workflow, f"r{number}", spread) for number, workflow in enumerate(workflows)))
    everything = sum(file.size_bytes or 0 for workflow in workflows for file in workflow.files.values())
    again = max((job.reserve_bytes for workflow in workflows for job in smallest(workflow, spill).jobs), default=0)
    topology = topology_of(tight_capacity(random, enough), random.choice((1, 2, 4)))
    plans = plans_for(workflows, topology, spill)
    must_succeed = spill is not None or topology.capacity_bytes >= everything + again
    horizon_s = 2.0 * sum(plan.makespan_s for plan in plans) + 1.0
    faults = sampled_faults(seed, horizon_s, kinds)
    starts = tuple(random.random() * horizon_s / 4 for _ in workflows)
    case = Case(seed, workflows, plans, topology, spread, faults, int(horizon_s) + 30, must_succeed, starts_s=starts)
    return with_long_outage(case, horizon_s) if "origin" in kinds else case


def names_case(seed: int) -> Case:
    """Everything goes wrong for several runs that call their origins differently: what one is denied or loses is no other's matter."""
    return faults_case(seed, counts=(2, 3), names=True)


def varies_case(seed: int) -> Case:
    """No two attempts make the same. A run may fail because of that, by name, but finals never come from two makings of one file."""
    case = faults_case(seed)
    spread = replace(case.spread, contents_vary=True)
    return replace(case, spread=spread, must_succeed=False)


def interrupts_case(seed: int) -> Case:
    """Runs are drained, stopped, resumed and cancelled at any time; those resumed last succeed."""
    random = Random(f"wishes/{seed}")
    case = faults_case(seed, ()) if random.random() < 0.5 else plain_case(seed)
    span = sum(plan.makespan_s for plan in case.plans) + 1.0
    interrupts = []
    for run in range(len(case.workflows)):
        for _ in range(random.randint(1, 3)):
            interrupts.append((random.random() * span, run, random.choice(("drain", "stop", "stop", "resume", "cancel"))))
        interrupts += [(span * (2 + number), run, "resume") for number in range(2)]
    facts = {name: getattr(case, name) for name in ("workflows", "plans", "topology", "spread", "faults", "starts_s")}
    return Case(seed, resumes_max=int(span) * 3 + 30, must_succeed=case.must_succeed, interrupts=tuple(sorted(interrupts)), **facts)


KINDS: dict[str, Callable[[int], Case]] = {
    "plain": plain_case,
    "sizes": sizes_case,
    "full": full_case,
    "runs": runs_case,
    "faults": faults_case,
    "interrupts": interrupts_case,
    "varies": varies_case,
    "names": names_case,
    "nodes": nodes_case,
    "pooled": pooled_case,
    "pooled_sizes": pooled_sizes_case,
    "unequal": unequal_case,
    "node_faults": node_faults_case,
    "stripes": stripes_case,
    "node_losses": node_losses_case,
    "slow": lambda seed: slowed((nodes_case, node_faults_case, stripes_case, KINDS["hosts"], pooled_case)[seed % 5](seed)),
    "hosts": lambda seed: with_hosts((nodes_case, runs_case, plain_case)[seed % 3](seed), seed),
    "host_faults": lambda seed: with_hosts((nodes_case, faults_case)[seed % 2](seed), seed, host_troubles(seed)),
    "host_sizes": lambda seed: none_left(with_hosts(nodes_case(seed), seed, host_troubles(seed) if seed % 2 else ()), seed),
    "node_gone": lambda seed: joined_late(nodes_case(seed, WITH_DEPARTURES)),
    "host_departures": lambda seed: with_hosts(nodes_case(seed), seed, (*HOST_TROUBLES, *WITH_DEPARTURES)),
    "two_copies": lambda seed: copied(nodes_case(seed, WITH_COPIES)),
    "engine": lambda seed: engine_case(seed, Case, sys.modules[__name__]),
    "engine_faults": lambda seed: engine_case(seed, Case, sys.modules[__name__], troubles_of(seed)),
    "engine_gone": lambda seed: engine_case(seed, Case, sys.modules[__name__], WITH_DEPARTURES),
    "tenants": lambda seed: with_tenants((nodes_case, runs_case, faults_case, node_faults_case)[seed % 4](seed), seed),
    "tenant_hosts": lambda seed: with_tenants(KINDS["host_faults" if seed % 2 else "hosts"](seed), seed),
    "apart": lambda seed: set_apart((nodes_case, unequal_case, node_faults_case, node_losses_case)[seed % 4](seed), seed),
    "apart_hosts": lambda seed: set_apart(KINDS[("host_faults", "hosts", "stripes", "pooled")[seed % 4]](seed), seed),
    "held": lambda seed: held((nodes_case, runs_case, node_faults_case, pooled_case, faults_case)[seed % 5](seed)),
    "reused": lambda seed: reused((plain_case, runs_case, nodes_case)[seed % 3](seed)),
    "reused_faults": lambda seed: reused((faults_case, node_faults_case, node_losses_case, interrupts_case)[seed % 4](seed)),
    "kept": lambda seed: kept((plain_case, runs_case, nodes_case, sizes_case)[seed % 4](seed)),
    "kept_faults": lambda seed: kept((faults_case, node_faults_case, node_losses_case, interrupts_case)[seed % 4](seed)),
    "scatter": lambda seed: scattered((plain_case, runs_case, nodes_case)[seed % 3](seed)),
    "scatter_again": lambda seed: scattered_again((plain_case, nodes_case)[seed % 2](seed)),
    "scatter_again_faults": lambda seed: scattered_again((faults_case, node_faults_case, interrupts_case)[seed % 3](seed)),
    "scatter_faults": lambda seed: scattered((faults_case, node_faults_case, interrupts_case, node_losses_case)[seed % 4](seed)),
    "beside": lambda seed: beside((plain_case, runs_case, nodes_case, sizes_case)[seed % 4](seed)),
    "beside_faults": lambda seed: beside((faults_case, node_faults_case, node_losses_case, interrupts_case, varies_case)[seed % 5](seed)),
    "cut_off": lambda seed: cut_off((plain_case, runs_case, nodes_case, sizes_case)[seed % 4](seed)),
    "cut_off_faults": lambda seed: cut_off((faults_case, node_faults_case, interrupts_case)[seed % 3](seed)),
    "direct": lambda seed: direct_access(runs_case(seed) if seed % 2 else plain_case(seed)),
    "direct_faults": lambda seed: direct_access(node_faults_case(seed) if seed % 3 == 0 else faults_case(seed, names=seed % 3 == 1)),
}
INTERRUPTS = {"drain": ev.RunDrained, "stop": ev.RunStopped, "resume": ev.RunResumed, "cancel": ev.RunCancelled}


def world_of(case: Case) -> SimWorld:
    world = SimWorld(
        case.topology,
        case.policy,
        faults=case.faults,
        spread=case.spread,
        checkers=all_checkers(),
        resumes_max=case.resumes_max,
        keep_journal=True,
        shares=case.shares,
        host_tenants=case.host_tenants,
        apart=case.apart,
    )
    starts = case.starts_s or (0.0,) * len(case.workflows)
    for number, (workflow, plan, at) in enumerate(zip(case.workflows, case.plans, starts, strict=True)):
        tenant, priority = case.tenants[number] if case.tenants else ("", 0)
        facts = {"habits": case.habits[number] if case.habits else None, "reused": case.reused[number] if case.reused else ()}
        sharing = case.sharing[number] if case.sharing else None
        world.submit(f"r{number}", workflow, plan, at, tenant=tenant, priority=priority, sharing=sharing, **facts)
    for at, run, wish in case.interrupts:
        world.tell_at(max(at, starts[run]), lambda now, kind=INTERRUPTS[wish], name=f"r{run}": kind(at=now, run=name))
    return world


def watch_invariants(machine: Machine, events: Any, commands: Any) -> None:
    if machine.state.events_seen > EVENTS_MAX:
        raise Violation(f"goes round in circles: {EVENTS_MAX} events at {machine.state.now:.1f} s")
    broken = broken_invariants(machine.state)
    if broken:
        raise Violation("; ".join(broken[:5]))


def check(case: Case) -> SimWorld:
    """Runs it under all checkers. Raises Violation."""
    world = world_of(case)
    departures, tenants, scatters = DepartureWatch(world), TenantWatch(), ScatterWatch(world, case)

    def watch(machine: Machine, events: Any, commands: Any) -> None:
        watch_invariants(machine, events, commands)
        for hear in (departures, tenants, scatters):
            hear(machine, events, commands)

    machine = simulate(world, watch)
    allowed = {cmd.RunOutcome.SUCCEEDED}
    if not case.must_succeed:
        allowed |= {cmd.RunOutcome.REFUSED, cmd.RunOutcome.FAILED, cmd.RunOutcome.NOT_DURABLE}
    cancelled = {run for _, run, wish in case.interrupts if wish == "cancel"}
    for number, run in enumerate(world.runs.values()):
        if run.outcome not in allowed and not (number in cancelled and run.outcome is cmd.RunOutcome.CANCELLED):
            raise Violation(f"run {run.run} ended as {run.outcome}: {run.fault}")
    late_s = world.clock.now - time_bound_s(case)
    if case.must_succeed and late_s > 0:
        raise Violation(f"took {world.clock.now:.1f} virtual seconds, {late_s:.1f} too many")
    check_replay(world, machine)
    return world


def time_bound_s(case: Case) -> float:
    """When all has to be over: what happened from outside, then each job by itself, its files to and from the origin twice, and the longest
    wait for a retry.
    """
    quiet_s = max([case.faults.until_s, *case.starts_s, *(at for at, _, _ in case.interrupts)])
    slowest = min(min(link.fetch_by(1), link.upload_by(1)) for link in case.topology.links)
    slowest = min(slowest, *(node.network_bytes_per_s for node in case.topology.nodes))
    work_s = 0.0
    for number, workflow in enumerate(case.workflows):
        for job in workflow.jobs.values():
            moved = sum(true_size(workflow, f"r{number}", entry.lfn, case.spread) for entry in (*job.inputs, *job.outputs))
            once_s = (job.compute_s or 0) * case.spread.durations + 2 * moved / slowest + 1
            work_s += once_s * (1 if case.topology.nodes[0].sandbox_bytes is None else FULL_TRIES_MAX)
    return quiet_s + work_s + case.policy.retry_delay_s_max + case.slack_s + 10


def check_replay(world: SimWorld, machine: Machine) -> None:
    """Deciding again gives the same commands; applying what was recorded gives the same outcomes."""
    rebuilt(world)
    applied = Machine(world.policy, world.limits)
    for events, commands in world.journal:
        applied.replay(events, commands)
    broken = broken_invariants(applied.state)
    if broken:
        raise Violation(f"applying the journal leaves: {'; '.join(broken[:5])}")
    for run_id, run in machine.state.runs.items():
        other = applied.state.runs[run_id]
        if (run.outcome, [job.state for job in run.jobs.values()]) != (other.outcome, [job.state for job in other.jobs.values()]):
            raise Violation(f"run {run_id}: applying the journal gives {other.outcome}, simulating it gave {run.outcome}")


def main(argv: list[str]) -> int:
    """KIND FIRST [COUNT]: runs seeds, prints the failures in short; a single seed raises."""
    kind, first = argv[0], int(argv[1])
    if len(argv) < 3:
        return int(check(KINDS[kind](first)) is None)
    failures: dict[str, list[int]] = {}
    for seed in range(first, first + int(argv[2])):
        try:
            check(KINDS[kind](seed))
        except Exception as error:  # noqa: BLE001 - a hunt reports whatever comes
            failures.setdefault(f"{type(error).__name__}: {error}"[:160], []).append(seed)
    for message, seeds in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(len(seeds), seeds[:6], message)
    print(f"{kind}: {sum(map(len, failures.values()))} of {argv[2]} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
