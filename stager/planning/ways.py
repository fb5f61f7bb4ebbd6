"""The ways to run a workflow, and the one of them that fits a budget and a deadline.

May know: plans, budgets, tables of prices. One rule: a way is judged by the upper ends of its ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stager.model.prices import PriceTable
from stager.planning.budget import Budget
from stager.planning.plan import Plan

TIME, COST = "time", "cost"


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
    being dearer, or cheaper without being slower. `unpriced`: what it has to pay and the table has no
    price of.
    """

    how: str
    plan: Plan
    budget: Budget
    wall_s: float
    wall_s_most: float
    money: float
    money_most: float
    front: bool = False
    unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Miss:
    """No way fits. `way` comes nearest, and `exceeds` says what it has too much of: TIME or COST."""

    way: Way
    exceeds: str


def choose(ways: Sequence[Way], within: Within) -> Way | Miss:
    """The fastest or the cheapest, of those that fit by their upper ends."""
    fit = [way for way in ways if fits_time(way, within) and (fits_money(way, within) or within.anyway)]
    if not fit:
        return nearest(ways, within)
    # With --budget-anyway those that surely fit come first, then those that are expected to.
    fit = [way for way in fit if fits_money(way, within)] or [way for way in fit if way.money <= (within.amount or 0.0)] or fit
    if within.time_first:
        return min(fit, key=lambda way: (way.wall_s, way.money))
    return min(fit, key=lambda way: (way.money, way.wall_s))


def nearest(ways: Sequence[Way], within: Within) -> Miss:
    """The cheapest of those that end in time; where none does, the fastest."""
    in_time = [way for way in ways if fits_time(way, within)]
    if in_time and within.amount is not None:
        return Miss(min(in_time, key=lambda way: way.money_most), COST)
    return Miss(min(ways, key=lambda way: way.wall_s_most), TIME)


def fits_money(way: Way, within: Within) -> bool:
    return within.amount is None or way.money_most <= within.amount


def fits_time(way: Way, within: Within) -> bool:
    return within.finish_by is None or within.asked_at + way.wall_s_most <= within.finish_by
