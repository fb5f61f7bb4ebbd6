"""What may be asked of a scheduler about its runs, for whichever API asks: status, summary, ledger, jobs, logs, steps, how it ended.

May know: the scheduler, views, wire. One rule: asking changes nothing; an answer is of one moment between two batches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from stager import wire
from stager.adapters.run_records import RunRecord
from stager.model.errors import InvalidInput, Refused
from stager.scheduler.commands import RunOutcome
from stager.scheduler.ledger import ledger_of
from stager.scheduler.state import RunEntry
from stager.scheduler.states import RunState
from stager.service.app import Scheduler
from stager.service.rates import under_way
from stager.service.timeline import Step, timeline
from stager.service.views import (
    is_durable,
    job_view,
    ledger_entry,
    line_info,
    losses,
    problems_of,
    run_info,
    run_status,
    run_sums,
    state_of,
    transfers_of,
)
from stager.service.waiting import waiting_of
from stager.worker.place import safe_name

EVENTS_A_PAGE = 1000
TAIL_BYTES_MAX = 16 << 20
STREAMS = {"out": "stdout", "err": "stderr"}
# Between two looks of one waiter, however much happens.
LOOK_AGAIN_S = 0.05
WAIT_S_MAX = 60.0


def run_infos(scheduler: Scheduler, records: Iterable[RunRecord], *, in_lines: bool) -> list[wire.RunInfo]:
    """On the driving thread. `in_lines`: each record is the first of what is told in one line with it."""
    known, now = scheduler.machine.state.runs, scheduler.clock()
    return [
        line_info(record, scheduler.records.line(record.tenant, record.part_of), known, now)
        if in_lines and record.part_of
        else run_info(record, known.get(record.run), now)
        for record in records
    ]


async def status_of(scheduler: Scheduler, run: str) -> wire.RunStatus:
    telemetry, nodes, troubles = await scheduler.node_view.telemetry(), await scheduler.node_view.nodes(), scheduler.node_view.troubles(run)
    # A node asks the origin before it counts what an earlier try left.
    moving = {transfer for transfer, said in telemetry.items() if said.state == "running" and said.bytes_done}

    def look() -> wire.RunStatus:
        if scheduler.run_service.is_folded(run):
            return scheduler.run_service.archive.status(run)
        entry, state = scheduler.run_service.known(run), scheduler.machine.state
        record = scheduler.records.get(run)
        assert record is not None
        mine = [transfer for transfer in state.transfers.values() if transfer.run == run]
        fetching = under_way(telemetry, (transfer.id for transfer in mine if transfer.is_fetch))
        uploading = under_way(telemetry, (transfer.id for transfer in mine if not transfer.is_fetch))
        moved = scheduler.rates.look(run, entry.fetched_bytes + fetching, entry.uploaded_bytes + uploading)
        sums = run_sums(state, entry) if entry.state is RunState.FINISHED else scheduler.totals.of(run, lambda: run_sums(state, entry))
        now = scheduler.clock()
        problems, waiting = problems_of(state, entry, troubles), waiting_of(state, entry, now, moving)
        return run_status(state, entry, run_info(record, entry, now), sums, moved, telemetry, problems, nodes, waiting)

    return await scheduler.ask(look)


async def summary_of(scheduler: Scheduler, run: str) -> wire.RunSummary:
    record = await scheduler.ask(lambda: scheduler.records.get(run))
    if record is None:
        raise InvalidInput(f"there is no run {run!r}; `stager runs` lists them", code="not_found", subject=run)
    if record.summary is None or record.finished_at is None:
        raise Refused(f"run {run} has not finished yet", code="run_active", subject=run)
    return wire.RunSummary.model_validate_json(record.summary)


async def losses_of(scheduler: Scheduler, run: str) -> wire.Losses:
    return await scheduler.ask(lambda: losses(scheduler.machine.state, scheduler.run_service.known(run)))


async def ledger_entries(scheduler: Scheduler, run: str, lfn: str | None = None) -> list[wire.LedgerEntry]:
    def look() -> list[wire.LedgerEntry]:
        if scheduler.run_service.is_folded(run):
            return scheduler.run_service.archive.ledger(run, lfn)
        entry = scheduler.run_service.known(run)
        files = [ledger_entry(entry.workflow, each) for each in ledger_of(scheduler.machine.state, run) if lfn in (None, each.lfn)]
        if lfn is not None and not files:
            raise InvalidInput(f"run {run} makes no file {lfn!r}", code="not_found", subject=lfn)
        return files

    return await scheduler.ask(look)


@dataclass(frozen=True, slots=True)
class JobChoice:
    """Which jobs of a run: all that are not excluded. `text`: in the name or the type, whatever its case."""

    state: str | None = None
    job_type: str | None = None
    job: str | None = None
    text: str = ""

    def of(self, entry: RunEntry) -> list[str]:
        """In the order of the workflow."""
        jobs, text = entry.workflow.jobs, self.text.casefold()
        named: Iterable[str] = ([self.job] if self.job in jobs else []) if self.job is not None else jobs
        of_type = (job for job in named if self.job_type in (None, jobs[job].job_type))
        found = (job for job in of_type if not text or text in job.casefold() or text in jobs[job].job_type.casefold())
        return [job for job in found if self.state in (None, entry.jobs[job].state.value)]


async def job_views(scheduler: Scheduler, run: str, start: int, limit: int, choice: JobChoice) -> tuple[list[wire.JobView], int]:
    """(from `start` on, how many there are in all)"""

    def look() -> tuple[list[wire.JobView], int]:
        entry = scheduler.run_service.known(run)
        chosen, now, kept = choice.of(entry), scheduler.clock(), scheduler.kept_sandboxes.kept
        return [job_view(entry, job, scheduler.counters, (run, job) in kept, now) for job in chosen[start : start + limit]], len(chosen)

    return await scheduler.ask(look)


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which of what a job printed. `attempt` and `stream` empty: each. `after`: the first so many bytes are known; None: the end."""

    tail_bytes: int
    attempt: str = ""
    stream: str = ""
    after: int | None = None


