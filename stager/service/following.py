"""The waits of those who follow a run: for its next step, its end, a final that is durable.

May know: the counters, the archive. One rule: whoever waits is woken by what happens, and asks again no more often than that.
"""

from __future__ import annotations

import asyncio
import time

from stager import wire
from stager.model.errors import InvalidInput
from stager.scheduler.commands import RunOutcome
from stager.scheduler.states import RunState
from stager.service.counters import Counters
from stager.service.inquiry import Inquiry, Pulse
from stager.service.known_runs import KnownRuns
from stager.service.lifetime import Lifetime
from stager.service.timeline import Step
from stager.service.views import is_durable, state_of

EVENTS_A_PAGE = 1000
# Between two questions of one waiter, however much happens.
POLL_S = 0.05
WAIT_S_MAX = 60.0


class Following:
    """On the event loop's thread."""

    def __init__(self, inquiry: Inquiry, pulse: Pulse, lifetime: Lifetime, runs: KnownRuns, counters: Counters) -> None:
        self.inquiry, self.pulse, self.lifetime, self.runs, self.counters = inquiry, pulse, lifetime, runs, counters

    async def is_folded(self, run: str) -> bool:
        return await self.inquiry.ask(lambda: self.runs.is_folded(run))

    async def require(self, run: str) -> None:
        """Raises InvalidInput if there is no such run, or nothing is left of it."""
        await self.inquiry.ask(lambda: self.runs.is_folded(run) or self.runs.known(run))

    async def next_seq(self) -> int:
        """The number that the next step of any run gets."""
        return await self.inquiry.ask(lambda: self.counters.next_seq)

    def has_ended(self) -> bool:
        """The scheduler: no step comes any more."""
        return self.lifetime.ended.is_set()

    async def steps_after(self, run: str, after: int, wait_s: float) -> tuple[list[Step], bool, int]:
        """(steps, whether some between were dropped, the number that comes next); waits for the next where there is none yet."""
        end = time.monotonic() + wait_s
        while True:
            since = self.pulse.changed
            steps, gap, next_seq = await self.inquiry.ask(lambda: self._steps_since(run, after))
            if steps or time.monotonic() >= end or self.has_ended():
                return steps, gap, next_seq
            await asyncio.sleep(POLL_S)
            await self.pulse.happening(since, max(0.0, end - time.monotonic()))

    def _steps_since(self, run: str, after: int) -> tuple[list[Step], bool, int]:
        self.runs.known(run)
        steps, gap = self.counters.since(run, after, EVENTS_A_PAGE)
        return steps, gap, steps[-1].seq + 1 if steps else max(after + 1, 1)

    async def ended_or(self, run: str, lfn: str | None, timeout_s: float) -> wire.WaitResponse:
        """Once the run has finished, or that file is durable, or the time is over."""
        end = time.monotonic() + min(max(0.0, timeout_s), WAIT_S_MAX)
        while True:
            since = self.pulse.changed
            answer = await self.inquiry.ask(lambda: self._answer(run, lfn))
            left_s = end - time.monotonic()
            if answer.finished or answer.durable or left_s <= 0 or self.has_ended():
                return answer
            await asyncio.sleep(min(POLL_S, left_s))
            await self.pulse.happening(since, max(0.0, end - time.monotonic()))

    def _answer(self, run: str, lfn: str | None) -> wire.WaitResponse:
        if self.runs.is_folded(run):
            return self.runs.archive.wait(run, lfn)
        entry = self.runs.known(run)
        durable, superseded = None, None
        if lfn is not None:
            file = entry.workflow.files.get(lfn)
            if file is None or file.destination is None:
                raise InvalidInput(
                    f"{lfn!r} is no final of run {run}; `stager ledger {run}` lists what it makes", code="not_final", subject=lfn
                )
            durable = is_durable(self.runs.state.files[entry.file_ids[lfn]])
            superseded = entry.finals_superseded.get(entry.file_ids[lfn])
        return wire.WaitResponse(
            run=run,
            finished=entry.state is RunState.FINISHED,
            state=state_of(entry),
            fault=wire.ErrorBody.of(entry.fault) if entry.fault is not None else None,
            durable=durable,
            superseded=superseded.message if superseded is not None else "",
            interrupted_by=entry.interrupted_by if entry.outcome in (None, RunOutcome.INTERRUPTED) else "",
        )
