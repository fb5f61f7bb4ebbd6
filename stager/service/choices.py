"""The same workflow on the same cluster with so many I/O nodes or so many: what each choice takes, costs and hits.

May know: the estimate, the sim, planning. One rule: every choice is simulated by the Machine of production (without I/O nodes, by
jobs that read and write at the origins); the answer does not depend on how many processes ask.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

from stager.best_plan import best_plan
from stager.estimate import RUN, Report, Traffic, estimate
from stager.model.cluster import Charged, Cluster
from stager.model.errors import Refused, StagerError
from stager.model.ids import attempt_id
from stager.model.prices import ClusterPrices
from stager.model.profile import Profiles
from stager.model.topology import Topology
from stager.model.units import counted
from stager.model.workflow import OriginKind, Workflow, graph_of
from stager.planning.cost import Bill, Usage, bill_of, node_hours, on_front
from stager.planning.fitting import check_hosts
from stager.planning.make_plan import check_capacity, make_plan
from stager.planning.plan import Basis, Plan
from stager.planning.policy import Limits, Policy
from stager.scheduler.commands import RunOutcome
from stager.sim.direct import DirectRun, run_direct
from stager.sim.sampling import Uncertainties, Uncertainty, factor, fraction

# What a number of each basis may be off by, up or down: together for all of a job type, and alone for each job or file. Nobody measured
# these factors: they say how far a number is believed, and docs/operating/cost-estimate.md says so.
BELIEF = {
    Basis.MEASURED: (1.0, 1.0),
    Basis.PROFILE: (1.05, 1.1),
    Basis.DECLARED: (1.25, 1.0),
    Basis.DEFAULT: (3.0, 1.5),
}
ASSUMED_LINK, MEASURED_LINK = 2.0, 1.1
# So many jobs are simulated for the spread of one choice, in at most 20 draws: none of a workflow that is larger, unless asked for.
JOBS_DRAWN, DRAWS_MAX = 5_000, 20


@dataclass(frozen=True, slots=True)
class Question:
    """`prices` are those of the cluster's instances. `ignore_profiles`: plans are made without them, and simulated in a world that
    is as they say. `policy`: by which plans are made.
    """

    workflow: Workflow
    cluster: Cluster
    prices: ClusterPrices
    profiles: Profiles = field(default_factory=dict)
    spill: str | None = None
    draws: int = 0
    seed: int = 1
    ignore_profiles: bool = False
    policy: Policy = Policy()


@dataclass(frozen=True, slots=True)
class Simulated:
    """One life of the run. `wan_bytes`: over the links to the origins, both ways, what is read back to verify included. Hit rates
    are None where nothing was read.
    """

    usage: Usage
    bill: Bill
    hit_rate: float | None
    best_hit_rate: float | None
    fetched_bytes: int
    uploaded_bytes: int
    readback_bytes: int
    direct_read_bytes: int = 0

    @property
    def wan_bytes(self) -> int:
        return self.fetched_bytes + self.uploaded_bytes + self.readback_bytes + self.direct_read_bytes

    @property
    def compute_node_hours(self) -> float:
        return node_hours(self.usage.compute_nodes, self.usage.wall_s)

    @property
    def io_node_hours(self) -> float:
        return node_hours(self.usage.io_nodes, self.usage.wall_s)


@dataclass(frozen=True, slots=True)
class Choice:
    """`io_nodes` 0: direct I/O. `expected` None: it cannot be done, and `message` says why. Ranges are over all draws, the expected life
    among them. `makespan_least_s` and `makespan_most_s`: what its plan says nine of ten runs end between, wide enough for the expected
    life; None without I/O nodes. `front`: no other choice is faster without being dearer, or cheaper without being slower.
    """

    io_nodes: int
    outcome: str
    message: str = ""
    notes: tuple[str, ...] = ()
    expected: Simulated | None = None
    wall_s_range: tuple[float, float] = (0.0, 0.0)
    total_range: tuple[float, float] = (0.0, 0.0)
    wan_bytes_range: tuple[int, int] = (0, 0)
    makespan_least_s: float | None = None
    makespan_most_s: float | None = None
    cheapest: bool = False
    fastest: bool = False
    front: bool = False


def draws_for(jobs: int) -> int:
    return min(JOBS_DRAWN // max(1, jobs), DRAWS_MAX)


def ask(question: Question, io_nodes: Sequence[int], processes: int = 1) -> list[Choice]:
    """In the order asked for. Each choice in a process of its own where several may run: forked, so that the workflow is not sent."""
    processes = min(processes, len(io_nodes))
    if processes <= 1:
        answers = [answer(question, count) for count in io_nodes]
    else:
        forked = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(processes, forked, initializer=take, initargs=(question,)) as pool:
            answers = list(pool.map(answer_taken, io_nodes))
    return marked(answers)


TAKEN: list[Question] = []


def take(question: Question) -> None:
    """In the process that answers."""
    TAKEN[:] = [question]


def answer_taken(io_nodes: int) -> Choice:
    return answer(TAKEN[0], io_nodes)


def answer(question: Question, io_nodes: int) -> Choice:
    """One choice with its draws. A choice that cannot be done is an answer, too."""
    try:
        require_named(question.cluster, io_nodes)
        return direct_choice(question) if io_nodes == 0 else staged_choice(question, io_nodes)
    except StagerError as problem:
        return Choice(io_nodes, problem.error_class.value, problem.message)


def require_named(cluster: Cluster, io_nodes: int) -> None:
    """Where the nodes are named, there is no other number of them, and nobody knows how their hosts would stand without them."""
    if cluster.nodes and io_nodes != len(cluster.nodes):
        text = f"the topology names {len(cluster.nodes)} I/O nodes, each with its hosts; ask about --io-nodes {len(cluster.nodes)}"
        raise Refused(text, code="nodes_are_named")


def staged_choice(question: Question, io_nodes: int) -> Choice:
    workflow, cluster = question.workflow, question.cluster
    if io_nodes > cluster.cores:
        text = f"{io_nodes} I/O nodes would serve {cluster.cores} cores of jobs, less than one each; ask about fewer, or more compute nodes"
        raise Refused(text, code="too_many_nodes")
    topology = cluster.topology(workflow, io_nodes)
    limits = Limits(cores=topology.nodes[0].cores, memory_bytes=topology.nodes[0].memory_bytes)
    plan, truth = plans_of(question, topology, limits, best_plan)
    check_capacity(plan)
    check_hosts(workflow, topology, plan)
    runs = []
    for seed in seeds_of(question):
        uncertainties = uncertainties_of(workflow, truth, seed) if seed else None
        there = drawn(cluster, workflow, seed).topology(workflow, io_nodes)
        report = estimate(workflow, there, limits=limits, plan=plan, spread=uncertainties, truth=truth)
        if report.outcome is not RunOutcome.SUCCEEDED:
            why = report.fault.message if report.fault is not None else "the simulation came to a standstill"
            return Choice(io_nodes, report.outcome.value, why)
        runs.append(simulated_staged(question, io_nodes, report))
    least_s, most_s = makespan_range_of(plan, runs[0])
    notes = notes_of(workflow, cluster, io_nodes)
    return replace(choice_of(io_nodes, runs), notes=notes, makespan_least_s=least_s, makespan_most_s=most_s)


def makespan_range_of(plan: Plan, expected: Simulated) -> tuple[float, float]:
    """How far the time may be off."""
    assert plan.makespan_least_s is not None and plan.makespan_most_s is not None, "plans of choices say it"
    wall_s = expected.usage.wall_s
    return min(plan.makespan_least_s, wall_s), max(plan.makespan_most_s, wall_s)


def plans_of(
    question: Question, topology: Topology, limits: Limits | None = None, make: Callable[..., Plan] = make_plan
) -> tuple[Plan, Plan]:
    """(the plan that is simulated with, the one that expects what will happen): two only where the profiles are ignored."""
    workflow, policy, spill = question.workflow, question.policy, question.spill
    plan = make(workflow, topology, question.profiles, policy, limits, spill, ignore_profiles=question.ignore_profiles, with_range=True)
    if not question.ignore_profiles:
        return plan, plan
    return plan, make_plan(workflow, topology, question.profiles, policy, limits, spill)


def notes_of(workflow: Workflow, cluster: Cluster, io_nodes: int) -> tuple[str, ...]:
    """The shortfalls of this choice: cores that stay idle, jobs that get fewer cores than they ask for."""
    if cluster.nodes:
        return ()
    notes, each = [], cluster.cores_each(io_nodes)
    if each * io_nodes < cluster.cores:
        notes.append(f"{cluster.cores} cores do not divide by {io_nodes}: {cluster.cores - each * io_nodes} are left idle")
    wide = [job.id for job in workflow.jobs.values() if each < job.cores <= cluster.compute.cores]
    if wide:
        notes.append(
            f"{counted(len(wide), 'job', 'asks', 'ask')} for more than the {counted(each, 'core')} of each I/O node, "
            f"{wide[0]!r} the first: the estimate has it run too quickly"
        )
    return tuple(notes)


def direct_choice(question: Question) -> Choice:
    """The plan gives order, sizes and times only, so its cache may be as large as it likes."""
    workflow, cluster = question.workflow, question.cluster
    roomy = replace(cluster, io=replace(cluster.io, capacity_bytes=1 << 62))
    plan, truth = plans_of(question, roomy.topology(workflow, 1))
    graph, runs = graph_of(workflow), []
    for seed in seeds_of(question):
        uncertainties = uncertainties_of(workflow, truth, seed) if seed else Uncertainties(0)
        simulated = run_direct(workflow, graph, drawn(cluster, workflow, seed), plan, RUN, uncertainties, truth)
        runs.append(simulated_direct(question, simulated))
    return choice_of(0, runs)


def seeds_of(question: Question) -> list[int]:
    """0: as expected."""
    return [0, *range(question.seed, question.seed + question.draws)]


def drawn(cluster: Cluster, workflow: Workflow, seed: int) -> Cluster:
    """With links as wide as this draw has them, where nobody said how wide they are."""
    if not seed or not cluster.assumed:
        return cluster
    links = {}
    for origin in workflow.origins:
        wan = cluster.wan(origin)
        link = wan.link
        times = factor(MEASURED_LINK if link.measured else ASSUMED_LINK, fraction(seed, "link", origin))
        wider = replace(link, fetch_bytes_per_s=link.fetch_bytes_per_s * times, upload_bytes_per_s=link.upload_bytes_per_s * times)
        wider = replace(wider, fetch_file_s=shorter(link.fetch_file_s, times), upload_file_s=shorter(link.upload_file_s, times))
        links[origin] = replace(wan, link=wider)
    return replace(cluster, links=links)


def shorter(file_s: float | None, times: float) -> float | None:
    """A quicker link is quicker with each file as well."""
    return None if file_s is None else file_s / times


def uncertainties_of(workflow: Workflow, plan: Plan, seed: int) -> Uncertainties:
    """The same doubts for each choice, so that choices are compared in the same weather."""
    makers = {output.lfn: job.job_type for job in workflow.jobs.values() for output in job.outputs}
    sizes = {entry.lfn: Uncertainty(f"size {makers[entry.lfn]}", *BELIEF[entry.size_basis]) for entry in plan.files if entry.lfn in makers}
    durations = {
        attempt_id(RUN, entry.job, 1).rpartition("-")[0]: Uncertainty(
            f"duration {workflow.jobs[entry.job].job_type}", *BELIEF[entry.compute_basis]
        )
        for entry in plan.jobs
    }
    return Uncertainties(seed, sizes, durations)


def choice_of(io_nodes: int, runs: Sequence[Simulated]) -> Choice:
    walls = [life.usage.wall_s for life in runs]
    totals = [life.bill.total for life in runs]
    moved = [life.wan_bytes for life in runs]
    return Choice(
        io_nodes,
        RunOutcome.SUCCEEDED.value,
        expected=runs[0],
        wall_s_range=(min(walls), max(walls)),
        total_range=(min(totals), max(totals)),
        wan_bytes_range=(min(moved), max(moved)),
    )


def simulated_staged(question: Question, io_nodes: int, report: Report) -> Simulated:
    cluster, workflow = question.cluster, question.workflow
    reads, writes = requests_of(workflow, report.traffic)
    spill = report.plan.spill_origin
    in_bucket = spill is not None and workflow.origins[spill].kind is OriginKind.S3
    usage = Usage(
        wall_s=report.wall_s,
        compute_nodes=cluster.compute.nodes,
        io_nodes=cluster.paid_io_nodes(io_nodes),
        reads=reads,
        writes=writes,
        egress_bytes=egress_of(cluster, workflow, report.traffic),
        volume_bytes=io_nodes * cluster.io.capacity_bytes,
        object_bytes=report.spilled_bytes if in_bucket else 0,
    )
    return Simulated(
        usage=usage,
        bill=bill_of(usage, question.prices),
        hit_rate=report.hit_rate,
        best_hit_rate=report.best_hit_rate,
        fetched_bytes=report.fetched_bytes,
        uploaded_bytes=report.uploaded_bytes,
        readback_bytes=report.readback_bytes,
        direct_read_bytes=report.direct_read_bytes,
    )


def simulated_direct(question: Question, simulated: DirectRun) -> Simulated:
    cluster, workflow = question.cluster, question.workflow
    by_origin = {name: Traffic(name) for name in workflow.origins}
    for access in simulated.accesses:
        there = by_origin[access.origin]
        (there.fetched if access.is_read else there.uploaded)(access.size_bytes)
    traffic = list(by_origin.values())
    reads, writes = requests_of(workflow, traffic)
    hits = 0.0 if any(access.is_read and access.size_bytes for access in simulated.accesses) else None
    in_bucket = bool(simulated.home) and workflow.origins[simulated.home].kind is OriginKind.S3
    usage = Usage(
        wall_s=simulated.wall_s,
        compute_nodes=cluster.compute.nodes,
        io_nodes=0,
        reads=reads,
        writes=writes,
        egress_bytes=egress_of(cluster, workflow, traffic),
        object_bytes=simulated.intermediate_bytes if in_bucket else 0,
    )
    return Simulated(
        usage=usage,
        bill=bill_of(usage, question.prices),
        hit_rate=hits,
        best_hit_rate=hits,
        fetched_bytes=sum(entry.fetched_bytes for entry in traffic),
        uploaded_bytes=sum(entry.uploaded_bytes for entry in traffic),
        readback_bytes=0,
    )


def requests_of(workflow: Workflow, traffic: Sequence[Traffic]) -> tuple[int, int]:
    """(reads, writes) at buckets; nobody bills an ssh server's."""
    buckets = [entry for entry in traffic if workflow.origins[entry.origin].kind is OriginKind.S3]
    return sum(entry.reads for entry in buckets), sum(entry.writes for entry in buckets)


def egress_of(cluster: Cluster, workflow: Workflow, traffic: Sequence[Traffic]) -> int:
    total = 0
    for entry in traffic:
        charged = cluster.charged(workflow, entry.origin)
        total += entry.fetched_bytes if charged in (Charged.FETCH, Charged.BOTH) else 0
        total += entry.uploaded_bytes if charged in (Charged.UPLOAD, Charged.BOTH) else 0
    return total


def marked(answers: Sequence[Choice]) -> list[Choice]:
    """Of those that can be done. Equal ones are marked alike."""
    runs = [entry.expected for entry in answers if entry.expected is not None]
    if not runs:
        return list(answers)
    points = [(life.usage.wall_s, life.bill.total) for life in runs]
    fronts = dict(zip(points, on_front(points), strict=True))
    fastest, cheapest = min(wall for wall, _ in points), min(total for _, total in points)
    found = []
    for entry in answers:
        life = entry.expected
        if life is not None:
            wall, total = life.usage.wall_s, life.bill.total
            entry = replace(entry, cheapest=total == cheapest, fastest=wall == fastest, front=fronts[wall, total])
        found.append(entry)
    return found
