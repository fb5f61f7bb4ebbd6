"""The ways to run a workflow here, each with what it takes and costs, and the one that fits a budget and a deadline.

May know: the planner, prices, the settings. One rule: a way is judged by the upper ends of its ranges, and the plan of the way that was
chosen is the plan that runs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from datetime import time as clock_time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from stager.best_plan import fewer_nodes
from stager.model.cluster import Charged, Cluster
from stager.model.errors import InvalidInput, Refused
from stager.model.prices import ClusterPrices, PriceTable, prices_for
from stager.model.profile import Profiles
from stager.model.topology import OriginLink, Topology
from stager.model.units import format_duration, format_money, parse_duration_s, parse_money
from stager.model.workflow import Bounds, OriginKind, Workflow, bandwidths_of, graph_of
from stager.planning.beliefs import COMPUTE_S, JOBS_DISK_RATE, MODEL, OVERHEAD_S, SIZE_BYTES, Edge, link_at_edge, measured
from stager.planning.budget import AT_ONCE, Budget, Moved, PaidNodes, fetch_of, money_of, upload_of
from stager.planning.cost import on_front, storage_money
from stager.planning.links import is_read_back
from stager.planning.plan import Access, Basis, FilePlan, Plan
from stager.readers.prices import packaged_prices, read_prices
from stager.service.prepare import SubmitOptions, cluster_here, plan_with, topology_of
from stager.service.settings import Settings

if TYPE_CHECKING:
    from stager.service.reusing import Remembered

NAMED = 3
TIME, COST = "time", "cost"
NONE = "none"


@dataclass(frozen=True, slots=True)
class Within:
    """`amount` None: it may cost whatever it does. `finish_by` None: it may end whenever it does; else seconds since 1970, asked for at
    `asked_at`. `objective`: what decides between ways that fit; empty: time within a budget, cost before a deadline. `anyway`: it begins
    also where it may cost more, and is paused before it does.
    """

    asked_at: float
    prices: PriceTable
    amount: float | None = None
    finish_by: float | None = None
    objective: str = ""
    anyway: bool = False

    @property
    def time_first(self) -> bool:
        return self.objective == TIME or (not self.objective and self.finish_by is None)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the workflow. `most` are the upper ends: nine of ten runs end below them. `front`: no other way is faster without
    being dearer, or cheaper without being slower.
    """

    how: str
    plan: Plan
    budget: Budget
    wall_s: float
    wall_s_most: float
    money: float
    money_most: float
    front: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    way: Way
    ways: tuple[Way, ...]
    lines: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        return self.way.plan

    @property
    def budget(self) -> Budget:
        return self.way.budget


def asked_of(given: Bounds, said: Bounds) -> Bounds:
    """What is given at a submit counts more than what the workflow says; `none` takes that away."""
    return Bounds(
        "" if given.budget == NONE else given.budget or said.budget,
        "" if given.finish_by == NONE else given.finish_by or said.finish_by,
        given.objective or said.objective,
    )


def within_of(
    budget: str | None,
    finish_by: str | None,
    objective: str | None,
    settings: Settings,
    now: float,
    *,
    anyway: bool = False,
    prices: Path | None = None,
) -> Within | None:
    """None: nothing of it was asked for. Raises InvalidInput for what is no money, money of another currency, no time, or a time that is
    over.
    """
    if budget is None and finish_by is None and objective is None:
        if anyway or prices is not None:
            raise InvalidInput("--budget-anyway and --prices go with --budget, --finish-by or --objective", code="no_budget")
        return None
    file = prices or settings.prices_file
    table = read_prices(file) if file is not None else packaged_prices()
    amount = amount_of(budget, table.currency, table.origin) if budget is not None else None
    if anyway and amount is None:
        raise InvalidInput("--budget-anyway says that a run may begin whose --budget may not last: name that budget", code="no_budget")
    return Within(now, table, amount, instant_of(finish_by, now) if finish_by is not None else None, objective or "", anyway)


def now() -> float:
    """By the wall clock, which people mean."""
    return time.time()


def amount_of(text: str, currency: str, table: str) -> float:
    try:
        amount, named = parse_money(text)
    except ValueError as problem:
        raise InvalidInput(f"the budget {problem}", code="bad_budget", subject="budget") from None
    if named != currency:
        told = f"the budget is in {named}, and the prices ({table}) are in {currency}"
        advice = f"write it in {currency}, or name a table in {named} (--prices, docs/formats/prices.md)"
        raise InvalidInput(f"{told}; {advice}", code="other_currency", subject="budget")
    return amount


