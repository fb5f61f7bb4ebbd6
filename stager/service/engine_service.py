"""What an engine that runs its jobs itself may ask: call a job, wait until it is staged, say how its task ended, end its run, ask where a
file is.

May know: the scheduler. One rule: an answer comes after the journal, or the attempt's directory, holds what was said; and the same question
again is the same question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stager import wire
from stager.model.errors import InvalidInput, Refused, Transient
from stager.model.workflow import Workflow
from stager.planning.plan import Access
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.scheduler.ledger import entry_of
from stager.scheduler.state import JobEntry, RunEntry
from stager.scheduler.states import CopyState, JobState, RunState
from stager.service.app import Scheduler
from stager.service.commands import done
from stager.worker import Staged
from stager.worker.called import FINISHED

LOOK_AGAIN_S, LOOK_AGAIN_MAX_S = 0.05, 1.0
WAITING_FEW = 8
WAIT_S_MAX = 60.0
CALL_LENGTH_MAX = 200
Rights = Callable[[str, Workflow], Awaitable[wire.Credentials]]
# How an engine's run may have ended that goes on when a task of it is cleared.
GOES_ON = (RunOutcome.FAILED, RunOutcome.NOT_DURABLE)


@dataclass(frozen=True, slots=True)
class Seen:
    """A call in the Machine's state, and the attempt under way for it."""

    view: wire.CallView
    attempt: str = ""


