"""The answers that only the journal has about a run: the timeline of a file or a job, and what the run did in time.

May know: the journal's batches. One rule: the journal is read on a thread of its own; for timelines, which take all of it, by one reader
at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from stager import wire
from stager.model.errors import InvalidInput, Refused
from stager.ports import Batch
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import ENDED, RunState
from stager.service.giving_up import Patience
from stager.service.history import history_of
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.timeline import timeline
from stager.service.waiting_hosts import hosts_waited_for
from stager.service.waiting_nodes import Part, nodes_waited_for


def absences(state: State, run: RunEntry, file_id: str, job: str, now: float, patience: Patience) -> list[str]:
    """The nodes and hosts that are away and keep a file (by id) or a job from going on: since when, and with what of it."""
    part = part_of(state, run, file_id, job)
    away = (*nodes_waited_for(state, run, now, patience, part), *hosts_waited_for(state, run, now, patience, part.jobs))
    return [f"{time.strftime('%H:%M:%S', time.localtime(now))}  it waits: {view.message}" for view in away]


def part_of(state: State, run: RunEntry, file_id: str, job: str) -> Part:
    """What a job waits for are its inputs, and what a file waits for is the job that makes it, as long as they are not done."""
    if not job:
        file = state.files[file_id]
        maker = run.jobs.get(file.producer) if file.run == run.id else None
        return Part([maker] if maker is not None and maker.state not in ENDED else [], [file])
    entry = run.jobs[job]
    inputs = () if entry.state in ENDED else run.workflow.jobs[job].inputs
    return Part([entry], [state.files[run.file_ids[used.lfn]] for used in inputs])


class JournalQueries:
    """On the event loop's thread. `read`: the batches so far, from any thread."""

    def __init__(
        self, inquiry: Inquiry, runs: KnownRuns, read: Callable[[], Iterable[Batch]], clock: Callable[[], float], patience: Patience
    ) -> None:
        self.inquiry, self.runs, self.read, self.clock, self.patience = inquiry, runs, read, clock, patience
        self.reading = asyncio.Lock()

    async def explained(
        self, run: str, lfn: str | None, job: str | None, is_seen: Callable[[str], bool] = lambda run: True
    ) -> wire.Explanation:
        if (lfn is None) == (job is None):
            raise InvalidInput("the timeline is that of one thing; name a file (lfn) or a job", code="bad_parameter", subject="lfn")
        entry = await self.inquiry.ask(lambda: self.runs.known(run))
        if (lfn or "") not in entry.file_ids and (job or "") not in entry.jobs:
            raise InvalidInput(f"run {run} has no {f'file {lfn!r}' if lfn else f'job {job!r}'}", code="not_found", subject=lfn or job or "")
        file_id = entry.file_ids[lfn] if lfn else ""
        async with self.reading:
            lines = await asyncio.to_thread(lambda: list(timeline(self.read(), run, file_id, job or "", is_seen)))
        lines += await self.inquiry.ask(lambda: absences(self.runs.state, entry, file_id, job or "", self.clock(), self.patience))
        return wire.Explanation(subject=lfn or job or "", lines=lines)

    async def history(self, run: str) -> wire.RunHistory:
        entry = await self.inquiry.ask(lambda: self.runs.known(run))
        if entry.state is not RunState.FINISHED:
            raise Refused(f"run {run} has not finished yet", code="run_active", subject=run)
        return await asyncio.to_thread(lambda: history_of(self.read(), run))
