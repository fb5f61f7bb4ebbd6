"""The timeline in words: progress events for those who follow a run, and the timeline of one file or job.

May know: events, commands, the journal. One rule: it only retells what is recorded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from stager import wire
from stager.model.ids import produced_file_id
from stager.model.scatter import entry_name
from stager.model.units import counted, format_duration, format_size
from stager.ports import Batch
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev

LINES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """One event or command of a run, in words: what it was made of need not be kept."""

    seq: int
    run: str
    at: float
    kind: str
    subject: str
    text: str
    transfer: str = ""
    outcome: str = ""
    duration_s: float | None = None


def step_of(seq: int, run: str, value: Any) -> Step:
    about = (getattr(value, "transfer", ""), outcome_of(value), getattr(value, "duration_s", None))
    return Step(seq, run, value.at, kind_of(type(value).__name__), subject_of(value), text_of(value), *about)


def outcome_of(value: Any) -> str:
    return value.outcome.value if type(value) in (ev.AttemptEnded, cmd.FinishRun) else ""


@cache
def kind_of(name: str) -> str:
    """`TransferDone` -> `transfer_done`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def subject_of(value: Any) -> str:
    return getattr(value, "lfn", "") or getattr(value, "job", "") or getattr(value, "file", "") or getattr(value, "transfer", "")


def progress_event(step: Step) -> wire.ProgressEvent:
    return wire.ProgressEvent(**asdict(step))


def text_of(value: Any) -> str:
    teller = TELL.get(type(value))
    return teller(value) if teller is not None else kind_of(type(value).__name__).replace("_", " ")


def done_text(event: ev.TransferDone) -> str:
    how = f", verified by {event.verified}" if event.verified else ""
    return f"transfer {event.transfer} done: {format_size(event.size_bytes)} in {format_duration(event.duration_s)}{how}"


def ended_text(event: ev.AttemptEnded) -> str:
    made = f", made {', '.join(made.lfn for made in event.outputs[:5])}" if event.outputs else ""
    took = f" after {format_duration(event.measures.wall_s)}" if event.measures.wall_s is not None else ""
    why = f": {event.fault.message}" if event.fault is not None else ""
    dropped = f"; dropped undeclared {', '.join(event.undeclared[:5])}" if event.undeclared else ""
    noted = "".join(f"; {note}" for note in event.notes)
    return f"attempt {event.attempt} of job {event.job} ended {event.outcome.value}{took}{made}{why}{dropped}{noted}"


def fetch_text(fetch: cmd.Fetch) -> str:
    part = "" if fetch.stripe is None else f"part {fetch.stripe.index + 1} of {fetch.stripe.count} of "
    tried = f"{fetch.purpose.value}, try {fetch.attempt_number}"
    return f"fetch {fetch.transfer} of {part}{fetch.lfn} from {fetch.origin}:{fetch.path} to {fetch.node} ({tried})"


def submitted_text(event: ev.RunSubmitted) -> str:
    reused = f", {len(event.reused)} of them reused" if event.reused else ""
    linked = sum(output.kept != "" for each in event.reused for output in each.outputs)
    reused += f" ({linked} of their files kept on nodes)" if linked else ""
    return f"submitted: {counted(len(event.workflow.jobs), 'job')}{reused}, {counted(len(event.workflow.files), 'file')}"


def scattered_text(event: ev.RunScattered) -> str:
    names = {event.scatter, *event.also}
    rows = {each.name: len(each.rows or ()) for each in event.workflow.scatters if each.name in names} if event.workflow is not None else {}
    told = []
    for entry in dict.fromkeys(map(entry_name, (event.scatter, *event.also))):
        own = [count for name, count in rows.items() if entry_name(name) == entry] or [event.members]
        told.append(f"job {entry} scatters over {counted(sum(own), 'member')}" + (f" of {len(own)} lists" if len(own) > 1 else ""))
    return "; ".join(told) + (f", and cannot: {event.fault.message}" if event.fault is not None else "")


