"""The answer to a transfer that failed: another try, another source, waiting for an origin that is away, or giving up.

May know: the state. One rule: an origin that answers gets a number of tries, one that cannot be reached gets time; nobody who could go on
stands behind those who wait.
"""

from __future__ import annotations

from stager.model.errors import AWAY_CODE, NEWER_CODE, UNKNOWN_CODE, ErrorClass, Fault, is_permanent, is_unreachable
from stager.model.units import format_duration
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.decision import Decision
from stager.scheduler.sources import give_up_fetch, is_long_away, must_wait, waits_for
from stager.scheduler.state import FileEntry, Retries, State, TransferEntry
from stager.scheduler.states import JobState, RunState


def transfer_failed(decision: Decision, event: ev.TransferFailed, transfer: TransferEntry | None) -> None:
    if transfer is None or transfer.cancelled or transfer.old or transfer.purpose in (cmd.Purpose.EXTRA_COPY, cmd.Purpose.MOVE):
        return
    file, fault = decision.state.files[transfer.file], event.fault
    if transfer.assembles:
        decision.emit(cmd.GiveUpStripes, file=file.id, run=transfer.run, transfer=transfer.id, why=fault.message)
    elif transfer.purpose is cmd.Purpose.RELAY:
        relay_failed(decision, file, transfer, fault)
    elif transfer.is_fetch:
        fetch_failed(decision, file, transfer, fault)
    elif fault.code == UNKNOWN_CODE:
        # Its copy was given up: it goes from another, or when it was made again.
        return
    elif transfer.purpose is cmd.Purpose.SPILL:
        spill_failed(decision, file, transfer, fault)
    else:
        upload_failed(decision, file, transfer, fault)


def fetch_failed(decision: Decision, file: FileEntry, transfer: TransferEntry, fault: Fault) -> None:
    """Here again, from the next source, or once more from the first of those that are only away; else the readers fail.

    If another run took the file over meanwhile, its tries go on.
    """
    if transfer.run != file.run:
        return
    state, retries = decision.state, file.fetch or Retries(failures=1)
    facts = {"file": file.id, "run": transfer.run, "upload": False}
    if transfer.source:
        spent = retries.copies_failed >= state.policy.transfer_attempts_max and not state.can_be_had(file)
        if spent:
            give_up_fetch(decision, file, transfer.run, "", fault)
        else:
            decision.emit(cmd.RetryTransferAt, not_before=decision.retry_at(retries.copies_failed, file.id), **facts)
        return
    left = sources_open(state, file, retries)
    after = next((number for number in left if number > file.source_at), None)
    others = [number for number in left if number != file.source_at]
    overdue = is_overdue(state, retries)
    if is_spent_here(state, file, retries, fault, bool(others)) or (overdue and is_unreachable(fault)):
        if after is not None:
            moved = {"next_source": True} if after == file.source_at + 1 else {"source_at": after}
            decision.emit(cmd.RetryTransferAt, not_before=state.now, **moved, **facts)
        elif others and not overdue and retries.away_since is not None:
            decision.emit(cmd.RetryTransferAt, not_before=next_retry_at(decision, file, retries), source_at=left[0], **facts)
        else:
            give_up_fetch(decision, file, transfer.run, transfer.origin, ending(state, transfer, retries, fault))
    else:
        decision.emit(cmd.RetryTransferAt, not_before=next_retry_at(decision, file, retries), **facts)
    if is_long_away(state, file):
        step_aside(decision, file, transfer.node)


def sources_open(state: State, file: FileEntry, retries: Retries) -> list[int]:
    """Numbers of the sources that may be asked: neither found hopeless nor at an origin that denies. A file that we wrote has but one."""
    if file.durable is not None or file.spilled is not None:
        return [file.source_at]
    return [
        number
        for number, source in enumerate(file.sources)
        if number not in retries.hopeless and state.paused(file.run, source.location.origin) is None
    ]


def is_spent_here(state: State, file: FileEntry, retries: Retries, fault: Fault, others: bool) -> bool:
    """Whether to ask elsewhere. An origin that is away is left only for another source: at first after some tries, later at once."""
    if is_unreachable(fault):
        return others and (retries.rounds > 0 or retries.outages_here >= state.policy.transfer_attempts_max)
    return is_permanent(fault) or retries.failures >= state.policy.transfer_attempts_max


def step_aside(decision: Decision, file: FileEntry, node: str) -> None:
    """Jobs that were admitted and wait for it give back what was set aside, until it is tried again: the room is for those that can run."""
    state, retries = decision.state, file.fetch
    for _, run_id, job_id in list(file.uses[file.use_at :]):
        job = state.job(run_id, job_id) if run_id in state.active and must_wait(state, file, run_id) else None
        if retries is not None and job is not None and job.state is JobState.ADMITTED and job.node == node:
            decision.emit(
                cmd.RequeueJob, run=run_id, job=job_id, not_before=retries.not_before, counts=False, why=waits_for(retries.origin)
            )


