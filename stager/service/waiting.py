"""The things for which a run waits: transfers that failed and are tried again, by origin and reason, its engine, and nodes.

May know: the Machine's state (read only), wire. One rule: it walks what is being retried, never all files.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from stager import wire
from stager.model.errors import Fault, is_unreachable
from stager.model.units import format_duration
from stager.scheduler.retries import reason
from stager.scheduler.sources import is_for_another
from stager.scheduler.state import Retries, RunEntry, State
from stager.scheduler.states import RunState
from stager.service.giving_up import NEVER_GIVES_UP, Patience
from stager.service.waiting_hosts import hosts_waited_for
from stager.service.waiting_nodes import nodes_waited_for
from stager.service.waiting_quotas import quotas_waited_for

# A task may well compute for longer; whoever follows the run decides what that means.
SILENT_AFTER_S = 600.0


@dataclass(slots=True)
class Group:
    fault: Fault
    fault_at: float = 0.0
    fetches: int = 0
    uploads: int = 0
    since: list[float] = field(default_factory=list)
    next_at: list[float] = field(default_factory=list)


def waiting_of(
    state: State, run: RunEntry, now: float, moving: Container[str] = (), patience: Patience = NEVER_GIVES_UP
) -> list[wire.WaitingView]:
    """Of one origin the reason told is the newest of those that keep it from being reached. `moving`: transfers that bytes come of, which
    wait for nothing.
    """
    groups: dict[tuple[str, str], Group] = {}
    through: dict[str, None] = {}
    for retries, upload in retried(state, run):
        if retries.last is None:
            continue
        if retries.transfer in moving:
            through[retries.origin] = None
            continue
        key = (retries.origin, "" if retries.away_since is not None else retries.last.code)
        group = groups.setdefault(key, Group(retries.last))
        if retries.last_at >= group.fault_at:
            group.fault, group.fault_at = retries.last, retries.last_at
        group.fetches, group.uploads = group.fetches + (not upload), group.uploads + upload
        group.next_at.append(now if retries.transfer in state.transfers else retries.not_before)
        if retries.away_since is not None:
            group.since.append(retries.away_since)
    views = []
    for (origin, _), group in groups.items():
        reached_at = state.reached.get(state.origin_identity(run.id, origin), 0.0)
        is_back = bool(group.since) and (reached_at > group.fault_at or origin in through)
        group.since = [] if is_back else [max(reached_at, min(group.since))] if group.since else []
        views.append(view(origin, group, now, is_back=is_back))
    away = (*nodes_waited_for(state, run, now, patience), *hosts_waited_for(state, run, now, patience))
    return [*silence_of(run, now), *quotas_waited_for(state, run), *away, *views]


def silence_of(run: RunEntry, now: float) -> Iterator[wire.WaitingView]:
    """Of an engine that has not been heard of for a while, and has not ended its run."""
    since_s = now - (run.heard_at or run.submitted_at)
    if not run.is_engines or run.engine_outcome is not None or run.state is RunState.FINISHED or since_s < SILENT_AFTER_S:
        return
    open_calls = sum(job.call_open for job in run.jobs.values())
    message = f"no word from {run.workflow.engine} for {round_duration(since_s)} (calls open: {open_calls})"
    yield wire.WaitingView(
        origin="",
        code="engine_silent",
        reason="the engine says nothing",
        since_s=since_s,
        fetches=0,
        uploads=0,
        next_try_s=0.0,
        message=message,
    )


def retried(state: State, run: RunEntry) -> Iterator[tuple[Retries, bool]]:
    """A transfer that has been given up, is no longer wanted or is another run's has no next try in this one."""
    if run.state is RunState.FINISHED:
        return
    for file_id, upload in state.retrying:
        file = state.files[file_id]
        retries = file.upload if upload else file.fetch
        if retries is None or retries.fault is not None or (retries.transfer not in state.transfers and retries.not_before < state.now):
            continue
        mine = file.run == run.id
        if mine or (any(reader == run.id for _, reader, _ in file.uses) and is_for_another(state, file, run.id)):
            yield retries, upload


def view(origin: str, group: Group, now: float, *, is_back: bool) -> wire.WaitingView:
    """`is_back`: others got through to it since."""
    since_s = max(0.0, now - min(group.since)) if group.since else None
    next_try_s = max(0.0, min(group.next_at) - now)
    count = group.fetches + group.uploads
    what = f"{count} transfer{'s wait' if count > 1 else ' waits'}"
    state = f"unreachable for {round_duration(since_s)}" if since_s is not None and is_unreachable(group.fault) else "trouble"
    because = reason(group.fault)
    state, because = ("it answers again", f"before: {because}") if is_back else (state, because)
    again = f"next try in {round_duration(next_try_s)}" if next_try_s >= 1 else "tried again now"
    message = f"origin {origin}: {state} ({because}), {what}, {again}"
    return wire.WaitingView(
        origin=origin,
        code=group.fault.code,
        reason=reason(group.fault),
        since_s=since_s,
        fetches=group.fetches,
        uploads=group.uploads,
        next_try_s=next_try_s,
        message=message,
    )


def round_duration(seconds: float) -> str:
    return format_duration(seconds) if seconds >= 10 else f"{round(seconds)} s"
