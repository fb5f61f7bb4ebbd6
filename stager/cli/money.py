"""What a run costs, in a line for people. One rule: every figure is the scheduler's."""

from __future__ import annotations

import time

from stager import wire
from stager.model.units import format_money


def budget_line(budget: wire.BudgetView, *, goes_on: bool) -> str:
    of = f" of {format_money(budget.amount)}" if budget.amount is not None else ""
    parts = [f"cost: {format_money(budget.spent)}{of} {budget.currency} spent"]
    if goes_on and budget.set_aside:
        parts.append(f"{format_money(budget.set_aside)} set aside to end what is under way")
    if goes_on:
        parts.append(f"{format_money(budget.forecast)} expected in all")
    if budget.finish_by is not None:
        ends = f"expected to end {clock(budget.ends_at)}" if goes_on else f"ended {clock(budget.ends_at)}"
        parts.append(f"{ends}, to finish by {clock(budget.finish_by)}")
    if budget.paused:
        parts.append("paused for its budget")
    return "; ".join(parts)


def clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(at))
