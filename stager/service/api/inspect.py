"""Looking at a run: status, summary, ledger, jobs, logs, progress, story. One rule: looking changes nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from fastapi import APIRouter, Response

from stager import wire
from stager.model.errors import InvalidInput, Refused
from stager.scheduler.ledger import ledger_of
from stager.scheduler.states import RunState
from stager.service.app import Scheduler
from stager.service.history import history_of
from stager.service.rates import under_way
from stager.service.story import Step, progress_event, story
from stager.service.views import job_view, ledger_entry, losses, problems_of, run_info, run_status, run_sums
from stager.service.waiting import waiting_of
from stager.worker.place import safe_name

EVENTS_A_PAGE = 1000
TAIL_BYTES_MAX = 16 << 20


def inspect_router(scheduler: Scheduler) -> APIRouter:
    router = APIRouter()

    @router.get("/runs/{run}")
    async def status(run: str) -> wire.RunStatus:
        telemetry, nodes, troubles = await scheduler.outlook.telemetry(), await scheduler.outlook.nodes(), scheduler.outlook.troubles(run)

        def look() -> wire.RunStatus:
            if scheduler.desk.is_folded(run):
                return scheduler.desk.archive.status(run)
            entry, state = scheduler.desk.known(run), scheduler.machine.state
            record = scheduler.records.get(run)
            assert record is not None
            mine = [transfer for transfer in state.transfers.values() if transfer.run == run]
            fetching = under_way(telemetry, (transfer.id for transfer in mine if transfer.is_fetch))
            uploading = under_way(telemetry, (transfer.id for transfer in mine if not transfer.is_fetch))
            moved = scheduler.rates.look(run, entry.fetched_bytes + fetching, entry.uploaded_bytes + uploading)
            sums = run_sums(state, entry) if entry.state is RunState.FINISHED else scheduler.totals.of(run, lambda: run_sums(state, entry))
            problems, waiting = problems_of(state, entry, troubles), waiting_of(state, entry, time.time())
            return run_status(state, entry, run_info(record, entry), sums, moved, telemetry, problems, nodes, waiting)

        return await scheduler.ask(look)

    @router.get("/runs/{run}/summary")
    async def summary(run: str) -> wire.RunSummary:
        record = await scheduler.ask(lambda: scheduler.records.get(run))
        if record is None:
            raise InvalidInput(f"there is no run {run!r}; `stager runs` lists them", code="not_found", subject=run)
        if record.summary is None or record.finished_at is None:
            raise Refused(f"run {run} has not finished yet", code="run_active", subject=run)
        return wire.RunSummary.model_validate_json(record.summary)

    add_values(router, scheduler)
    add_parts(router, scheduler)
    add_stories(router, scheduler)
    return router


def add_values(router: APIRouter, scheduler: Scheduler) -> None:
    @router.get("/runs/{run}/workflow")
    async def workflow(run: str) -> Response:
        value = await scheduler.ask(lambda: scheduler.desk.known(run).workflow)
        return Response(await asyncio.to_thread(wire.encode, value), media_type="application/json")

    @router.get("/runs/{run}/plan")
    async def plan(run: str) -> Response:
        value = await scheduler.ask(lambda: scheduler.desk.known(run).plan)
        return Response(await asyncio.to_thread(wire.encode, value), media_type="application/json")


def add_parts(router: APIRouter, scheduler: Scheduler) -> None:
    @router.get("/runs/{run}/losses")
    async def lost(run: str) -> wire.Losses:
        return await scheduler.ask(lambda: losses(scheduler.machine.state, scheduler.desk.known(run)))

    @router.get("/runs/{run}/ledger")
    async def ledger(run: str, lfn: str | None = None) -> wire.Ledger:
        def look() -> wire.Ledger:
            if scheduler.desk.is_folded(run):
                return wire.Ledger(run=run, files=scheduler.desk.archive.ledger(run, lfn))
            entry = scheduler.desk.known(run)
            files = [ledger_entry(entry.workflow, each) for each in ledger_of(scheduler.machine.state, run) if lfn in (None, each.lfn)]
            if lfn is not None and not files:
                raise InvalidInput(f"run {run} makes no file {lfn!r}", code="not_found", subject=lfn)
            return wire.Ledger(run=run, files=files)

        return await scheduler.ask(look)

    @router.get("/runs/{run}/jobs")
    async def jobs(run: str, state: str | None = None, limit: int = 1000) -> wire.JobList:
        def look() -> wire.JobList:
            entry = scheduler.desk.known(run)
            chosen = [job_id for job_id, job in entry.jobs.items() if state in (None, job.state.value)][:limit]
            return wire.JobList(run=run, jobs=[job_view(entry, job_id, scheduler.tally) for job_id in chosen])

        return await scheduler.ask(look)


def add_stories(router: APIRouter, scheduler: Scheduler) -> None:
    @router.get("/runs/{run}/logs")
    async def logs(run: str, job: str, tail_bytes: int = 65_536) -> wire.JobLogs:
        folded = await scheduler.ask(lambda: scheduler.desk.is_folded(run))
        entry = None if folded else await scheduler.ask(lambda: scheduler.desk.known(run))
        if entry is not None and job not in entry.workflow.jobs:
            raise InvalidInput(f"run {run} has no job {job!r}; `stager jobs {run}` lists them", code="not_found", subject=job)
        found = await asyncio.to_thread(read_logs, scheduler.state_dir.logs / safe_name(run), job, min(tail_bytes, TAIL_BYTES_MAX))
        return wire.JobLogs(run=run, job=job, logs=found)

    @router.get("/runs/{run}/explain")
    async def explain(run: str, lfn: str | None = None, job: str | None = None) -> wire.Explanation:
        entry = await scheduler.ask(lambda: scheduler.desk.known(run))
        if (lfn or "") not in entry.file_ids and (job or "") not in entry.jobs:
            raise InvalidInput(f"run {run} has no {f'file {lfn!r}' if lfn else f'job {job!r}'}", code="not_found", subject=lfn or job or "")
        file_id = entry.file_ids[lfn] if lfn else ""
        lines = await asyncio.to_thread(lambda: list(story(scheduler.journal.read_beside(), run, file_id, job or "")))
        return wire.Explanation(subject=lfn or job or "", lines=lines)

    @router.get("/runs/{run}/history")
    async def history(run: str) -> wire.RunHistory:
        entry = await scheduler.ask(lambda: scheduler.desk.known(run))
        if entry.state is not RunState.FINISHED:
            raise Refused(f"run {run} has not finished yet", code="run_active", subject=run)
        return await asyncio.to_thread(lambda: history_of(scheduler.journal.read_beside(), run))

    @router.get("/runs/{run}/events")
    async def events(run: str, after: int = 0, wait_s: float = 20.0) -> wire.ProgressPage:
        end = time.monotonic() + min(max(0.0, wait_s), 60.0)
        while True:
            since = scheduler.changed
            steps, gap, next_seq = await scheduler.ask(lambda: steps_since(scheduler, run, after))
            if steps or time.monotonic() >= end or scheduler.ended.is_set():
                return wire.ProgressPage(events=[progress_event(step) for step in steps], next_seq=next_seq, gap=gap)
            await asyncio.sleep(0.05)
            await scheduler.happening(since, max(0.0, end - time.monotonic()))


def steps_since(scheduler: Scheduler, run: str, after: int) -> tuple[list[Step], bool, int]:
    scheduler.desk.known(run)
    steps, gap = scheduler.tally.since(run, after, EVENTS_A_PAGE)
    return steps, gap, steps[-1].seq + 1 if steps else max(after + 1, 1)


def read_logs(directory: Path, job: str, tail_bytes: int) -> list[wire.AttemptLog]:
    """In the order of the attempts, stdout before stderr."""
    name = safe_name(job)
    found = []
    for path in directory.glob("*"):
        stem, _, ending = path.name.rpartition(".")
        start, _, number = stem.rpartition(".")
        if start == name and number.isdecimal() and ending in ("out", "err"):
            found.append((int(number), ending == "err", path))
    return [read_log(path, number, is_err, tail_bytes) for number, is_err, path in sorted(found)]


def read_log(path: Path, number: int, is_err: bool, tail_bytes: int) -> wire.AttemptLog:
    size_bytes = path.stat().st_size
    with path.open("rb") as stream:
        stream.seek(max(0, size_bytes - max(0, tail_bytes)))
        text = stream.read(max(0, tail_bytes)).decode(errors="replace")
    return wire.AttemptLog(attempt=str(number), stream="stderr" if is_err else "stdout", path=str(path), size_bytes=size_bytes, text=text)
