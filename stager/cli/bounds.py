"""Budgets and deadlines as a command line gives them. One rule: a time of a day is of the time zone of who types it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from stager.cli.options import Bounds
from stager.model.units import format_duration, format_money
from stager.service.budgets import Chosen, Within, instant_of, now, within_of
from stager.service.settings import Settings


def within(bounds: Bounds, settings: Settings) -> Within | None:
    given = (bounds.budget, bounds.finish_by, bounds.objective)
    return within_of(*given, settings, now(), anyway=bounds.anyway, prices=bounds.prices)


def rest_bounds(bounds: Bounds) -> dict[str, Any]:
    """For a service, which may be in another time zone."""
    if not bounds.asked:
        return {}
    if bounds.prices is not None:
        raise click.UsageError("a service has prices of its own: leave out --prices, or --server")
    told = None
    if bounds.finish_by is not None:
        told = datetime.fromtimestamp(instant_of(bounds.finish_by, now())).astimezone().isoformat()
    return {"budget": bounds.budget, "finish_by": told, "objective": bounds.objective, "budget_anyway": bounds.anyway}


def way_lines(chosen: Chosen) -> list[str]:
    """A line for each way there is, the chosen one marked."""
    lines = []
    for way in chosen.ways:
        mark = "->" if way.plan is chosen.plan else " *" if way.front else "  "
        cost = f"{format_money(way.money)} to {format_money(way.money_most)} {chosen.budget.currency}"
        lines.append(f"{mark} {way.how}: {format_duration(way.wall_s)} to {format_duration(way.wall_s_most)}, {cost}")
    return lines
