"""The requests of an engine that runs its jobs itself: call a job, wait until it is staged, say how its task ended, end its run, ask where
a file is.

May know: its calls, the run service. One rule: an answer comes after the journal, or the attempt's directory, holds what was said; and
the same question again is the same question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from stager import wire
from stager.model.errors import InvalidInput, Refused, Transient
from stager.model.workflow import Workflow
from stager.ports import Put
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.scheduler.state import RunEntry
from stager.scheduler.states import RunState
from stager.service.commands import Commits
from stager.service.engine_calls import CallStates, Seen, StagedCalls
from stager.service.inquiry import Inquiry, Pulse
from stager.service.lifetime import Lifetime
from stager.service.run_service import RunService

POLL_S, POLL_MAX_S = 0.05, 1.0
WAITING_FEW = 8
WAIT_S_MAX = 60.0
CALL_LENGTH_MAX = 200
Rights = Callable[[str, Workflow], Awaitable[wire.Credentials]]
# How an engine's run may have ended that goes on when a task of it is cleared.
GOES_ON = (RunOutcome.FAILED, RunOutcome.NOT_DURABLE)


class EngineService:
    """On the event loop's thread; reads the Machine's state by itself."""

    def __init__(
        self,
        inquiry: Inquiry,
        pulse: Pulse,
        lifetime: Lifetime,
        commits: Commits,
        calls: CallStates,
        staged_calls: StagedCalls,
        run_service: RunService,
        put: Put,
        rights: Rights | None = None,
    ) -> None:
        """`rights`: asked before a run goes on that had ended; None: the owner's, whose credentials the scheduler works out itself."""
        self.inquiry, self.pulse, self.lifetime, self.commits = inquiry, pulse, lifetime, commits
        self.calls, self.staged_calls, self.run_service, self.put, self.rights = calls, staged_calls, run_service, put, rights
        self.waiting = 0

    def asking(self, rights: Rights) -> EngineService:
        """One for those whose rights are asked for."""
        asked = (self.inquiry, self.pulse, self.lifetime, self.commits)
        return EngineService(*asked, self.calls, self.staged_calls, self.run_service, self.put, rights)

    async def call(self, run: str, job: str, call: str, stage: ev.Stage = ev.Stage.PATHS) -> wire.CallView:
        """The engine begins a try of the job, by a name of its own. Raises Refused where the run takes no calls."""
        if not 0 < len(call) <= CALL_LENGTH_MAX or not call.isprintable():
            raise InvalidInput(f"a call's name must be 1 to {CALL_LENGTH_MAX} printable characters", subject=call)

        credentials = await self._rights_to_go_on(run, job, call)

        def take(told: Callable[[], None]) -> None:
            entry, known = self.calls.job(run, job)
            if call in (known.call, *known.calls_before):
                told()
                return
            if goes_on(entry):
                if credentials is None:
                    raise Transient(f"run {run} ended just now; call again", code="busy", subject=run)
                self.run_service.resume(run, wire.ResumeRequest(credentials), lambda: None)
            elif entry.state is not RunState.ACTIVE:
                raise Refused(f"run {run} is {state_of_run(entry)} and takes no calls; resume it first", code="run_ending", subject=run)
            self.put(ev.JobCalled(at=0.0, cause="engine", run=run, job=job, call=call, stage=stage), told)

        await self._taken(take)
        return await self.staged(run, job, call, 0.0)

    async def _rights_to_go_on(self, run: str, job: str, call: str) -> wire.Credentials | None:
        """Asked for again where the call makes a run go on that had ended: they may have been taken back meanwhile. None: it has not."""

        def read() -> Workflow | None:
            entry, known = self.calls.job(run, job)
            return entry.workflow if goes_on(entry) and call not in (known.call, *known.calls_before) else None

        workflow = await self.inquiry.ask(read)
        if workflow is None:
            return None
        return wire.Credentials() if self.rights is None else await self.rights(run, workflow)

    async def staged(self, run: str, job: str, call: str, wait_s: float = 20.0) -> wire.CallView:
        """As soon as it is staged or over, or after `wait_s`."""
        return await self._until(run, job, call, wait_s, (wire.CallState.WAITING,))

    async def finish(self, run: str, job: str, call: str, wait_s: float = 20.0) -> wire.CallView:
        """Its task ended well: what it made, in its directory, is taken. Answers when that is there, or after `wait_s`."""
        seen = await self._seen(run, job, call)
        if seen.view.state is wire.CallState.WAITING:
            # What is said again may come just as its attempt ends, after the state was read and before the directory was.
            seen = await self._seen(run, job, call)
        if seen.view.state is wire.CallState.WAITING:
            raise Refused(f"call {call!r} of job {job!r} is not staged yet, so it cannot have ended well", code="not_staged", subject=job)
        if seen.view.state is wire.CallState.STAGED:
            self.staged_calls.finished(seen.attempt)
        return await self._until(run, job, call, wait_s, (wire.CallState.WAITING, wire.CallState.STAGED, wire.CallState.PUBLISHING))

    async def fail(self, run: str, job: str, call: str, message: str) -> wire.CallView:
        """It came to nothing, whether it was staged or not. A call that is over already stays as it is."""

        def take(told: Callable[[], None]) -> None:
            self.calls.job(run, job)
            self.put(ev.CallFailed(at=0.0, cause="engine", run=run, job=job, call=call, message=message), told)

        await self._taken(take)
        return (await self._seen(run, job, call)).view

    async def end_run(self, run: str, outcome: ev.EngineOutcome, message: str = "") -> None:
        """The engine calls no more jobs of this run. Said again it changes nothing."""

        def take(told: Callable[[], None]) -> None:
            entry = self.calls.run(run)
            if entry.engine_outcome is outcome:
                told()
                return
            if entry.state not in (RunState.ACTIVE, RunState.DRAINING):
                raise Refused(f"run {run} is {state_of_run(entry)} already", code="run_over", subject=run)
            self.put(ev.EngineRunEnded(at=0.0, cause="engine", run=run, outcome=outcome, message=message), told)

        await self._taken(take)

    async def where(self, run: str, lfn: str) -> wire.FileWhere:
        return await self.inquiry.ask(lambda: self.calls.where(run, lfn))

    async def open_calls(self, run: str, after: tuple[float | str, ...] = (), most: int | None = None) -> list[wire.OpenCall]:
        """Calls that are not over, the oldest first, `most` of those that come `after` (since, job)."""
        seen = await self.inquiry.ask(lambda: self.calls.open(run, after, most))
        return [each.model_copy(update={"state": self.staged_calls.stage_of(attempt, each.state)}) for each, attempt in seen]

    async def _taken(self, take: Callable[[Callable[[], None]], None]) -> None:
        await self.lifetime.ready.wait()
        await self.commits.taken(take)

    async def _seen(self, run: str, job: str, call: str) -> Seen:
        return self.staged_calls.seen(await self.inquiry.ask(lambda: self.calls.see(run, job, call)))

    async def _until(self, run: str, job: str, call: str, wait_s: float, unlike: tuple[wire.CallState, ...]) -> wire.CallView:
        end = time.monotonic() + min(max(0.0, wait_s), WAIT_S_MAX)
        self.waiting += 1
        try:
            while True:
                since = self.pulse.changed
                view = (await self._seen(run, job, call)).view
                left_s = end - time.monotonic()
                if view.state not in unlike or left_s <= 0:
                    return view
                if self.lifetime.ended.is_set():
                    raise Transient("the scheduler is ending; ask again in a moment", code="draining", subject=run)
                # So that many who wait ask together no more often than few.
                again_s = min(POLL_MAX_S, POLL_S * max(1.0, self.waiting / WAITING_FEW))
                await asyncio.sleep(min(again_s, left_s))
                await self.pulse.happening(since, max(0.0, end - time.monotonic()))
        finally:
            self.waiting -= 1


def goes_on(entry: RunEntry) -> bool:
    """A task of it is cleared, after it had ended."""
    return entry.state is RunState.FINISHED and entry.outcome in GOES_ON


def state_of_run(entry: RunEntry) -> str:
    return entry.outcome.value if entry.state is RunState.FINISHED and entry.outcome is not None else entry.state.value
