"""The parts of a run: jobs and what they printed, files with their ledger, transfers. One rule: nothing of the service's disk is told."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from stager import rest, wire
from stager.scheduler.ledger import Standing
from stager.scheduler.states import JobState
from stager.service.job_logs import TAIL_BYTES_MAX, JobLogs, LogChoice
from stager.service.queries import JobChoice, JobQueries, RunQueries
from stager.service.rest.callers import Own, Reader
from stager.service.rest.pages import TAGGED, Contains, Cursor, Limit, offset_of, page_of, tagged
from stager.service.status import StatusQueries

TAIL_BYTES = 65_536
After = Annotated[int | None, Query(ge=0, le=1 << 53, description="instead of the end: `tail_bytes` from there on, of each stream")]
Name = Annotated[str | None, Query(max_length=4000)]


def parts_router(own: Own, queries: RunQueries, job_queries: JobQueries, printed: JobLogs, status: StatusQueries) -> APIRouter:
    router = APIRouter(tags=["parts of a run"])
    add_jobs(router, own, job_queries, printed)
    add_files(router, own, queries, status)
    return router


def add_jobs(router: APIRouter, own: Own, job_queries: JobQueries, printed: JobLogs) -> None:
    @router.get("/runs/{run}/jobs", response_model=rest.JobPage, responses=TAGGED)
    async def jobs(
        request: Request,
        run: str,
        caller: Reader,
        state: JobState | None = None,
        job_type: Name = None,
        job: Name = None,
        contains: Contains = "",
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> Response:
        """In the order of the workflow: all, or those in that state, of that type, of that name, with that text in their name or type."""
        await own(run, caller)
        start = offset_of(cursor)
        chosen = JobChoice(state.value if state else None, job_type, job, contains)
        found, total = await job_queries.views(run, start, limit + 1, chosen)
        page, more = page_of(found, start, limit)
        return tagged(request, rest.JobPage(run=run, jobs=page, total=total, next_cursor=more))

    @router.get("/runs/{run}/jobs/{job:path}/logs")
    async def logs(
        run: str,
        job: str,
        caller: Reader,
        tail_bytes: Annotated[int, Query(ge=0, le=TAIL_BYTES_MAX, description="of the end of each stream")] = TAIL_BYTES,
        attempt: Annotated[str, Query(pattern=r"^[0-9]{0,9}$", description="only of this one")] = "",
        stream: Annotated[Literal["", "stdout", "stderr"], Query(description="only this one")] = "",
        after: After = None,
    ) -> wire.JobLogs:
        """The stdout and stderr of every attempt: the end of it, or the bytes behind the first `after`."""
        await own(run, caller)
        found = await printed.of(run, job, LogChoice(tail_bytes, attempt, stream, after))
        return found.model_copy(update={"logs": [log.model_copy(update={"path": ""}) for log in found.logs]})


def add_files(router: APIRouter, own: Own, queries: RunQueries, status: StatusQueries) -> None:
    @router.get("/runs/{run}/files", response_model=rest.FilePage, responses=TAGGED)
    async def files(
        request: Request,
        run: str,
        caller: Reader,
        state: Standing | None = None,
        final: bool | None = None,
        lfn: Name = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> Response:
        """The ledger of what it makes: at risk, safe, written or durable."""
        await own(run, caller)
        start = offset_of(cursor)
        found = await queries.ledger(run, lfn)
        chosen = [entry for entry in found if (state is None or entry.state == state.value) and final in (None, entry.final)]
        page, more = page_of(chosen[start:], start, limit)
        return tagged(request, rest.FilePage(run=run, files=page, next_cursor=more))

    @router.get("/runs/{run}/transfers")
    async def transfers(run: str, caller: Reader, cursor: Cursor = None, limit: Limit = 100) -> rest.TransferPage:
        """Those under way or queued now, running ones first."""
        await own(run, caller)
        start = offset_of(cursor)
        found = await status.transfers(run)
        page, more = page_of(found[start:], start, limit)
        return rest.TransferPage(run=run, transfers=page, next_cursor=more)
