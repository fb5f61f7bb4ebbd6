"""Answers to what-if questions: runs of one workflow under several topologies, policies and failures, each judged by how fast it could have
been.

May know: estimate and all below it. One rule: an answer depends on its question alone, so that answers may be computed in any number of
processes and come out the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

from stager.best_plan import best_plan
from stager.estimate import Report, estimate
from stager.model.errors import Fault, Refused
from stager.model.profile import Profiles
from stager.model.topology import Topology
from stager.model.workflow import Workflow
from stager.planning.bounds import Bound, Limit, Seen, bottleneck, lower_bound
from stager.planning.choose_order import beside_bytes
from stager.planning.fitting import check_hosts
from stager.planning.make_plan import check_capacity, make_plan
from stager.planning.plan import Plan
from stager.planning.policy import Limits, Policy
from stager.planning.transport import AT_ONCE_MAX
from stager.scheduler.commands import RunOutcome
from stager.sim.faults import NO_FAULTS, Faults, sampled_faults, sampled_losses

# Failures are drawn over this many times as long as the plan expects to take. Whoever looks after the run tells it to go on so many times.
FAILURES_OVER = 2.0
RESUMES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Question:
    """`failures`: the seed that they are drawn from; None: nothing goes wrong."""

    topology: Topology
    policy: Policy = Policy()
    failures: int | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """`above`: how many times as long as the bound it took."""

    bound: Bound
    above: float
    bottleneck: Limit
    why: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: a run as it would be; `judged` None where it does not succeed, and `fault` says why."""

    outcome: RunOutcome
    fault: Fault | None
    wall_s: float = 0.0
    judged: Judged | None = None
    hit_rate: float | None = None
    min_hit_rate: float | None = None
    lru_hit_rate: float | None = None
    best_hit_rate: float | None = None
    fetched_bytes: int = 0
    refetched_bytes: int = 0
    uploaded_bytes: int = 0
    readback_bytes: int = 0
    spilled_bytes: int = 0
    read_bytes: int = 0
    attempts: int = 0
    resumes: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of all questions. `ignore_profiles`: plans are made without them, and simulated in a world that is as they say."""

    workflow: Workflow
    profiles: Profiles
    spill_origin: str | None = None
    ignore_profiles: bool = False

    def answer(self, question: Question) -> Answer:
        """A run that does not fit is refused as `submit` would refuse it."""
        topology, policy = question.topology, question.policy
        first = topology.nodes[0]
        limits = Limits(cores=first.cores, memory_bytes=first.memory_bytes)
        plan = best_plan(self.workflow, topology, self.profiles, policy, limits, self.spill_origin, self.ignore_profiles)
        truth = make_plan(self.workflow, topology, self.profiles, policy, limits, self.spill_origin) if self.ignore_profiles else plan
        try:
            check_capacity(plan)
            check_hosts(self.workflow, topology, plan)
        except Refused as refused:
            return Answer(RunOutcome.REFUSED, refused.fault())
        faults = NO_FAULTS if question.failures is None else faults_of(question.failures, topology, FAILURES_OVER * truth.makespan_s)
        resumes_max = 0 if question.failures is None else RESUMES_MAX
        report = estimate(
            self.workflow, topology, policy=policy, limits=limits, plan=plan, faults=faults, resumes_max=resumes_max, truth=truth
        )
        succeeded = report.outcome is RunOutcome.SUCCEEDED
        return Answer(
            outcome=report.outcome,
            fault=report.fault,
            min_hit_rate=report.min_hits.rate,
            lru_hit_rate=report.lru_hits.rate,
            judged=judge(self.workflow, topology, report) if succeeded else None,
            **{name: getattr(report, name) for name in TAKEN_OVER},
        )


def faults_of(seed: int, topology: Topology, horizon_s: float) -> Faults:
    """The faults that come of themselves, and nodes that are lost as often as the topology says."""
    faults = sampled_faults(seed, horizon_s)
    losses = sampled_losses(seed, [node.failures_per_hour for node in topology.nodes], horizon_s)
    return replace(faults, troubles=tuple(sorted((*faults.troubles, *losses), key=lambda trouble: (trouble.at, trouble.what))))


TAKEN_OVER = [name for name in Answer.__dataclass_fields__ if hasattr(Report, name) and name not in ("outcome", "fault")]
SUBJECT: list[Subject] = []


def ask(subject: Subject, questions: Sequence[Question], processes: int) -> Iterator[Answer]:
    """In the order of the questions."""
    processes = min(processes, len(questions))
    if processes <= 1:
        yield from map(subject.answer, questions)
        return
    # Forked, so that a large workflow is not copied through a pipe for each of them.
    with ProcessPoolExecutor(processes, get_context("fork"), SUBJECT.append, (subject,)) as pool:
        yield from pool.map(answer_here, questions)


def answer_here(question: Question) -> Answer:
    """In a process of the pool."""
    return SUBJECT[0].answer(question)


def judge(workflow: Workflow, topology: Topology, report: Report) -> Judged:
    bound = lower_bound(workflow, topology, report.truth, streams_per_origin=AT_ONCE_MAX * len(topology.nodes))
    what, why = bottleneck(bound, seen_in(report, topology))
    return Judged(bound, report.wall_s / bound.least_s if bound.least_s > 0 else 1.0, what, why)


def seen_in(report: Report, topology: Topology) -> Seen:
    """Of links of a kind the busiest counts. Refetched and spilled bytes took their share of all that came in and went out."""
    busy_s = {Limit.CPU: report.busy_s.get("cores", 0.0), Limit.WAN: 0.0, Limit.LAN: 0.0}
    again_s = 0.0
    for link, link_s in report.busy_s.items():
        kind = link.partition(":")[0]
        if kind == "line":
            kind = link.split(":")[1]
        if kind in ("fetch", "upload"):
            if link_s >= busy_s[Limit.WAN]:
                moved, again = moved_bytes(report, kind)
                busy_s[Limit.WAN], again_s = link_s, link_s * again / moved if moved else 0.0
        elif link != "cores":
            busy_s[Limit.LAN] = max(busy_s[Limit.LAN], link_s)
    return Seen(report.wall_s, busy_s, again_s, is_short(report.truth, topology))


def is_short(plan: Plan, topology: Topology) -> bool:
    """Not all that is live fits beside one job per core."""
    return plan.capacity_bytes < plan.peak_live_bytes + beside_bytes([job.footprint_bytes for job in plan.jobs], topology)


def moved_bytes(report: Report, kind: str) -> tuple[int, int]:
    """(all, what of it moved again or for want of room) in one direction."""
    if kind == "fetch":
        return report.fetched_bytes + report.readback_bytes + report.direct_read_bytes, report.refetched_bytes
    return report.uploaded_bytes, report.spilled_bytes
