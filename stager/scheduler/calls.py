"""Calls of an engine that runs the jobs itself: when they are refused, when they end, and what that makes necessary.

May know: the state. One rule: the engine decides what runs when. A call is staged, refused by name, or waits for something that is sure to
come to an end; it is never the run that fails for it, and nothing is made again that only the engine can make.
"""

from __future__ import annotations

from stager.model.errors import ErrorClass, Fault, is_permanent
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.decision import Decision
from stager.scheduler.direct_access import has_begun
from stager.scheduler.state import AttemptEntry, FileEntry, JobEntry, RunEntry
from stager.scheduler.states import JobState, RunState

# Its maker may have told the engine that it ended before we have taken what it made.
PUBLISH_WAIT_S = 60.0


def refuse(decision: Decision, run: RunEntry, job: JobEntry, fault: Fault, reserve_bytes: int | None = None) -> None:
    """A job that cannot be started fails; of an engine it is only this call that is over."""
    if not run.is_engines:
        decision.emit(cmd.FailJob, run=run.id, job=job.id, fault=fault)
    elif job.call_open:
        decision.emit(cmd.EndCall, run=run.id, job=job.id, call=job.call, fault=fault, reserve_bytes=reserve_bytes)


def wait_or_refuse(decision: Decision, run: RunEntry, job: JobEntry, file: FileEntry) -> None:
    """An input that nobody has. Its maker may be about to publish it; else the engine has to run that again."""
    maker, until = run.jobs[file.producer], job.called_at + PUBLISH_WAIT_S
    if maker.call_open and decision.state.now < until:
        why = f"{file.lfn} is to be published by job {maker.id}, which is under way"
        decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=until, counts=False, why=why)
        return
    if maker.state is JobState.DONE:
        text = f"{file.lfn!r}, made by job {maker.id!r}, was lost with the disk that held it"
        fault = Fault(ErrorClass.REFUSED, "output_lost", f"{text}: clear that task, then this one", file.lfn)
    else:
        text = f"{file.lfn!r} is not there, for job {maker.id!r} has not published it"
        fault = Fault(ErrorClass.REFUSED, "not_published", f"{text}: clear that task, then this one", file.lfn)
    refuse(decision, run, job, fault)


def lost_final(decision: Decision, run: RunEntry, file: FileEntry) -> None:
    """Nobody can write it, and nobody waits for it, until its job is called again."""
    if file.id in run.finals_open:
        text = f"{file.lfn!r}, made by job {file.producer!r}, was lost before it was at its destination: clear that task"
        fault = Fault(ErrorClass.REFUSED, "output_lost", text, file.lfn)
        decision.emit(cmd.GiveUpTransfer, file=file.id, run=run.id, upload=True, fault=fault)


def job_called(decision: Decision, event: ev.JobCalled, _: None) -> None:
    """The attempt of a call that was lost gives way."""
    run = decision.state.runs.get(event.run)
    job = run.jobs.get(event.job) if run is not None else None
    attempt = decision.state.attempts.get(job.attempt) if job is not None else None
    if run is None or job is None or attempt is None or attempt.void or attempt.call == job.call:
        return
    decision.emit(cmd.KillAttempt, node=attempt.node, run=run.id, job=job.id, attempt=job.attempt, void=True)


def call_failed(decision: Decision, event: ev.CallFailed, _: None) -> None:
    run = decision.state.runs.get(event.run)
    job = run.jobs.get(event.job) if run is not None else None
    if run is None or job is None or not job.call_open or job.fault is None or event.call != job.call:
        return
    attempt = decision.state.attempts.get(job.attempt)
    if job.state is not JobState.RUNNING:
        refuse(decision, run, job, job.fault)
    elif attempt is not None and not attempt.void:
        decision.emit(cmd.KillAttempt, node=attempt.node, run=run.id, job=job.id, attempt=job.attempt, void=True)