class EngineService:
    """On the event loop's thread; looks at the Machine on its own."""

    def __init__(self, scheduler: Scheduler, rights: Rights | None = None) -> None:
        """`rights`: asked before a run goes on that had ended; None: the owner's, whose credentials the scheduler works out itself."""
        self.scheduler, self.rights = scheduler, rights
        self.waiting = 0

    async def call(self, run: str, job: str, call: str, stage: ev.Stage = ev.Stage.PATHS) -> wire.CallView:
        """The engine begins a try of the job, by a name of its own. Raises Refused where the run takes no calls."""
        if not 0 < len(call) <= CALL_LENGTH_MAX or not call.isprintable():
            raise InvalidInput(f"a call's name must be 1 to {CALL_LENGTH_MAX} printable characters", subject=call)

        credentials = await self._rights_to_go_on(run, job, call)

        def take(told: Callable[[], None]) -> None:
            entry, known = self._job(run, job)
            if call in (known.call, *known.calls_before):
                told()
                return
            if goes_on(entry):
                if credentials is None:
                    raise Transient(f"run {run} ended just now; call again", code="busy", subject=run)
                self.scheduler.run_service.resume(run, wire.ResumeRequest(credentials), lambda: None)
            elif entry.state is not RunState.ACTIVE:
                raise Refused(f"run {run} is {state_of_run(entry)} and takes no calls; resume it first", code="run_ending", subject=run)
            self._put(ev.JobCalled(at=0.0, cause="engine", run=run, job=job, call=call, stage=stage), told)

        await self._taken(take)
        return await self.staged(run, job, call, 0.0)

    async def _rights_to_go_on(self, run: str, job: str, call: str) -> wire.Credentials | None:
        """Asked for again where the call makes a run go on that had ended: they may have been taken back meanwhile. None: it has not."""

        def look() -> Workflow | None:
            entry, known = self._job(run, job)
            return entry.workflow if goes_on(entry) and call not in (known.call, *known.calls_before) else None

        workflow = await self.scheduler.ask(look)
        if workflow is None:
            return None
        return wire.Credentials() if self.rights is None else await self.rights(run, workflow)

    async def staged(self, run: str, job: str, call: str, wait_s: float = 20.0) -> wire.CallView:
        """As soon as it is staged or over, or after `wait_s`."""
        return await self._until(run, job, call, wait_s, (wire.CallState.WAITING,))

    async def finish(self, run: str, job: str, call: str, wait_s: float = 20.0) -> wire.CallView:
        """Its task ended well: what it made, in its directory, is taken. Answers when that is there, or after `wait_s`."""
        seen = await self._look(run, job, call)
        if seen.view.state is wire.CallState.WAITING:
            # What is said again may come just as its attempt ends, between a look at the state and one at the directory.
            seen = await self._look(run, job, call)
        if seen.view.state is wire.CallState.WAITING:
            raise Refused(f"call {call!r} of job {job!r} is not staged yet, so it cannot have ended well", code="not_staged", subject=job)
        if seen.view.state is wire.CallState.STAGED:
            self.scheduler.executor.engine.called.tell(seen.attempt, FINISHED)
        return await self._until(run, job, call, wait_s, (wire.CallState.WAITING, wire.CallState.STAGED, wire.CallState.PUBLISHING))

    async def fail(self, run: str, job: str, call: str, message: str) -> wire.CallView:
        """It came to nothing, whether it was staged or not. What is over already stays as it is."""

        def take(told: Callable[[], None]) -> None:
            self._job(run, job)
            self._put(ev.CallFailed(at=0.0, cause="engine", run=run, job=job, call=call, message=message), told)

        await self._taken(take)
        return (await self._look(run, job, call)).view

    async def end_run(self, run: str, outcome: ev.EngineOutcome, message: str = "") -> None:
        """The engine calls no more jobs of this run. Said again it changes nothing."""

        def take(told: Callable[[], None]) -> None:
            entry = self._run(run)
            if entry.engine_outcome is outcome:
                told()
                return
            if entry.state not in (RunState.ACTIVE, RunState.DRAINING):
                raise Refused(f"run {run} is {state_of_run(entry)} already", code="run_over", subject=run)
            self._put(ev.EngineRunEnded(at=0.0, cause="engine", run=run, outcome=outcome, message=message), told)

        await self._taken(take)

    async def where(self, run: str, lfn: str) -> wire.FileWhere:
        return await self.scheduler.ask(lambda: self._where(run, lfn))

    async def open_calls(self, run: str, after: tuple[float | str, ...] = (), most: int | None = None) -> list[wire.OpenCall]:
        """Calls that are not over, the oldest first, `most` of those that come `after` (since, job)."""
        seen = await self.scheduler.ask(lambda: self._open(run, after, most))
        return [each.model_copy(update={"state": self._stage_of(attempt, each.state)}) for each, attempt in seen]

    # On the driving thread

    def _run(self, run: str) -> RunEntry:
        entry = self.scheduler.run_service.known(run)
        if not entry.is_engines:
            raise InvalidInput(f"the jobs of run {run} are run by stager itself, not by an engine", code="not_an_engines_run", subject=run)
        return entry

    def _job(self, run: str, job: str) -> tuple[RunEntry, JobEntry]:
        entry = self._run(run)
        if job not in entry.jobs:
            raise InvalidInput(f"run {run} has no job {job!r}", code="not_found", subject=job)
        return entry, entry.jobs[job]

    def _see(self, run: str, job: str, call: str) -> Seen:
        entry, known = self._job(run, job)
        facts: dict[str, Any] = {"run": run, "job": job, "call": call}
        if call != known.call:
            if call not in known.calls_before:
                raise InvalidInput(f"job {job!r} of run {run} was never called as {call!r}", code="not_found", subject=call)
            fault = Refused(f"call {known.call!r} took the place of {call!r}", code="call_replaced", subject=job).fault()
            return Seen(wire.CallView(state=wire.CallState.REFUSED, fault=wire.ErrorBody.of(fault), **facts))
        if not known.call_open:
            if known.state is JobState.DONE or known.fault is None:
                return Seen(wire.CallView(state=wire.CallState.DONE, **facts))
            return Seen(wire.CallView(state=wire.CallState.REFUSED, fault=wire.ErrorBody.of(known.fault), **facts))
        attempt = self.scheduler.machine.state.attempts.get(known.attempt)
        under_way = attempt is not None and attempt.call == call and not attempt.void
        return Seen(wire.CallView(state=wire.CallState.WAITING, node=known.node, **facts), known.attempt if under_way else "")

    def _open(self, run: str, after: tuple[float | str, ...], most: int | None) -> list[tuple[wire.OpenCall, str]]:
        """With the attempt under way for it."""
        if self.scheduler.run_service.is_folded(run):
            return []
        open_jobs = sorted((job.called_at, job.id) for job in self._run(run).jobs.values() if job.call_open)
        found, now = [], self.scheduler.clock()
        for since, job in [place for place in open_jobs if not after or place > after][:most]:
            seen = self._see(run, job, self._run(run).jobs[job].call)
            open_s = max(0.0, now - since)
            found.append((wire.OpenCall(job=job, call=seen.view.call, state=seen.view.state, since=since, open_s=open_s), seen.attempt))
        return found

    def _where(self, run: str, lfn: str) -> wire.FileWhere:
        entry, state = self.scheduler.run_service.known(run), self.scheduler.machine.state
        if lfn not in entry.file_ids:
            raise InvalidInput(f"run {run} has no file {lfn!r}", code="not_found", subject=lfn)
        file, declared = state.file_of(run, lfn), entry.workflow.files[lfn]
        places = [source.location for source in declared.sources]
        places += [declared.destination.location] if declared.destination is not None else []
        return wire.FileWhere(
            run=run,
            lfn=lfn,
            standing="external" if file.is_external else entry_of(state, entry, file, 1).standing.value,
            nodes=sorted(node for node, copy in file.copies.items() if copy.state is CopyState.PRESENT),
            places=[wire.Place(origin=place.origin, path=place.path) for place in places],
            size_bytes=file.size_bytes if file.is_external or file.blake3 else None,
        )

    def _put(self, event: Any, told: Callable[[], None]) -> None:
        self.scheduler.inbox.put(event, told)

    # On the loop's thread

    async def _taken(self, take: Callable[[Callable[[], None]], None]) -> None:
        await self.scheduler.ready.wait()
        await done(self.scheduler, take)

    def _stage_of(self, attempt: str, else_: wire.CallState) -> wire.CallState:
        staged = self.scheduler.executor.engine.called.look(attempt) if attempt in self.scheduler.outstanding.attempts else None
        if staged is None:
            return else_
        return wire.CallState.PUBLISHING if staged.told else wire.CallState.STAGED

    async def _look(self, run: str, job: str, call: str) -> Seen:
        seen = await self.scheduler.ask(lambda: self._see(run, job, call))
        # Until the Machine knows of its end, which is later than the executor does.
        start = self.scheduler.outstanding.attempts.get(seen.attempt)
        staged = self.scheduler.executor.engine.called.look(seen.attempt) if start is not None else None
        return seen if staged is None or start is None else Seen(self._with_paths(seen.view, start, staged), seen.attempt)

    def _with_paths(self, view: wire.CallView, start: cmd.StartAttempt, staged: Staged) -> wire.CallView:
        job = self.scheduler.outstanding.workflows[start.run].jobs[start.job]
        inputs = []
        for entry in start.inputs:
            held = entry.access is Access.HELD
            path = "" if held else f"{staged.directory}/{entry.path}"
            inputs.append(wire.CalledFile(lfn=entry.lfn, path=path, file=entry.file, generation=entry.generation))
        outputs = [wire.CalledFile(lfn=entry.lfn, path=f"{staged.directory}/{entry.path}") for entry in job.outputs]
        state = wire.CallState.PUBLISHING if staged.told else wire.CallState.STAGED
        return view.model_copy(update={"state": state, "directory": staged.directory, "inputs": inputs, "outputs": outputs})

    async def _until(self, run: str, job: str, call: str, wait_s: float, unlike: tuple[wire.CallState, ...]) -> wire.CallView:
        end = time.monotonic() + min(max(0.0, wait_s), WAIT_S_MAX)
        self.waiting += 1
        try:
            while True:
                since = self.scheduler.changed
                view = (await self._look(run, job, call)).view
                left_s = end - time.monotonic()
                if view.state not in unlike or left_s <= 0:
                    return view
                if self.scheduler.ended.is_set():
                    raise Transient("the scheduler is ending; ask again in a moment", code="draining", subject=run)
                # So that many who wait ask together no more often than few.
                again_s = min(LOOK_AGAIN_MAX_S, LOOK_AGAIN_S * max(1.0, self.waiting / WAITING_FEW))
                await asyncio.sleep(min(again_s, left_s))
                await self.scheduler.happening(since, max(0.0, end - time.monotonic()))
        finally:
            self.waiting -= 1


def goes_on(entry: RunEntry) -> bool:
    """A task of it is cleared, after it had ended."""
    return entry.state is RunState.FINISHED and entry.outcome in GOES_ON


def state_of_run(entry: RunEntry) -> str:
    return entry.outcome.value if entry.state is RunState.FINISHED and entry.outcome is not None else entry.state.value
