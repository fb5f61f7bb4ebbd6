"""Budgets and deadlines at a submit: what was asked for, the ways to run the workflow here, and the one that runs.

May know: the planner, prices, the settings, the clock. One rule: the plan of the way that was chosen is the plan that runs.
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
from stager.model.cluster import Cluster
from stager.model.errors import InvalidInput, Refused
from stager.model.prices import prices_for
from stager.model.profile import Profiles
from stager.model.units import counted, format_duration, format_money, parse_duration_s, parse_money
from stager.model.workflow import Bounds, Workflow, bandwidths_of
from stager.planning.budget import Budget
from stager.planning.cost import on_front
from stager.planning.plan import Basis, Plan
from stager.planning.way_cost import way_of
from stager.planning.ways import COST, TIME, Miss, Way, Within, choose, fits_money
from stager.readers.prices import packaged_prices, read_prices
from stager.service.prepare import SubmitOptions, cluster_here, plan_with, topology_of
from stager.service.settings import Settings

if TYPE_CHECKING:
    from stager.service.reusing import Remembered

NAMED = 3
# The beginning of 9999: what is later no clock of a machine tells.
INSTANT_MAX = 253_370_764_800.0
NONE = "none"


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
        if at > INSTANT_MAX:
            raise ValueError(text)
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
        if of_day.tzinfo is not None:
            raise ValueError(text)
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
    way = fitting(ways, within)
    budget = structs.replace(way.budget, amount=within.amount, finish_by=within.finish_by)
    way = replace(way, budget=budget)
    return Chosen(way, ways, tuple(lines_of(way, ways, within)))


def fitting(ways: Sequence[Way], within: Within) -> Way:
    """Raises Refused, with the figures, where none fits."""
    found = choose(ways, within)
    if isinstance(found, Miss):
        raise refusal(found, within)
    return found


def refusal(miss: Miss, within: Within) -> Refused:
    """With what the nearest way would cost or take, and what would change it."""
    way, currency = miss.way, within.prices.currency
    if miss.exceeds == COST:
        text = f"this may cost more than {format_money(within.amount or 0.0)} {currency}: {told(way, currency)}"
        advice = f"give --budget '{format_money(rounded_up(way.money_most))} {currency}'"
        begin = "or --budget-anyway: then it begins, and is paused before it costs more"
        return Refused(f"{text}; {advice}, {begin}{narrower(way)}", code="over_budget", subject="budget")
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
    why = [f"the times of {guessed} of {counted(len(way.plan.jobs), 'job')} are guesses"] if guessed else []
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
    if way.unpriced:
        none_of = f"the prices ({table.origin}) have none of {' and '.join(way.unpriced)} here"
        lines.append(f"{none_of}: that counts as nothing, whatever it costs")
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
