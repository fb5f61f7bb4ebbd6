"""Accounting of money: what a run under a budget has moved, what it owes, and what it is expected to come to.

May know: the state, the budget. One rule: nothing here decides. What is spent follows from measured bytes, requests and time; what is
still to come follows from the plan, and from how far the run has come with it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from msgspec import structs

from stager.planning.budget import Budget, Moved, fetch_of, home_s_most, lasts_s, money_of, most_s, upload_of
from stager.planning.plan import DirectRead
from stager.planning.requests import LOOKS_PER_WRITE, PART_BYTES_MIN
from stager.scheduler.budget_entry import BudgetEntry, Promise
from stager.scheduler.commands import Purpose
from stager.scheduler.direct_access import direct_lfns
from stager.scheduler.state import FileEntry, JobEntry, RunEntry, State, TransferEntry
from stager.scheduler.states import RunState


def begin_budget(state: State, run: RunEntry, budget: Budget) -> None:
    run.budget, run.spent = budget, BudgetEntry(Moved())
    state.budgeted[run.id] = None


def raise_budget(state: State, run: RunEntry, amount: float | None) -> None:
    """Of a run that is resumed: with another amount, and what was told may be told again."""
    spent = run.spent
    if run.budget is None or spent is None:
        return
    if amount is not None:
        run.budget = structs.replace(run.budget, amount=amount)
    spent.paused, spent.told_cost, spent.told_time = None, False, False
    spent.going_home.clear()
    spent.home_bytes = 0
    state.budgeted[run.id] = None
    spent.ends_s = []


def goes_home(run: RunEntry, file: FileEntry) -> None:
    """A final exists, and its way home is to be paid."""
    if run.spent is not None:
        run.spent.home_bytes += file.size_bytes - run.spent.going_home.get(file.id, 0)
        run.spent.going_home[file.id] = file.size_bytes


def not_going_home(run: RunEntry, file_id: str) -> None:
    """It is there, or it was given up, or it is gone."""
    if run.spent is not None:
        run.spent.home_bytes -= run.spent.going_home.pop(file_id, 0)


def attempt_begins(run: RunEntry, job: JobEntry, attempt: str, at: float) -> None:
    if run.spent is None or run.budget is None:
        return
    promise = Promise(*finals_of(run, job.id), direct_of(run, run.budget, job))
    run.spent.promises[attempt] = promise
    add_promise(run.spent, promise)
    heappush(run.spent.ends, (-(at + most_s(run.budget, run.plan.jobs[job.order])), attempt))


def add_promise(spent: BudgetEntry, promise: Promise, sign: int = 1) -> None:
    spent.promised += sign * promise.files
    spent.promised_bytes += sign * promise.size_bytes
    spent.promised_reads.add(promise.reads, sign)


def attempt_over(state: State, run: RunEntry, attempt: str) -> None:
    """It is no longer among the attempts. What it was to read directly it has read, as far as anybody knows."""
    promise = run.spent.promises.pop(attempt, None) if run.spent is not None else None
    if run.spent is None or promise is None:
        return
    add_promise(run.spent, promise, -1)
    run.spent.moved.add(promise.reads)
    while run.spent.ends and run.spent.ends[0][1] not in state.attempts:
        heappop(run.spent.ends)


def direct_of(run: RunEntry, budget: Budget, job: JobEntry) -> Moved:
    """What one attempt of a job reads at origins through mounts, as the plan predicted it."""
    moved = Moved()
    if not budget.charges_fetches or not run.direct:
        return moved
    job_type = run.workflow.jobs[job.id].job_type
    for lfn, source in direct_lfns(run, job.id):
        planned = run.planned[lfn]
        reads: tuple[DirectRead, ...] = planned.direct_access.reads if planned.direct_access is not None else ()
        size_bytes = next((read.size_bytes for read in reads if read.job_type == job_type), planned.expected_bytes)
        moved.add(fetch_of(budget, source.location.origin, size_bytes))
    return moved


def moved_by(budget: Budget, transfer: TransferEntry, size_bytes: int) -> Moved:
    """Between a node and an origin; nothing of what goes from node to node."""
    if transfer.source or transfer.old or not transfer.origin:
        return Moved()
    return (fetch_of if transfer.is_fetch else upload_of)(budget, transfer.origin, size_bytes)


def transfer_over(run: RunEntry, transfer: TransferEntry, size_bytes: int) -> None:
    if run.spent is not None and run.budget is not None:
        run.spent.moved.add(moved_by(run.budget, transfer, size_bytes))


def finals_of(run: RunEntry, job_id: str) -> tuple[int, int]:
    """Of what this job makes: how many go home, and how large they may get."""
    lfns = [output.lfn for output in run.workflow.jobs[job_id].outputs if run.workflow.files[output.lfn].destination is not None]
    return len(lfns), sum([run.planned[lfn].size_bytes for lfn in lfns])


def went_on_s(run: RunEntry, now: float) -> float:
    """For how long it has been going on, without the times in which it had ended."""
    until = run.finished_at if run.state is RunState.FINISHED else max(now, run.submitted_at)
    return max(0.0, until - run.submitted_at - run.interrupted_s)


def owed_of(state: State, run: RunEntry, budget: Budget, spent: BudgetEntry, more_files: int = 0, more_bytes: int = 0) -> Moved:
    """What moves if nothing more is begun: transfers under way, and finals that exist or that attempts will make. Those are taken to go
    where it costs most.
    """
    owed = Moved()
    owed.add(spent.promised_reads)
    files, size_bytes = len(spent.going_home) + spent.promised + more_files, spent.home_bytes + spent.promised_bytes + more_bytes
    if files:
        owed.egress_bytes += size_bytes if budget.upload_charged else 0
        if budget.buckets:
            # Each has a beginning and an end, and parts are rounded up.
            owed.reads, owed.writes = LOOKS_PER_WRITE * files, 3 * files + size_bytes // PART_BYTES_MIN
    for transfer in state.transfers.values() if budget.charges_fetches or run.plan.spill_origin is not None else ():
        if transfer.run == run.id and (transfer.is_fetch or transfer.purpose is Purpose.SPILL):
            owed.add(moved_by(budget, transfer, transfer.size_bytes))
    return owed


def drains_s(budget: Budget, spent: BudgetEntry, now: float, more_s: float = 0.0, more_files: int = 0, more_bytes: int = 0) -> float:
    """At the slowest, until attempts have ended and finals are home, if nothing more is begun; with an attempt of `more_s` beside them that
    makes so many finals.
    """
    ends_at = max(-spent.ends[0][0] if spent.ends else now, now + more_s)
    files = len(spent.going_home) + spent.promised + more_files
    return max(0.0, ends_at - now) + home_s_most(budget, files, spent.home_bytes + spent.promised_bytes + more_bytes)


def left_s(state: State, run: RunEntry, *, attempt_of: JobEntry | None = None, fetched: Moved | None = None) -> float:
    """For how long it may still go on before it has to take up no more jobs: as it is, or once an attempt of this job has begun, or a fetch
    that moves so much.
    """
    budget, spent = run.budget, run.spent
    if budget is None or spent is None or budget.amount is None:
        return inf
    files, size_bytes, attempt_s = 0, 0, 0.0
    moved = Moved()
    if attempt_of is not None:
        files, size_bytes = finals_of(run, attempt_of.id)
        attempt_s = most_s(budget, run.plan.jobs[attempt_of.order])
        moved.add(direct_of(run, budget, attempt_of))
    if fetched is not None:
        moved.add(fetched)
    moved.add(owed_of(state, run, budget, spent, files, size_bytes))
    moved.add(spent.moved)
    drains = drains_s(budget, spent, state.now, attempt_s, files, size_bytes)
    return lasts_s(budget, moved) - went_on_s(run, state.now) - drains


def planned_ends(run: RunEntry) -> list[float]:
    """When its jobs were to end, by the plan, in the order of time; of those that earlier runs made none. Sorted once."""
    assert run.spent is not None
    if not run.spent.ends_s:
        run.spent.ends_s = sorted([planned.finish_s for planned in run.plan.jobs if not run.jobs[planned.job].reused_from])
    return run.spent.ends_s


def rest_s(run: RunEntry, now: float) -> float:
    """How much longer it is expected to take: the rest of the plan, from where as many jobs were to be done as are, stretched by how much
    longer than planned it took to there. The further it has come, the more that counts.
    """
    if run.state is RunState.FINISHED:
        return 0.0
    ends, wall_s, makespan_s = planned_ends(run), went_on_s(run, now), run.plan.makespan_s
    done = min(len(ends), max(0, len(ends) - run.unended - run.failed))
    was_s = ends[done - 1] if done else 0.0
    next_s = ends[done] if done < len(ends) else makespan_s
    at_s = min(max(wall_s, was_s), next_s)
    share = done / len(ends) if ends else 1.0
    stretch = 1 + share * (wall_s / was_s - 1) if was_s > 0 and wall_s > was_s else 1.0
    by_plan_s = max(0.0, makespan_s - at_s) * stretch
    home_s = run.spent.home_bytes / run.budget.home_bytes_per_s if run.spent is not None and run.budget is not None else 0.0
    return max(by_plan_s, home_s)


def spent_money(run: RunEntry, now: float) -> float:
    assert run.budget is not None and run.spent is not None
    return money_of(run.budget, run.spent.moved, went_on_s(run, now))


def forecast_money(run: RunEntry, now: float) -> float:
    """What it is expected to come to when it ends."""
    assert run.budget is not None and run.spent is not None
    so_far, planned = run.spent.moved, run.budget.planned
    if run.state is RunState.FINISHED:
        return spent_money(run, now)
    moved = Moved(*[max(getattr(so_far, name), getattr(planned, name)) for name in Moved.__struct_fields__])
    return money_of(run.budget, moved, went_on_s(run, now) + rest_s(run, now))


def owed_money(state: State, run: RunEntry, now: float) -> float:
    """What it costs to end it now: until attempts have ended and finals are home, at the slowest."""
    assert run.budget is not None and run.spent is not None
    budget, spent, wall_s = run.budget, run.spent, went_on_s(run, now)
    moved = owed_of(state, run, budget, spent)
    moved.add(spent.moved)
    return money_of(budget, moved, wall_s + drains_s(budget, spent, now)) - money_of(budget, spent.moved, wall_s)