TELL: dict[type, Callable[[Any], str]] = {
    ev.RunSubmitted: submitted_text,
    ev.RunResumed: lambda e: "; ".join(("resumed", *e.notes)),
    ev.RunScattered: scattered_text,
    ev.RunDrained: lambda e: "draining was asked for",
    ev.RunStopped: lambda e: "stopping was asked for",
    ev.RunCancelled: lambda e: "cancelling was asked for",
    ev.JobCalled: lambda e: f"job {e.job} is called: {e.call} ({e.stage.value})",
    ev.CallFailed: lambda e: f"call {e.call} of job {e.job} failed: {e.message}",
    ev.EngineRunEnded: lambda e: f"the engine ended its run: {e.outcome.value}" + (f", {e.message}" if e.message else ""),
    ev.TransferDone: done_text,
    ev.TransferFailed: lambda e: f"transfer {e.transfer} failed: {e.fault.message}",
    ev.TransferCancelled: lambda e: f"transfer {e.transfer} was called off",
    ev.ReplicaDeleted: lambda e: f"its replica {e.generation} on {e.node} is gone",
    ev.ReplicaBusy: lambda e: f"its replica {e.generation} on {e.node} is still open, deleted later",
    ev.ReplicaCorrupt: lambda e: f"its replica {e.generation} on {e.node} is damaged: {e.fault.message}",
    ev.AttemptWaits: lambda e: f"attempt {e.attempt} waits for {format_size(e.needed_bytes)} of space for its outputs",
    ev.AttemptEnded: ended_text,
    cmd.Fetch: fetch_text,
    cmd.AssembleStripes: lambda c: (
        f"assemble {c.transfer} of {c.lfn} on {c.node} from its parts on {', '.join(part.node for part in c.parts)} ({c.purpose.value})"
    ),
    cmd.GiveUpStripes: lambda c: f"its stripes are given up, it is fetched whole: {c.why}",
    cmd.CopyReplica: lambda c: f"copy {c.transfer} of {c.lfn} from {c.source} to {c.node} ({c.purpose.value}, try {c.attempt_number})",
    cmd.Reprioritize: lambda c: f"transfer {c.transfer} is reprioritized: a job waits for it",
    cmd.Upload: lambda c: (
        f"upload {c.transfer} of {c.lfn} to {c.origin}:{c.path} ({c.purpose.value}, try {c.attempt_number})"
        + (" from what another run made" if c.reads else "")
    ),
    cmd.CancelTransfer: lambda c: f"transfer {c.transfer} is called off",
    cmd.RetryTransferAt: lambda c: f"its {'upload' if c.upload else 'fetch'} is tried again in {format_duration(c.not_before - c.at)}",
    cmd.GiveUpTransfer: lambda c: f"its {'upload' if c.upload else 'fetch'} is given up: {c.fault.message}",
    cmd.DeleteReplica: lambda c: f"its replica {c.generation} on {c.node} is to be deleted: {c.why}",
    cmd.EraseSpill: lambda c: f"its spilled copy at {c.origin}:{c.path} is to be erased",
    cmd.AdmitJob: lambda c: f"job {c.job} is admitted on {c.node} with {format_size(c.reserve_bytes)} for its outputs",
    cmd.StartAttempt: lambda c: f"attempt {c.attempt} of job {c.job} starts on {c.host or c.node} (try {c.number})",
    cmd.GrantSpace: lambda c: f"attempt {c.attempt} is granted {format_size(c.reserve_bytes)}",
    cmd.KillAttempt: lambda c: f"attempt {c.attempt} of job {c.job} is ended",
    cmd.RequeueJob: lambda c: f"job {c.job} goes back to waiting: {c.why}",
    cmd.RehomeJob: lambda c: f"job {c.job} is to run on {c.node}: {c.why}",
    cmd.FailJob: lambda c: f"job {c.job} has failed: {c.fault.message}",
    cmd.EndCall: lambda c: f"call {c.call} of job {c.job} is over: {c.fault.message}",
    cmd.RemakeFile: lambda c: f"its only copy is gone: job {c.job} runs again",
    cmd.AwaitJob: lambda c: f"job {c.job} waits for what job {c.other_job} of run {c.other_run} makes, which is the same",
    cmd.StopAwaiting: lambda c: f"job {c.job} runs itself after all: {c.why}",
    cmd.TakeOver: lambda c: f"job {c.job} is done: run {c.made_by} made the same, which is taken over",
    cmd.FallBackToFetch: lambda c: f"{c.lfn} is fetched after all, and not read directly: {c.why}",
    cmd.PauseOrigin: lambda c: f"origin {c.origin} is left alone until the run is resumed: {c.fault.message}",
    cmd.PauseRun: lambda c: c.fault.message,
    cmd.TellForecast: lambda c: c.text,
    cmd.FinishRun: lambda c: f"the run is {c.outcome.value}" + (f": {c.fault.message}" if c.fault is not None else ""),
}


def timeline(
    batches: Iterable[Batch], run: str, file_id: str, job: str, is_seen: Callable[[str], bool] = lambda run: True
) -> Iterator[str]:
    """Each fact and decision about one file (by id) or one job of the run, from the journal. `is_seen`: which runs the reader may know;
    what happened to a shared file for another one is told without its names.
    """
    ids: set[str] = set()
    strange: set[str] = set()
    count = 0
    for batch in batches:
        steps: list[ev.Event | cmd.Command] = [*batch.events, *batch.commands]
        for value in steps:
            if not concerns(value, run, file_id, job, ids):
                continue
            if count == LINES_MAX:
                yield f"… more than {LINES_MAX} steps; the journal has the rest"
                return
            count += 1
            text = (
                text_of(value)
                if seen_of(value, is_seen, strange)
                else f"for a run of somebody else: {kind_of(type(value).__name__).replace('_', ' ')}"
            )
            yield f"{time.strftime('%H:%M:%S', time.localtime(value.at))}  {text}" + (f"  [{value.cause}]" if value.cause else "")


def seen_of(value: Any, is_seen: Callable[[str], bool], strange: set[str]) -> bool:
    """`strange` collects the transfers of others, since their events name no run."""
    run, transfer = getattr(value, "run", ""), getattr(value, "transfer", "")
    if run and not is_seen(run):
        strange.add(transfer)
        return False
    return not transfer or transfer not in strange


def makes(value: Any, file_id: str) -> bool:
    """What is taken over is of both runs."""
    if type(value) is cmd.TakeOver:
        return any(file_id in (made.kept, produced_file_id(value.run, made.lfn)) for made in value.outputs)
    return any(made.file == file_id for made in getattr(value, "outputs", ()))


def concerns(value: Any, run: str, file_id: str, job: str, ids: set[str]) -> bool:
    """`ids` collects transfers and attempts that belong to it, since their events name nothing else."""
    own = getattr(value, "transfer", "") or getattr(value, "attempt", "")
    if file_id:
        mine = getattr(value, "file", "") == file_id or makes(value, file_id)
    else:
        mended = type(value) is ev.RunResumed and bool(value.notes)
        mended = mended or (type(value) is ev.RunScattered and entry_name(job) in map(entry_name, (value.scatter, *value.also)))
        mine = (mended or getattr(value, "job", "") == job) and getattr(value, "run", "") == run
    if mine and own and not (file_id and type(value) is ev.AttemptEnded):
        ids.add(own)
    return mine or own in ids