def instant_of(text: str, now: float) -> float:
    """`18:00` of today in the local time zone, `+3h`, or `2026-11-27T18:00:00+01:00`. Raises InvalidInput."""
    try:
        at = parsed_instant(text.strip(), now)
    except (ValueError, OverflowError):
        told = f"{text!r} is no time to finish by"
        advice = "write as in 18:00 (today, here), +3h, or 2026-11-27T18:00:00+01:00"
        raise InvalidInput(f"{told}; {advice}", code="bad_time", subject="finish_by") from None
    if at <= now:
        told = f"the time to finish by is over: {told_instant(at)} was {format_duration(now - at)} ago"
        advice = "write a later one, with its date where it is not of today: 2026-11-27T18:00:00+01:00, or +3h"
        raise InvalidInput(f"{told}; {advice}", code="time_over", subject="finish_by")
    return at


def parsed_instant(text: str, now: float) -> float:
    if text.startswith("+"):
        return now + parse_duration_s(text[1:])
    if len(text) <= len("18:00:00"):
        of_day = clock_time.fromisoformat(text)
        today = time.localtime(now)
        return time.mktime((today.tm_year, today.tm_mon, today.tm_mday, of_day.hour, of_day.minute, of_day.second, 0, 0, -1))
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(text)
    return at.timestamp()


