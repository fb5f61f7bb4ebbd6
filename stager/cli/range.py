"""How far a predicted time may be off, in words. One rule: what nobody measured is named beside it."""

from __future__ import annotations

from stager.cli.links import assumed_rates
from stager.model.units import format_duration
from stager.planning.plan import Basis, Plan


def range_text(plan: Plan) -> str:
    """`8.1 s to 2 min 05 s in nine of ten runs`; empty where the plan does not say it."""
    if plan.makespan_least_s is None or plan.makespan_most_s is None:
        return ""
    return f"{format_duration(plan.makespan_least_s)} to {format_duration(plan.makespan_most_s)} in nine of ten runs"


def assumed_text(plan: Plan) -> str:
    """The parts of the plan's time that nobody measured, declared or saw."""
    jobs = sum(job.compute_basis is Basis.DEFAULT for job in plan.jobs)
    files = sum(file.size_basis is Basis.DEFAULT for file in plan.files)
    links = assumed_rates(plan.links)
    parts = [
        f"the times of {jobs} job{'s' if jobs > 1 else ''}" if jobs else "",
        f"the sizes of {files} file{'s' if files > 1 else ''}" if files else "",
        f"the link{'s' if len(links) > 1 else ''} to {', '.join(links)}" if links else "",
        "the overhead of attempts beside their programs" if plan.overhead_basis is Basis.DEFAULT else "",
    ]
    return ", ".join(part for part in parts if part)