async def logs_of(scheduler: Scheduler, run: str, job: str, choice: LogChoice) -> wire.JobLogs:
    folded = await scheduler.ask(lambda: scheduler.run_service.is_folded(run))
    entry = None if folded else await scheduler.ask(lambda: scheduler.run_service.known(run))
    if entry is not None and job not in entry.workflow.jobs:
        raise InvalidInput(f"run {run} has no job {job!r}; `stager jobs {run}` lists them", code="not_found", subject=job)
    found = await asyncio.to_thread(read_logs, scheduler.state_dir.logs / safe_name(run), job, choice)
    return wire.JobLogs(run=run, job=job, logs=found)


def read_logs(directory: Path, job: str, choice: LogChoice) -> list[wire.AttemptLog]:
    """In the order of the attempts, stdout before stderr."""
    name = safe_name(job)
    found = []
    for path in directory.glob("*"):
        stem, _, ending = path.name.rpartition(".")
        start, _, number = stem.rpartition(".")
        stream = STREAMS.get(ending, "")
        if start == name and number.isdecimal() and stream and choice.attempt in ("", number) and choice.stream in ("", stream):
            found.append((int(number), stream == "stderr", path))
    return [read_log(path, number, is_err, choice) for number, is_err, path in sorted(found)]


def read_log(path: Path, number: int, is_err: bool, choice: LogChoice) -> wire.AttemptLog:
    size_bytes, most = path.stat().st_size, min(max(0, choice.tail_bytes), TAIL_BYTES_MAX)
    start = max(0, size_bytes - most) if choice.after is None else min(choice.after, size_bytes)
    with path.open("rb") as stream:
        stream.seek(start)
        read = stream.read(most)
    if choice.after is not None:
        read = whole_letters(read)
    return wire.AttemptLog(
        attempt=str(number),
        stream="stderr" if is_err else "stdout",
        path=str(path),
        size_bytes=size_bytes,
        text=read.decode(errors="replace"),
        next_byte=start + len(read),
    )


