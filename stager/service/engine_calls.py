"""Calls of an engine: how they stand in the Machine's state, and what the executor has staged for them.

May know: the Machine's state (read only), what is outstanding, the attempts' directories. One rule: it reads; all that it
changes is to tell an attempt that its task has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stager import wire
from stager.model.errors import InvalidInput, Refused
from stager.planning.plan import Access
from stager.runtime.outstanding import Outstanding
from stager.scheduler import commands as cmd
from stager.scheduler.ledger import entry_of
from stager.scheduler.state import JobEntry, RunEntry
from stager.scheduler.states import CopyState, JobState
from stager.service.known_runs import KnownRuns
from stager.worker import Called, Staged
from stager.worker.called import FINISHED


@dataclass(frozen=True, slots=True)
class Seen:
    """A call in the Machine's state, and the attempt under way for it."""

    view: wire.CallView
    attempt: str = ""


class CallStates:
    """On the driving thread."""

    def __init__(self, runs: KnownRuns, clock: Callable[[], float]) -> None:
        self.runs, self.clock = runs, clock

    def run(self, run: str) -> RunEntry:
        entry = self.runs.known(run)
        if not entry.is_engines:
            raise InvalidInput(f"the jobs of run {run} are run by stager itself, not by an engine", code="not_an_engines_run", subject=run)
        return entry

    def job(self, run: str, job: str) -> tuple[RunEntry, JobEntry]:
        entry = self.run(run)
        if job not in entry.jobs:
            raise InvalidInput(f"run {run} has no job {job!r}", code="not_found", subject=job)
        return entry, entry.jobs[job]

    def see(self, run: str, job: str, call: str) -> Seen:
        entry, known = self.job(run, job)
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
        attempt = self.runs.state.attempts.get(known.attempt)
        under_way = attempt is not None and attempt.call == call and not attempt.void
        return Seen(wire.CallView(state=wire.CallState.WAITING, node=known.node, **facts), known.attempt if under_way else "")

    def open(self, run: str, after: tuple[float | str, ...], most: int | None) -> list[tuple[wire.OpenCall, str]]:
        """With the attempt under way for it."""
        if self.runs.is_folded(run):
            return []
        open_jobs = sorted((job.called_at, job.id) for job in self.run(run).jobs.values() if job.call_open)
        found, now = [], self.clock()
        for since, job in [place for place in open_jobs if not after or place > after][:most]:
            seen = self.see(run, job, self.run(run).jobs[job].call)
            open_s = max(0.0, now - since)
            found.append((wire.OpenCall(job=job, call=seen.view.call, state=seen.view.state, since=since, open_s=open_s), seen.attempt))
        return found

    def where(self, run: str, lfn: str) -> wire.FileWhere:
        entry, state = self.runs.known(run), self.runs.state
        if lfn not in entry.file_ids:
            raise InvalidInput(f"run {run} has no file {lfn!r}", code="not_found", subject=lfn)
        file, declared = state.file_of(run, lfn), entry.workflow.files[lfn]
        places = [source.location for source in declared.sources]
        places += [declared.destination.location] if declared.destination is not None else []
        return wire.FileWhere(
            run=run,
            lfn=lfn,
            standing="external" if file.is_external else entry_of(state, entry, lfn).standing.value,
            nodes=sorted(node for node, copy in file.copies.items() if copy.state is CopyState.PRESENT),
            places=[wire.Place(origin=place.origin, path=place.path) for place in places],
            size_bytes=file.size_bytes if file.is_external or file.blake3 else None,
        )


class StagedCalls:
    """On the event loop's thread."""

    def __init__(self, outstanding: Outstanding, called: Called) -> None:
        self.outstanding, self.called = outstanding, called

    def finished(self, attempt: str) -> None:
        """Its task ended well, which is on disk when this returns."""
        self.called.tell(attempt, FINISHED)

    def stage_of(self, attempt: str, else_: wire.CallState) -> wire.CallState:
        staged = self.called.read(attempt) if attempt in self.outstanding.attempts else None
        if staged is None:
            return else_
        return wire.CallState.PUBLISHING if staged.told else wire.CallState.STAGED

    def seen(self, seen: Seen) -> Seen:
        """With what is staged for it, until the Machine knows of its end, which is later than the executor does."""
        start = self.outstanding.attempts.get(seen.attempt)
        staged = self.called.read(seen.attempt) if start is not None else None
        return seen if staged is None or start is None else Seen(self._with_paths(seen.view, start, staged), seen.attempt)

    def _with_paths(self, view: wire.CallView, start: cmd.StartAttempt, staged: Staged) -> wire.CallView:
        job = self.outstanding.workflows[start.run].jobs[start.job]
        inputs = []
        for entry in start.inputs:
            held = entry.access is Access.HELD
            path = "" if held else f"{staged.directory}/{entry.path}"
            inputs.append(wire.CalledFile(lfn=entry.lfn, path=path, file=entry.file, generation=entry.generation))
        outputs = [wire.CalledFile(lfn=entry.lfn, path=f"{staged.directory}/{entry.path}") for entry in job.outputs]
        state = wire.CallState.PUBLISHING if staged.told else wire.CallState.STAGED
        return view.model_copy(update={"state": state, "directory": staged.directory, "inputs": inputs, "outputs": outputs})
