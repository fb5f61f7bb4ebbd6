"""Runs of an engine: submit one, call its jobs, say how they ended, ask where files are.

May know: the engine service, the reading. One rule: an engine's words change only what is its own; as whom and where is the administrator's
word, here as everywhere.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from stager import rest, wire
from stager.model.errors import Denied
from stager.model.workflow import Workflow
from stager.scheduler.events import EngineOutcome, Stage
from stager.service.engine_service import EngineService, Rights
from stager.service.following import WAIT_S_MAX, Following
from stager.service.lifetime import Lifetime
from stager.service.reading import Reading
from stager.service.rest.callers import Own, Reader, Submitter
from stager.service.rest.limits import Limiter, Waits
from stager.service.rest.openapi import body_of
from stager.service.rest.pages import Cursor, Limit, cursor_of, parts_of
from stager.service.rest.runs import Created, Intake, Key, ready
from stager.service.submissions import understood
from stager.service.tenancy import Tenancy

Call = Annotated[str, Path(pattern=rest.CALL_PATTERN, description="as the engine named this try")]
WaitS = Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="until it is staged or over, at most")]


def rights_of_tenants(tenancy: Tenancy, reading: Reading, limiter: Limiter) -> Rights:
    async def rights(run: str, workflow: Workflow) -> wire.Credentials:
        """Of the run's tenant, as its administrator says now."""
        tenant = tenancy.of_run(run)
        if not tenant:
            text = f"run {run} was submitted over the owner's socket, and its credentials are in the owner's environment"
            raise Denied(f"{text}; resume it there (stager resume {run})", code="owners_run", subject=run)
        return await limiter.run(tenant, reading.credentials, workflow, tenant, {})

    return rights


def engine_runs_router(
    own: Own, intake: Intake, reading: Reading, engine_service: EngineService, following: Following, lifetime: Lifetime
) -> APIRouter:
    router = APIRouter(tags=["runs of engines"])

    @router.post("/engine-runs", status_code=201, responses=Created, openapi_extra=body_of(rest.EngineSubmission))
    async def submit_engines(request: Request, response: Response, caller: Submitter, idempotency_key: Key = None) -> rest.Submitted:
        """Takes a workflow whose jobs an engine runs: inputs are prefetched from now on, and jobs begin when they are called. With an
        Idempotency-Key it is safe to ask again, and several processes that submit the same have one run.
        """
        return await intake.submitted(reading.engine_submission, request, response, caller, idempotency_key or "")

    @router.post("/runs/{run}/end", openapi_extra=body_of(rest.EndQuestion))
    async def end(request: Request, run: str, caller: Submitter) -> wire.WaitResponse:
        """Its engine calls no more jobs. Intermediates may go, finals go home, then the run ends as the engine said."""
        await own(run, caller)
        asked = understood(await request.body(), rest.EndQuestion)
        await ready(lifetime)
        await engine_service.end_run(run, EngineOutcome.SUCCEEDED if asked.succeeded else EngineOutcome.FAILED, asked.message)
        return await following.ended_or(run, None, 0)

    @router.get("/runs/{run}/calls")
    async def calls(run: str, caller: Reader, cursor: Cursor = None, limit: Limit = 100) -> rest.CallPage:
        """Calls that are not over, the oldest first: what an engine that lost its own words of them is to finish or to give back."""
        await own(run, caller)
        after = parts_of(cursor, float, str) if cursor is not None else []
        found = await engine_service.open_calls(run, tuple(after), limit + 1)
        shown = found[:limit]
        more = cursor_of(float(shown[-1].since), shown[-1].job) if len(found) > limit else None
        return rest.CallPage(run=run, calls=shown, next_cursor=more)

    @router.get("/runs/{run}/files/{lfn:path}/where")
    async def where(run: str, lfn: str, caller: Reader) -> wire.FileWhere:
        """Where a file of the workflow is: at which origins, on which nodes, how safe."""
        await own(run, caller)
        return await engine_service.where(run, lfn)

    return router


def calls_router(own: Own, engine_service: EngineService, lifetime: Lifetime, waits: Waits) -> APIRouter:
    router = APIRouter(tags=["runs of engines"])

    @router.post("/runs/{run}/jobs/{job:path}/calls", openapi_extra=body_of(rest.CallQuestion))
    async def call(request: Request, run: str, job: str, caller: Submitter) -> wire.CallView:
        """The engine begins a try of this job, by a name of its own. The same name again changes nothing; another takes its place."""
        await own(run, caller)
        asked = understood(await request.body(), rest.CallQuestion)
        await ready(lifetime)
        return await engine_service.call(run, job, asked.call, Stage(asked.stage))

    @router.get("/runs/{run}/jobs/{job:path}/calls/{call}")
    async def staged(run: str, job: str, call: Call, caller: Submitter, wait_s: WaitS = 0.0) -> wire.CallView:
        """The state of a call; with `wait_s` as soon as it is staged or over."""
        await own(run, caller)
        with waits.one(caller.tenant):
            return await engine_service.staged(run, job, call, wait_s)

    @router.post("/runs/{run}/jobs/{job:path}/calls/{call}/finish", openapi_extra=body_of(rest.FinishQuestion, required=False))
    async def finish(request: Request, run: str, job: str, call: Call, caller: Submitter) -> wire.CallView:
        """Its task ended well: what it made is taken from its directory. `done`: it is on the node, verified."""
        await own(run, caller)
        asked = understood(await request.body() or b"{}", rest.FinishQuestion)
        await ready(lifetime)
        with waits.one(caller.tenant):
            return await engine_service.finish(run, job, call, asked.wait_s)

    @router.post("/runs/{run}/jobs/{job:path}/calls/{call}/fail", openapi_extra=body_of(rest.FailQuestion, required=False))
    async def fail(request: Request, run: str, job: str, call: Call, caller: Submitter) -> wire.CallView:
        """Its task came to nothing, whether it was staged or not. The job waits for another call."""
        await own(run, caller)
        asked = understood(await request.body() or b"{}", rest.FailQuestion)
        await ready(lifetime)
        return await engine_service.fail(run, job, call, asked.message)

    return router
