"""Choices as JSON for programs, as `cost-estimate --json` and the REST API give them. One rule: every choice has the same keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from stager.model.cluster import ANY_ORIGIN, Cluster
from stager.model.prices import PriceTable
from stager.model.topology import DEFAULT_LATENCY_S, DEFAULT_WAN_BYTES_PER_S
from stager.model.units import format_size
from stager.model.workflow import Workflow, bandwidths_of
from stager.planning.links import link_plans
from stager.planning.plan import LinkPlan
from stager.service.choices import Choice, Question, Simulated

FIGURES = (
    "makespan_s",
    "compute_node_hours",
    "io_node_hours",
    "reads",
    "writes",
    "egress_bytes",
    "hit_rate",
    "best_hit_rate",
    "fetched_bytes",
    "uploaded_bytes",
    "readback_bytes",
    "wan_bytes",
    "money",
    "total",
)
RANGES = ("makespan_s_range", "total_range", "wan_bytes_range")
MAY_TAKE = ("makespan_least_s", "makespan_most_s")
MARKS = ("cheapest", "fastest", "front")


def choices_json(question: Question, table: PriceTable, choices: Sequence[Choice]) -> dict[str, Any]:
    cluster = question.cluster
    return {
        "workflow": question.workflow.name,
        "jobs": len(question.workflow.jobs),
        "compute_nodes": cluster.compute.nodes,
        "instance": cluster.compute.instance,
        "io_instance": cluster.io.instance,
        "assumed": cluster.assumed,
        "links": [asdict(link) for link in links_of(question)],
        "prices": {"origin": table.origin, "date": table.date, "currency": table.currency, "missing": list(question.prices.missing)},
        "profiles_ignored": question.ignore_profiles,
        "notes": link_notes(cluster, question.workflow),
        "draws": question.draws,
        "seed": question.seed,
        "choices": [choice_json(choice, drawn=question.draws > 0) for choice in choices],
    }


def choice_json(choice: Choice, *, drawn: bool) -> dict[str, Any]:
    """The same keys for each choice: null of one that cannot be done, and ranges where nothing was drawn."""
    head = {"io_nodes": choice.io_nodes, "outcome": choice.outcome, "message": choice.message, "notes": list(choice.notes)}
    if choice.expected is None:
        return head | dict.fromkeys((*FIGURES, *RANGES, *MAY_TAKE, *MARKS))
    marks = {name: getattr(choice, name) for name in MARKS}
    marks |= {name: None if (at := getattr(choice, name)) is None else round(at, 6) for name in MAY_TAKE}
    return head | simulated_json(choice.expected) | (ranges_json(choice) if drawn else dict.fromkeys(RANGES)) | marks


def simulated_json(life: Simulated) -> dict[str, Any]:
    usage = life.usage
    return {
        "makespan_s": round(usage.wall_s, 6),
        "compute_node_hours": round(life.compute_node_hours, 9),
        "io_node_hours": round(life.io_node_hours, 9),
        "reads": usage.reads,
        "writes": usage.writes,
        "egress_bytes": usage.egress_bytes,
        "hit_rate": rounded(life.hit_rate),
        "best_hit_rate": rounded(life.best_hit_rate),
        "fetched_bytes": life.fetched_bytes,
        "uploaded_bytes": life.uploaded_bytes,
        "readback_bytes": life.readback_bytes,
        "wan_bytes": life.wan_bytes,
        "money": {name: round(part, 9) for name, part in life.bill.lines()},
        "total": round(life.bill.total, 9),
    }


def rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 9)


def ranges_json(choice: Choice) -> dict[str, Any]:
    return {
        "makespan_s_range": [round(value, 6) for value in choice.wall_s_range],
        "total_range": [round(value, 9) for value in choice.total_range],
        "wan_bytes_range": list(choice.wan_bytes_range),
    }


def link_notes(cluster: Cluster, workflow: Workflow) -> list[str]:
    """Where a topology file leaves a link to be assumed, and where it says one for nothing: a name that was mistyped is both."""
    if cluster.assumed or ANY_ORIGIN in cluster.links:
        return []
    usual = f"{format_size(DEFAULT_WAN_BYTES_PER_S)}/s both ways and {DEFAULT_LATENCY_S * 1000:g} ms"
    missing = [name for name in sorted(workflow.origins) if name not in cluster.links]
    strange = [name for name in sorted(cluster.links) if name not in workflow.origins]
    there = ", ".join(sorted(workflow.origins))
    return [
        *(f"the topology says nothing of the link to {name}: {usual} are assumed" for name in missing),
        *(f"the topology has a link to {name}, which is no origin of this workflow (it has {there})" for name in strange),
    ]


def links_of(question: Question) -> tuple[LinkPlan, ...]:
    """As every choice is planned with them."""
    workflow, cluster = question.workflow, question.cluster
    return link_plans(workflow.origins, cluster.topology(workflow, 1).bounded_by(bandwidths_of(workflow)))