def upload_failed(decision: Decision, file: FileEntry, transfer: TransferEntry, fault: Fault) -> None:
    """A run that is to end soon does not wait for an origin that is away."""
    state, retries = decision.state, file.upload or Retries(failures=1)
    if fault.code == NEWER_CODE:
        decision.emit(
            cmd.GiveUpTransfer, file=file.id, run=transfer.run, upload=True, fault=superseded(transfer, fault), origin=transfer.origin
        )
        return
    draining = state.runs[transfer.run].state is not RunState.ACTIVE and retries.outages >= state.policy.transfer_attempts_max
    spent = is_permanent(fault) or retries.failures >= state.policy.transfer_attempts_max
    if spent or is_overdue(state, retries) or draining:
        decision.emit(
            cmd.GiveUpTransfer,
            file=file.id,
            run=transfer.run,
            upload=True,
            fault=ending(state, transfer, retries, fault),
            origin=transfer.origin,
        )
    else:
        decision.emit(cmd.RetryTransferAt, file=file.id, run=transfer.run, upload=True, not_before=next_retry_at(decision, file, retries))


def relay_failed(decision: Decision, file: FileEntry, transfer: TransferEntry, fault: Fault) -> None:
    """Its final is on the node that made it, and not where its place can be reached from."""
    if file.destination is None or fault.code == UNKNOWN_CODE:
        # Its copy was given up: it goes from another, or when it was made again.
        return
    state, tries, origin = decision.state, file.upload.copies_failed if file.upload is not None else 0, file.destination.location.origin
    facts = {"file": file.id, "run": transfer.run, "upload": True}
    if tries >= state.policy.transfer_attempts_max:
        decision.emit(cmd.GiveUpTransfer, fault=fault, origin=origin, **facts)
    else:
        decision.emit(cmd.RetryTransferAt, not_before=decision.retry_at(tries, file.id), **facts)


def superseded(transfer: TransferEntry, fault: Fault) -> Fault:
    message = (
        f"{fault.message.rstrip(':. ')}. The file of run {transfer.run} is older and was not written over it. It is kept on "
        f"{transfer.node} while there is room. To have it there all the same, run its job again"
    )
    return Fault(fault.error_class, fault.code, message, fault.subject)


def spill_failed(decision: Decision, file: FileEntry, transfer: TransferEntry, fault: Fault) -> None:
    """However long it takes: the run may have no other way. A try that cannot help is not made again until the run is resumed."""
    if is_permanent(fault):
        decision.emit(cmd.GiveUpTransfer, file=file.id, run=transfer.run, upload=True, fault=fault, origin=transfer.origin)
    else:
        not_before = next_retry_at(decision, file, file.upload or Retries(failures=1))
        decision.emit(cmd.RetryTransferAt, file=file.id, run=transfer.run, upload=True, not_before=not_before)


def not_again(job: str, fault: Fault) -> Fault:
    reason = f"job {job!r} is declared `idempotent: false`, so it is not run again by itself"
    message = f"{fault.message}; {reason}: look at what it did, then `stager resume`"
    return Fault(fault.error_class, fault.code, message, fault.subject)


def go_on_at_once(decision: Decision) -> None:
    """An origin that was away has given or taken something: what still pauses for it is tried now, and keeps no run from its end."""
    state = decision.state
    back, state.back = set(state.back), []
    for file_id, upload in list(state.retrying):
        file = state.files[file_id]
        retries = file.upload if upload else file.fetch
        if retries is None or retries.fault is not None or retries.not_before <= state.now or retries.transfer in state.transfers:
            continue
        if retries.away_since is None or state.origin_identity(file.run, retries.origin) not in back:
            continue
        paused_until = retries.not_before
        decision.emit(cmd.RetryTransferAt, file=file_id, run=file.run, upload=upload, not_before=state.now)
        if not upload:
            call_back(decision, file, paused_until, retries.origin)


def call_back(decision: Decision, file: FileEntry, paused_until: float, origin: str) -> None:
    """Jobs that stepped aside until it would be tried again."""
    state = decision.state
    for _, run_id, job_id in list(file.uses[file.use_at :]):
        job = state.job(run_id, job_id) if run_id in state.active else None
        if job is not None and job.state is JobState.BACKOFF and job.not_before == paused_until:
            decision.emit(cmd.RequeueJob, run=run_id, job=job_id, not_before=state.now, counts=False, why=f"origin {origin!r} is back")


def next_retry_at(decision: Decision, file: FileEntry, retries: Retries) -> float:
    return decision.retry_at(retries.failures + retries.outages, file.id)


def is_overdue(state: State, retries: Retries) -> bool:
    return retries.away_since is not None and state.now - retries.away_since >= state.policy.outage_s_max


def ending(state: State, transfer: TransferEntry, retries: Retries, fault: Fault) -> Fault:
    """Of waiting in vain; the same for all files of a run that waited for this origin, so that it is told once."""
    if not is_unreachable(fault):
        return fault
    long = f" for {format_duration(state.policy.outage_s_max)}" if is_overdue(state, retries) else ""
    message = (
        f"origin {transfer.origin!r} could not be reached{long} ({reason(fault)}); when it answers again: stager resume {transfer.run}"
    )
    return Fault(ErrorClass.TRANSIENT, AWAY_CODE, message, transfer.origin)


def reason(fault: Fault) -> str:
    """The node's word on the origin, without the advice; of its word on one file the kind alone."""
    if fault.code != "origin_unreachable":
        return fault.code.replace("_", " ")
    said = fault.message.partition(";")[0].rstrip(".")
    return said.partition(" cannot be reached (")[2].removesuffix(")") or said
