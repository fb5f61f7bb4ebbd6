"""Estimate against actual, line by line, of a run that is over.

May know: the estimate, choices, wire. One rule: the estimate is made of the plan the run was submitted with and of nothing that was seen
after; both sides are counted and billed by the same formulas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stager import wire
from stager.estimate import RUN, Report, Traffic, estimate
from stager.model.cluster import Cluster, IoNodes, NamedNode, WanLink
from stager.model.copying import Copying
from stager.model.deleting import Deleting
from stager.model.prices import ClusterPrices
from stager.model.topology import Host
from stager.model.workflow import OriginKind, Workflow
from stager.planning.cost import Usage, bill_of
from stager.planning.links import link_of
from stager.planning.plan import Basis, Plan
from stager.planning.policy import Limits
from stager.scheduler.commands import RunOutcome
from stager.scheduler.critical_path import critical_path
from stager.scheduler.events import ADOPTED
from stager.scheduler.machine import Machine
from stager.scheduler.run_times import RunTimes
from stager.scheduler.trail import Span
from stager.service.choices import Question, Simulated, egress_of, requests_of, simulated_staged

READ_BACK = ("readback", ADOPTED)


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """`kind`: seconds, hours, bytes, count, share or money. `estimated` None: nothing was predicted of it."""

    name: str
    kind: str
    estimated: float | None
    actual: float | None

    @property
    def off(self) -> float | None:
        """By which share the estimate was too high (above 0) or too low."""
        if self.estimated is None or self.actual is None:
            return None
        if self.actual == 0:
            return 0.0 if self.estimated == 0 else None
        return self.estimated / self.actual - 1


@dataclass(frozen=True, slots=True)
class Estimated:
    """A simulated run, and where its time went."""

    report: Report
    path: list[Span]


def cluster_of(history: wire.RunHistory, given: Cluster | None, plan: Plan) -> Cluster:
    """That the run ran on: nodes, cores and room as its journal has them, the rest as given. I/O nodes run on the compute nodes, as
    `stager submit` starts them, and links are what the plan took them to be, unless a topology says otherwise.
    """
    count = max(1, len(history.nodes))
    io = IoNodes(on_compute_nodes=True, disk_bytes_per_s=plan.disk_bytes_per_s)
    base = given or Cluster(io=io, links={link.origin: WanLink(link_of(link)) for link in plan.links})
    compute = replace(base.compute, nodes=count, cores=history.cores, memory_bytes=history.memory_bytes)
    io = replace(base.io, nodes=count, capacity_bytes=history.capacity_bytes // count)
    if not history.hosts:
        return replace(base, compute=compute, io=io, nodes=())
    largest = max(history.hosts, key=lambda host: host.cores)
    compute = replace(compute, nodes=len(history.hosts), cores=largest.cores, memory_bytes=largest.memory_bytes)
    return replace(base, compute=compute, io=io, nodes=tuple(named_nodes(history)))


def named_nodes(history: wire.RunHistory) -> Iterator[NamedNode]:
    """Each with the hosts whose jobs read from it."""
    for node in history.nodes:
        beside = [each for each in history.hosts if each.node == node]
        hosts = [Host(each.host, each.cores, each.memory_bytes, each.scratch_bytes) for each in beside]
        yield NamedNode(node, history.capacities[node], tuple(hosts))


def estimate_of(workflow: Workflow, plan: Plan, history: wire.RunHistory, cluster: Cluster) -> Estimated:
    """It begins with empty nodes."""
    limits = Limits(cores=history.cores, memory_bytes=history.memory_bytes)
    topology = cluster.topology(workflow, cluster.io.nodes).with_overhead(
        plan.overhead_s, plan.overhead_basis is Basis.MEASURED, plan.overhead_file_s, plan.overhead_file_basis is Basis.MEASURED
    )
    if plan.copy_latency_basis is Basis.MEASURED:
        topology = Copying(plan.copy_latency_s).of(topology)
    if plan.delete_latency_basis is Basis.MEASURED:
        topology = Deleting(plan.delete_latency_s).of(topology)
    times = RunTimes(RUN)

    def watch(machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
        for event in events:
            times.heard(event)
        for command in commands:
            times.gave(command)

    report = estimate(workflow, topology, limits=limits, plan=plan, watch=watch)
    return Estimated(report, critical_path(times))


def compare(
    workflow: Workflow,
    plan: Plan,
    summary: wire.RunSummary,
    history: wire.RunHistory,
    cluster: Cluster,
    prices: ClusterPrices,
    estimated: Estimated | None = None,
) -> list[ComparisonRow]:
    """`estimated`: of this plan, on this cluster; None: it is made here."""
    question = Question(workflow, cluster, prices)
    report = (estimated or estimate_of(workflow, plan, history, cluster)).report
    predicted = simulated_staged(question, cluster.io.nodes, report) if report.outcome is RunOutcome.SUCCEEDED else None
    actual = actual_run(question, summary, history)
    job_s = sum(span.ended_s - span.begun_s for span in history.attempts)
    made_s = sum(len(job.outputs) for job in workflow.jobs.values()) * plan.overhead_file_s
    return [
        *figures(predicted, actual, made_s + sum(entry.compute_s + plan.overhead_s for entry in plan.jobs), job_s, summary),
        *bills(predicted, actual),
    ]


def actual_run(question: Question, summary: wire.RunSummary, history: wire.RunHistory) -> Simulated:
    workflow, cluster = question.workflow, question.cluster
    by_origin, looked_at = ({name: Traffic(name) for name in workflow.origins} for _ in range(2))
    for span in history.moves:
        if span.verified == ADOPTED:
            looked_at[span.origin].fetched(span.size_bytes)
        else:
            there = by_origin[span.origin]
            (there.fetched if span.direction == "fetch" else there.uploaded)(span.size_bytes)
    traffic = list(by_origin.values())
    reads, writes = requests_of(workflow, [*traffic, *looked_at.values()])
    # What is read back where it was written, in a directory, crosses no WAN.
    away = [name for name, origin in workflow.origins.items() if origin.kind is not OriginKind.FILE]
    usage = Usage(
        wall_s=max(0.0, summary.wall_s - summary.interrupted_s),
        compute_nodes=cluster.compute.nodes,
        io_nodes=cluster.paid_io_nodes(cluster.io.nodes),
        reads=reads,
        writes=writes,
        egress_bytes=egress_of(cluster, workflow, traffic),
        volume_bytes=cluster.io.nodes * cluster.io.capacity_bytes,
    )
    return Simulated(
        usage=usage,
        bill=bill_of(usage, question.prices),
        hit_rate=summary.hit_rate,
        best_hit_rate=history.best_hit_rate,
        fetched_bytes=sum(entry.fetched_bytes for entry in traffic),
        direct_read_bytes=summary.direct_read_bytes,
        uploaded_bytes=sum(entry.uploaded_bytes for entry in traffic),
        readback_bytes=sum(span.size_bytes for span in history.moves if span.verified in READ_BACK and span.origin in away),
    )


def figures(
    predicted: Simulated | None, actual: Simulated, plan_job_s: float, job_s: float, summary: wire.RunSummary
) -> list[ComparisonRow]:
    def of(name: str, kind: str, read: str) -> ComparisonRow:
        return ComparisonRow(name, kind, None if predicted is None else getattr(predicted, read), getattr(actual, read))

    asked = None if predicted is None else predicted.usage.reads + predicted.usage.writes
    return [
        ComparisonRow("makespan", "seconds", None if predicted is None else predicted.usage.wall_s, actual.usage.wall_s),
        ComparisonRow("makespan by the plan alone", "seconds", summary.predicted_wall_s, actual.usage.wall_s),
        ComparisonRow("jobs, one after the other", "seconds", plan_job_s, job_s),
        of("compute-node hours", "hours", "compute_node_hours"),
        of("I/O-node hours", "hours", "io_node_hours"),
        of("fetched", "bytes", "fetched_bytes"),
        of("read directly (as predicted)", "bytes", "direct_read_bytes"),
        of("uploaded", "bytes", "uploaded_bytes"),
        of("read back to verify", "bytes", "readback_bytes"),
        of("over the WAN", "bytes", "wan_bytes"),
        # None where nothing was read: there was nothing to hit.
        ComparisonRow("hit rate", "share", None if predicted is None else predicted.hit_rate, summary.hit_rate),
        ComparisonRow("requests at buckets", "count", asked, actual.usage.reads + actual.usage.writes),
    ]


def bills(predicted: Simulated | None, actual: Simulated) -> list[ComparisonRow]:
    names = {"compute": "compute nodes", "io_nodes": "I/O nodes"}
    before = dict(predicted.bill.lines()) if predicted is not None else {}
    lines = [ComparisonRow(f"cost of {names.get(name, name)}", "money", before.get(name), part) for name, part in actual.bill.lines()]
    return [*lines, ComparisonRow("cost in total", "money", None if predicted is None else predicted.bill.total, actual.bill.total)]
