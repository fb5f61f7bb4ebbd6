"""Budgets and deadlines as a command line gives them. One rule: a time of a day is of the time zone of who types it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from stager.cli.options import Bounds
from stager.model import workflow as model
from stager.model.errors import InvalidInput
from stager.model.units import format_duration, format_money
from stager.planning.ways import Within
from stager.service.budgets import NONE, Chosen, asked_of, instant_of, now, within_of
from stager.service.settings import Settings


def within(bounds: Bounds, said: model.Bounds, settings: Settings) -> Within | None:
    """`said`: what the workflow says itself."""
    asked = asked_of(model.Bounds(bounds.budget or "", bounds.finish_by or "", bounds.objective or ""), said)
    given = (asked.budget or None, asked.finish_by or None, asked.objective or None)
    return within_of(*given, settings, now(), anyway=bounds.anyway, prices=bounds.prices)


def require_unbounded(bounds: Bounds, said: model.Bounds) -> None:
    """Of a submit with a plan. What decides between ways counts for nothing then."""
    asked = asked_of(model.Bounds(bounds.budget or "", bounds.finish_by or ""), said)
    names = [f"--{name.replace('_', '-')} none" for name in ("budget", "finish_by") if getattr(asked, name)]
    if names:
        text = "--plan runs that plan, and the workflow has a budget or a deadline, which chooses one"
        raise InvalidInput(f"{text}: add {' and '.join(names)}, or leave --plan out", code="bad_parameter", subject="plan")


def rest_bounds(bounds: Bounds) -> dict[str, Any]:
    """For a service, which may be in another time zone."""
    if bounds == Bounds():
        return {}
    if bounds.prices is not None:
        raise click.UsageError("a service has prices of its own: leave out --prices, or --server")
    told = None
    if bounds.finish_by == NONE:
        told = NONE
    elif bounds.finish_by is not None:
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