def told_instant(at: float) -> str:
    """With the date and the time zone of who asks."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z (%z)", time.localtime(at))


def chosen(workflow: Workflow, settings: Settings, profiles: Profiles, options: SubmitOptions, found: Remembered | None) -> Chosen:
    """Raises Refused, with the figures, where no way fits."""
    assert options.within is not None, "asked for"
    if workflow.engine:
        text = f"{workflow.engine} starts the jobs of this workflow, and stager could not pause them"
        raise Refused(f"{text}; leave out --budget, --finish-by and --objective", code="engines_workflow", subject="budget")
    within = options.within
    ways = ways_to_run(workflow, settings, profiles, options, found)
    way = choose(ways, within)
    budget = structs.replace(way.budget, amount=within.amount, finish_by=within.finish_by)
    way = replace(way, budget=budget)
    return Chosen(way, ways, tuple(lines_of(way, ways, within)))


def choose(ways: Sequence[Way], within: Within) -> Way:
    """The fastest or the cheapest, of those that fit by their upper ends."""
    fit = [way for way in ways if fits_time(way, within) and (fits_money(way, within) or within.anyway)]
    if not fit:
        raise refusal(ways, within)
    # With --budget-anyway those that surely fit come first, then those that are expected to.
    fit = [way for way in fit if fits_money(way, within)] or [way for way in fit if way.money <= (within.amount or 0.0)] or fit
    if within.time_first:
        return min(fit, key=lambda way: (way.wall_s, way.money))
    return min(fit, key=lambda way: (way.money, way.wall_s))


def fits_money(way: Way, within: Within) -> bool:
    return within.amount is None or way.money_most <= within.amount


def fits_time(way: Way, within: Within) -> bool:
    return within.finish_by is None or within.asked_at + way.wall_s_most <= within.finish_by


def refusal(ways: Sequence[Way], within: Within) -> Refused:
    """With what the nearest way would cost or take, and what would change it."""
    in_time = [way for way in ways if fits_time(way, within)]
    currency = within.prices.currency
    if in_time and within.amount is not None:
        way = min(in_time, key=lambda way: way.money_most)
        text = f"this may cost more than {format_money(within.amount)} {currency}: {told(way, currency)}"
        advice = f"give --budget '{format_money(rounded_up(way.money_most))} {currency}'"
        begin = "or --budget-anyway: then it begins, and is paused before it costs more"
        return Refused(f"{text}; {advice}, {begin}{narrower(way)}", code="over_budget", subject="budget")
    way = min(ways, key=lambda way: way.wall_s_most)
    latest = within.asked_at + way.wall_s_most
    text = f"this may not have ended by {told_instant(within.finish_by or 0.0)}: {told(way, currency)}"
    advice = f"give --finish-by {time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(latest + 1))}{offset(latest)}, or more nodes"
    return Refused(f"{text}; {advice}{narrower(way)}", code="misses_deadline", subject="finish_by")


def offset(at: float) -> str:
    zone = time.strftime("%z", time.localtime(at))
    return f"{zone[:3]}:{zone[3:5]}"


def rounded_up(amount: float) -> float:
    """So that what is printed is enough."""
    return amount + (0.005 if amount >= 0.1 else amount * 0.06)


def told(way: Way, currency: str) -> str:
    cost = f"{format_money(way.money)} {currency} expected, {format_money(way.money_most)} at most"
    return f"{way.how}, {cost}, in {format_duration(way.wall_s)}, {format_duration(way.wall_s_most)} at most (nine of ten runs)"


def narrower(way: Way) -> str:
    """What makes the ranges wide, where something does."""
    guessed = sum([job.compute_basis is Basis.DEFAULT for job in way.plan.jobs])
    lines = [link.origin for link in way.plan.links if Basis.DEFAULT in (link.fetch_basis, link.upload_basis)]
    why = [f"the times of {guessed} of {len(way.plan.jobs)} jobs are guesses"] if guessed else []
    if lines:
        named = ", ".join(lines[:NAMED]) + (", …" if len(lines) > NAMED else "")
        why.append(f"nobody has measured the link{'s' if len(lines) > 1 else ''} to {named}")
    if not why:
        return ""
    return f". The range is wide: {' and '.join(why)}; one run measures them (or say `compute` in io_hints, `bandwidth` of an origin)"


def lines_of(way: Way, ways: Sequence[Way], within: Within) -> list[str]:
    """For people, before anything starts."""
    currency, table = within.prices.currency, within.prices
    lines = [f"chosen by {TIME if within.time_first else COST} of {len(ways)}: {told(way, currency)}"]
    if within.amount is not None:
        may = "" if fits_money(way, within) else ": it may cost more, and is paused before it does"
        lines.append(f"budget: {format_money(within.amount)} {currency}{may} (prices: {table.origin} of {table.date})")
    if within.finish_by is not None:
        ends = f"expected to end {told_instant(within.asked_at + way.wall_s)}"
        lines.append(f"finish by: {told_instant(within.finish_by)}; {ends}")
    return lines


def ways_to_run(
    workflow: Workflow, settings: Settings, profiles: Profiles, options: SubmitOptions, found: Remembered | None
) -> tuple[Way, ...]:
    """As the planner can vary it here: on all nodes or fewer, with inputs read directly where that pays, or with all of them kept."""
    assert options.within is not None, "asked for"
    topology = topology_of(settings, workflow).bounded_by(bandwidths_of(workflow))
    cluster = cluster_of(settings, workflow)
    paid = prices_for(options.within.prices, cluster.compute.instance, cluster.io.instance, cluster.region)
    counts = [None, *(fewer_nodes(len(topology.nodes)) if topology.is_uniform else ())]
    ways: list[Way] = []
    for nodes in counts:
        for no_direct in dict.fromkeys((options.no_direct, True)):
            asked = replace(options, no_direct=no_direct, nodes=nodes)
            plan = plan_with(workflow, settings, profiles, asked, found)
            if plan.smallest_node_bytes > plan.node_bytes and ways:
                continue
            if any(plan.jobs == way.plan.jobs and plan.files == way.plan.files for way in ways):
                continue
            reused = frozenset(found.reuse.reused) if found is not None else frozenset()
            ways.append(way_of(workflow, topology, cluster, paid, plan, reused))
    fronts = on_front([(way.wall_s, way.money) for way in ways])
    return tuple([replace(way, front=front) for way, front in zip(ways, fronts, strict=True)])


def cluster_of(settings: Settings, workflow: Workflow) -> Cluster:
    """What the nodes here are, for money."""
    if settings.topology_file is None:
        return cluster_here(settings, workflow)
    from stager.readers.topology import read_topology

    return read_topology(settings.topology_file)


def way_of(workflow: Workflow, topology: Topology, cluster: Cluster, paid: ClusterPrices, plan: Plan, reused: frozenset[str]) -> Way:
    keeps_to = plan.keeps_to or tuple([node.id for node in topology.nodes])
    hosts = [len(its) for node, its in zip(topology.nodes, topology.hosts, strict=True) if node.id in keeps_to]
    # Jobs of nodes that name no hosts run on this machine, whatever node they read from.
    compute_nodes = sum(hosts) if topology.names_hosts else 1
    on_them = cluster.io.on_compute_nodes
    io_nodes = 0 if on_them and not topology.names_hosts else max(0, len(keeps_to) - (compute_nodes if on_them else 0))
    budget = unlimited(workflow, cluster, paid, compute_nodes, io_nodes, sum(node.capacity_bytes for node in topology.nodes))
    expected, most = traffic_of(workflow, plan, budget, reused)
    budget = structs.replace(budget, egress_bytes=expected.egress_bytes, reads=expected.reads, writes=expected.writes)
    budget = structs.replace(budget, **going_home(workflow, topology, plan))
    wall_s, wall_s_most = plan.makespan_s, max(plan.makespan_s, plan.makespan_most_s or 0.0)
    how = f"on {len(keeps_to)} of {plan.nodes} nodes" if plan.nodes > 1 else "on the node here"
    if any(file.access is Access.DIRECT for file in plan.files):
        how += ", reading some inputs directly"
    return Way(how, plan, budget, wall_s, wall_s_most, money_of(budget, expected, wall_s), money_of(budget, most, wall_s_most))


def unlimited(workflow: Workflow, cluster: Cluster, paid: ClusterPrices, compute_nodes: int, io_nodes: int, volume_bytes: int) -> Budget:
    """The prices that a run pays here, without an amount."""
    nodes = [PaidNodes(compute_nodes, paid.compute.per_hour, paid.compute.billed_every_s, paid.compute.billed_at_least_s)]
    nodes += [PaidNodes(io_nodes, paid.io.per_hour, paid.io.billed_every_s, paid.io.billed_at_least_s)] if io_nodes else []
    volumes = storage_money(volume_bytes, 1.0, paid.volumes_per_gb_month) if io_nodes and not paid.io.own_disk else 0.0
    charged = {name: cluster.charged(workflow, name) for name in sorted(workflow.origins)}
    asked = paid.requests
    return Budget(
        currency=paid.currency,
        nodes=tuple(nodes),
        volumes_per_s=volumes,
        egress=tuple([(tier.up_to_bytes, tier.per_gb) for tier in paid.egress]),
        per_read=asked.reads_per_1000 / 1000 if asked is not None else 0.0,
        per_write=asked.writes_per_1000 / 1000 if asked is not None else 0.0,
        fetch_charged=tuple([name for name, how in charged.items() if how in (Charged.FETCH, Charged.BOTH)]),
        upload_charged=tuple([name for name, how in charged.items() if how in (Charged.UPLOAD, Charged.BOTH)]),
        buckets=tuple([name for name in charged if workflow.origins[name].kind is OriginKind.S3 and asked is not None]),
        compute_most={basis.value: belief.most * MODEL.most for basis, belief in COMPUTE_S.items()},
    )


def traffic_of(workflow: Workflow, plan: Plan, budget: Budget, reused: frozenset[str]) -> tuple[Moved, Moved]:
    """(expected, at most) between nodes and origins, of the jobs that run."""
    graph, planned = graph_of(workflow), {entry.lfn: entry for entry in plan.files}
    expected, most = Moved(), Moved()
    for lfn, file in workflow.files.items():
        entry, producer = planned[lfn], graph.producer.get(lfn)
        readers = [job for job in graph.readers[lfn] if job not in reused]
        if file.destination is not None and producer not in reused:
            origin, size_bytes = file.destination.location.origin, entry.expected_bytes
            expected.add(upload_of(budget, origin, size_bytes))
            most.add(upload_of(budget, origin, round(size_bytes * SIZE_BYTES[entry.size_basis].most)))
        elif readers and (file.is_external or producer in reused):
            origin = file.sources[0].location.origin if file.is_external else file.destination.location.origin if file.destination else ""
            for moved in (expected, most):
                moved.add(read_of(workflow, budget, entry, origin, readers))
    return expected, most


def read_of(workflow: Workflow, budget: Budget, entry: FilePlan, origin: str, readers: Sequence[str]) -> Moved:
    """Once to a node, or by each of its readers directly."""
    if entry.access is not Access.DIRECT:
        return fetch_of(budget, origin, entry.expected_bytes)
    moved = Moved()
    reads = {read.job_type: read.size_bytes for read in entry.direct_access.reads} if entry.direct_access is not None else {}
    for job in readers:
        moved.add(fetch_of(budget, origin, reads.get(workflow.jobs[job].job_type, entry.expected_bytes)))
    return moved


def going_home(workflow: Workflow, topology: Topology, plan: Plan) -> dict[str, float]:
    """How fast finals go to the slowest of their destinations, as expected and at the slowest; and how slow attempts may be."""
    names = sorted({file.destination.location.origin for file in workflow.files.values() if file.destination is not None})
    expected_s = slowest_s = file_s = 0.0
    for name in names:
        origin, link = workflow.origins[name], topology.link(name)
        slow = link_at_edge(link, origin, Edge.SLOW)
        expected_s = max(expected_s, byte_s(link, comes_back=is_read_back(origin, link)))
        slowest_s = max(slowest_s, byte_s(slow, comes_back=is_read_back(origin, slow)))
        file_s = max(file_s, slow.before_upload_s + (slow.upload_file_s or 0.0) + (slow.login_s or 0.0) + slow.latency_s)
    overhead = OVERHEAD_S.get(plan.overhead_basis, OVERHEAD_S[Basis.DEFAULT]).most
    disk = 1 / JOBS_DISK_RATE[measured(plan.disk_basis is Basis.MEASURED)].least
    return {
        "home_bytes_per_s": 1 / expected_s if expected_s else AT_ONCE,
        "home_bytes_per_s_least": 1 / slowest_s if slowest_s else AT_ONCE,
        "home_file_s_most": file_s,
        "beside_most": max(overhead, disk) * MODEL.most,
    }


def byte_s(link: OriginLink, *, comes_back: bool) -> float:
    """Of one node's line, with what is read back to be verified."""
    return 1 / link.upload_by(1) + (1 / link.fetch_by(1) if comes_back else 0.0)