def whole_letters(read: bytes) -> bytes:
    """Without the beginning of a letter whose other bytes are yet to come."""
    for back in range(1, min(4, len(read) + 1)):
        last = read[-back]
        if last >= 0xC0:
            return read[:-back] if back < 2 + (last >= 0xE0) + (last >= 0xF0) else read
        if last < 0x80:
            break
    return read


async def explained(
    scheduler: Scheduler, run: str, lfn: str | None, job: str | None, is_seen: Callable[[str], bool] = lambda run: True
) -> wire.Explanation:
    """The journal is read whole, one reader at a time."""
    if (lfn is None) == (job is None):
        raise InvalidInput("the timeline is that of one thing; name a file (lfn) or a job", code="bad_parameter", subject="lfn")
    entry = await scheduler.ask(lambda: scheduler.run_service.known(run))
    if (lfn or "") not in entry.file_ids and (job or "") not in entry.jobs:
        raise InvalidInput(f"run {run} has no {f'file {lfn!r}' if lfn else f'job {job!r}'}", code="not_found", subject=lfn or job or "")
    file_id = entry.file_ids[lfn] if lfn else ""
    async with scheduler.reading:
        lines = await asyncio.to_thread(lambda: list(timeline(scheduler.journal.read_beside(), run, file_id, job or "", is_seen)))
    return wire.Explanation(subject=lfn or job or "", lines=lines)


async def steps_after(scheduler: Scheduler, run: str, after: int, wait_s: float) -> tuple[list[Step], bool, int]:
    """(steps, whether some between were dropped, the number that comes next); waits for the next where there is none yet."""
    end = time.monotonic() + wait_s
    while True:
        since = scheduler.changed
        steps, gap, next_seq = await scheduler.ask(lambda: steps_since(scheduler, run, after))
        if steps or time.monotonic() >= end or scheduler.ended.is_set():
            return steps, gap, next_seq
        await asyncio.sleep(LOOK_AGAIN_S)
        await scheduler.happening(since, max(0.0, end - time.monotonic()))


def steps_since(scheduler: Scheduler, run: str, after: int) -> tuple[list[Step], bool, int]:
    scheduler.run_service.known(run)
    steps, gap = scheduler.counters.since(run, after, EVENTS_A_PAGE)
    return steps, gap, steps[-1].seq + 1 if steps else max(after + 1, 1)


async def ended_or(scheduler: Scheduler, run: str, lfn: str | None, timeout_s: float) -> wire.WaitResponse:
    """Once the run has finished, or that file is durable, or the time is over."""
    end = time.monotonic() + min(max(0.0, timeout_s), WAIT_S_MAX)
    while True:
        since = scheduler.changed
        answer = await scheduler.ask(lambda: looked(scheduler, run, lfn))
        left_s = end - time.monotonic()
        if answer.finished or answer.durable or left_s <= 0 or scheduler.ended.is_set():
            return answer
        await asyncio.sleep(min(LOOK_AGAIN_S, left_s))
        await scheduler.happening(since, max(0.0, end - time.monotonic()))


def looked(scheduler: Scheduler, run: str, lfn: str | None) -> wire.WaitResponse:
    if scheduler.run_service.is_folded(run):
        return scheduler.run_service.archive.wait(run, lfn)
    entry = scheduler.run_service.known(run)
    durable, superseded = None, None
    if lfn is not None:
        file = entry.workflow.files.get(lfn)
        if file is None or file.destination is None:
            raise InvalidInput(
                f"{lfn!r} is no final of run {run}; `stager ledger {run}` lists what it makes", code="not_final", subject=lfn
            )
        durable = is_durable(scheduler.machine.state.files[entry.file_ids[lfn]])
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


async def transfers_of_run(scheduler: Scheduler, run: str) -> list[wire.TransferView]:
    telemetry = await scheduler.node_view.telemetry()

    def look() -> list[wire.TransferView]:
        if scheduler.run_service.is_folded(run):
            return []
        return transfers_of(scheduler.machine.state, scheduler.run_service.known(run), telemetry)

    return await scheduler.ask(look)
