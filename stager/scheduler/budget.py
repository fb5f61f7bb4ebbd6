"""Decisions about money and time: a run is paused before its budget is used up, and somebody is told once that it will cost more, or end
later, than it may.

May know: the state and its money. One rule: nothing is begun that could not be ended and brought home within the budget, as far as the
estimate's ranges hold; a run that misses its deadline goes on.
"""

from __future__ import annotations

from math import inf
from typing import Any

from stager.model.errors import ErrorClass, Fault
from stager.model.units import format_duration, format_money
from stager.planning.budget import fetch_of
from stager.scheduler import commands as cmd
from stager.scheduler.decision import Decision
from stager.scheduler.spending import forecast_money, left_s, owed_money, rest_s, spent_money
from stager.scheduler.state import JobEntry, RunEntry, State
from stager.scheduler.states import JobState, RunState

BUDGET_CODE = "budget_used_up"
# What is left of the time that a timer was set for.
AT_ONCE_S = 0.001


def watch_budgets(decision: Decision) -> None:
    """Of the runs that go on: those whose money lasts no longer take up no more jobs."""
    state = decision.state
    for run_id in list(state.budgeted):
        run = state.runs[run_id]
        if run.state is RunState.ACTIVE:
            tell_forecast(decision, run)
            if left_s(state, run) <= AT_ONCE_S:
                pause(decision, run)


def next_due(state: State) -> float:
    """When the first of them has to be paused, if nothing happens before."""
    going_on = [state.runs[run_id] for run_id in state.budgeted]
    return min([state.now + left_s(state, run) for run in going_on if run.state is RunState.ACTIVE], default=inf)


def affords_attempt(decision: Decision, run: RunEntry, job: JobEntry) -> bool:
    """False: the run was paused instead."""
    if run.budget is None or left_s(decision.state, run, attempt_of=job) > AT_ONCE_S:
        return True
    pause(decision, run)
    return False


def affords_fetch(decision: Decision, run: RunEntry, origin: str, size_bytes: int) -> bool:
    """False: the run was paused instead, or is about to end."""
    if run.budget is None or not run.budget.charges_fetches:
        return True
    if left_s(decision.state, run, fetched=fetch_of(run.budget, origin, size_bytes)) > AT_ONCE_S:
        return True
    if run.state is RunState.ACTIVE:
        pause(decision, run)
    return False


def pause(decision: Decision, run: RunEntry) -> None:
    """Attempts and uploads under way end; jobs that were admitted go back."""
    state, budget = decision.state, run.budget
    if budget is None or budget.amount is None:
        return
    spent, owed = spent_money(run, state.now), owed_money(state, run, state.now)
    of, forecast = f"{format_money(budget.amount)} {budget.currency}", forecast_money(run, state.now)
    text = (
        f"run {run.id} is paused before its budget of {of} is used up: {format_money(spent)} are spent, up to {format_money(owed)} more "
        f"are set aside until attempts have ended and finals are home, and all of it is expected to cost {format_money(forecast)}; "
        f"go on with: stager resume {run.id} --budget '{format_money(max(forecast, budget.amount))} {budget.currency}' or more"
    )
    fault = Fault(ErrorClass.REFUSED, BUDGET_CODE, text, run.id)
    decision.emit(cmd.PauseRun, run=run.id, spent=spent, owed=owed, forecast=forecast, fault=fault)
    for job in run.jobs.values():
        if job.state is JobState.ADMITTED:
            decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=state.now, counts=False, why="the budget is nearly used up")


def tell_forecast(decision: Decision, run: RunEntry) -> None:
    """Once for each of them, until the run is resumed."""
    budget, spent, now = run.budget, run.spent, decision.state.now
    if budget is None or spent is None:
        return
    facts: dict[str, Any] = {"run": run.id, "currency": budget.currency}
    if budget.amount is not None and not spent.told_cost and (forecast := forecast_money(run, now)) > budget.amount:
        text = f"run {run.id} is expected to cost {format_money(forecast)} {budget.currency}, and may cost {format_money(budget.amount)}"
        facts |= {"about": cmd.Forecast.COST, "text": text}
        decision.emit(cmd.TellForecast, expected=forecast, allowed=budget.amount, spent=spent_money(run, now), **facts)
    if budget.finish_by is not None and not spent.told_time and (ends_at := now + rest_s(run, now)) > budget.finish_by:
        late = format_duration(ends_at - budget.finish_by)
        facts |= {"about": cmd.Forecast.TIME, "text": f"run {run.id} is expected to end {late} after the time by which it is to"}
        decision.emit(cmd.TellForecast, expected=ends_at, allowed=budget.finish_by, spent=spent_money(run, now), **facts)
