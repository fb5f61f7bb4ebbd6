"""The compute hosts for which a run waits: those that do not answer while its jobs are there, and those that its jobs need to begin.

May know: the Machine's state (read only), wire. One rule: it walks what is under way, and a run's jobs only while no host answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from stager import wire
from stager.model.units import counted, format_duration
from stager.scheduler.node_entry import HostEntry
from stager.scheduler.slots import host_of
from stager.scheduler.state import JobEntry, RunEntry, State
from stager.scheduler.states import JobState, RunState
from stager.service.giving_up import Patience
from stager.service.waiting_nodes import READY_STATES, until_text

AWAY_CODE, GONE_CODE, NONE_CODE = "host_away", "host_gone", "no_host"


def hosts_waited_for(
    state: State, run: RunEntry, now: float, patience: Patience, jobs: Collection[JobEntry] | None = None
) -> Iterator[wire.WaitingView]:
    """An attempt whose host is gone ends when its node has closed it. `jobs`: those that are asked about; None: all of the run."""
    if run.state is RunState.FINISHED or run.is_engines or not state.on_hosts:
        return
    asked = run.jobs.values() if jobs is None else jobs
    names = {job.id for job in asked}
    mine = [attempt for attempt in state.attempts.values() if attempt.run == run.id and attempt.host and attempt.job in names]
    begun = Counter(attempt.host for attempt in mine)
    for name, count in sorted(begun.items()):
        host = host_of(state, name)
        if host is None:
            nodes = sorted({attempt.node for attempt in mine if attempt.host == name})
            text = f"host {name}: gone; {counted(count, 'job')} that ran there begin again when "
            yield view(name, GONE_CODE, "it is gone", None, f"{text}{', '.join(nodes)} has closed what they began")
        elif not host.answers:
            yield away_view(host, count, now, patience)
    hosts = [host for node in state.nodes.values() for host in node.hosts.values()]
    if not any(host.answers for host in hosts):
        ready = sum(job.state in READY_STATES or job.state is JobState.BACKOFF for job in asked)
        if ready:
            text = f"no compute host answers: {counted(ready, 'job')} may begin when one does"
            yield view("", NONE_CODE, "no compute host answers", None, f"{text}; `stager host list` says which there were")


def away_view(host: HostEntry, count: int, now: float, patience: Patience) -> wire.WaitingView:
    since_s = max(0.0, now - host.lost_at)
    silent = format_duration(since_s) if since_s >= 10 else f"{round(since_s)} s"
    message = f"host {host.id}: no answer for {silent}; {counted(count, 'job')} began there and may go on"
    hint = until_text(patience.of_host(host), now) or f"`stager host forget {host.id}` if it does not come back"
    return view(host.id, AWAY_CODE, "it does not answer", since_s, f"{message}; {hint}")


def view(host: str, code: str, reason: str, since_s: float | None, message: str) -> wire.WaitingView:
    return wire.WaitingView(
        origin="", host=host, code=code, reason=reason, since_s=since_s, fetches=0, uploads=0, next_try_s=0.0, message=message
    )