def engine_run_ended(decision: Decision, event: ev.EngineRunEnded, _: None) -> None:
    """A call that is being published goes on; one that was only staged is let go."""
    run = decision.state.runs.get(event.run)
    if run is None or run.engine_outcome is None or run.state is RunState.FINISHED:
        return
    end_calls(decision, run)
    for attempt_id, attempt in list(decision.state.attempts.items()):
        if attempt.run == run.id and not attempt.killed:
            decision.emit(cmd.KillAttempt, node=attempt.node, run=run.id, job=attempt.job, attempt=attempt_id)


def end_calls(decision: Decision, run: RunEntry) -> None:
    """Of a run that takes no more: those whose jobs have not begun."""
    for job in run.jobs.values():
        if job.call_open and job.state is not JobState.RUNNING:
            refuse(decision, run, job, ending(run))


def ending(run: RunEntry) -> Fault:
    how = f"is {run.state.value}" if run.engine_outcome is None else "was ended by its engine"
    return Fault(ErrorClass.REFUSED, "run_ending", f"run {run.id} {how} and takes no more calls", run.id)


def attempt_ended(decision: Decision, event: ev.AttemptEnded, attempt: AttemptEntry) -> None:
    """Tries of its job are the engine's; ours are those of staging its inputs. Its outputs may have taken the place of something else."""
    state = decision.state
    run = state.runs[attempt.run]
    job = run.jobs[attempt.job]
    for transfer in list(state.transfers.values()):
        if transfer.old and not transfer.cancelled:
            decision.emit(cmd.CancelTransfer, node=transfer.node, transfer=transfer.id)
    if job.state is not JobState.RUNNING:
        return
    facts = {"run": run.id, "job": job.id}
    fault = event.fault or Fault(ErrorClass.TRANSIENT, event.outcome.value, f"call {attempt.call!r} ended as {event.outcome.value}", job.id)
    if job.fault is not None and attempt.call == job.call:
        refuse(decision, run, job, job.fault)
    elif attempt.call != job.call and job.fault is None and run.may_start:
        decision.emit(cmd.RequeueJob, not_before=state.now, counts=False, why="a newer call took the place of a lost one", **facts)
    elif may_be_staged_again(decision, run, job, attempt, event, fault):
        not_before = decision.retry_at(job.failures + 1, f"{run.id}/{job.id}")
        decision.emit(cmd.RequeueJob, not_before=not_before, counts=True, why=fault.message, **facts)
    else:
        known = attempt.needed_bytes if attempt.needed_bytes is not None and attempt.needed_bytes > job.reserve_bytes else None
        refuse(decision, run, job, why_over(run, attempt, event, fault), known)


def may_be_staged_again(
    decision: Decision, run: RunEntry, job: JobEntry, attempt: AttemptEntry, event: ev.AttemptEnded, fault: Fault
) -> bool:
    """The engine's task has not begun: it waits for its inputs, and only these are in question."""
    if has_begun(event) or attempt.killed or not run.may_start or is_permanent(fault):
        return False
    return job.failures < decision.state.policy.transfer_attempts_max


def why_over(run: RunEntry, attempt: AttemptEntry, event: ev.AttemptEnded, fault: Fault) -> Fault:
    if not run.may_start and event.outcome is ev.Outcome.KILLED:
        return ending(run)
    if attempt.needed_bytes is not None and attempt.killed:
        text = f"there is no room on node {attempt.node!r} for the {attempt.needed_bytes} bytes that job {attempt.job!r} made"
        return Fault(ErrorClass.REFUSED, "no_space_node", f"{text}: give it more capacity, then clear that task", attempt.job)
    if attempt.void:
        text = f"an input of job {attempt.job!r} was found damaged while it ran, and what it made is not taken: clear that task"
        return Fault(ErrorClass.CORRUPT, "input_damaged", text, attempt.job)
    if event.outcome is ev.Outcome.LOST:
        text = f"the staged inputs of call {attempt.call!r} of job {attempt.job!r} are gone: clear that task"
        return Fault(ErrorClass.TRANSIENT, "attempt_lost", text, attempt.job)
    return fault
