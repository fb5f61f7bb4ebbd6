"""Runs of an engine: its calls, their ends, the run's end, where files are. One rule: ids stand in bodies, for an engine's names may hold
anything.
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from stager import wire
from stager.scheduler.events import EngineOutcome, Stage
from stager.service.engine_service import EngineService


def engines_router(engine_service: EngineService) -> APIRouter:
    router = APIRouter()

    @router.post("/runs/{run}/calls")
    async def call(run: str, asked: wire.CallRequest) -> wire.CallView:
        return await engine_service.call(run, asked.job, asked.call, Stage.PINS if asked.pins else Stage.PATHS)

    @router.post("/runs/{run}/calls/staged")
    async def staged(run: str, asked: wire.CallRequest) -> wire.CallView:
        return await engine_service.staged(run, asked.job, asked.call, asked.wait_s)

    @router.post("/runs/{run}/calls/finish")
    async def finish(run: str, asked: wire.CallRequest) -> wire.CallView:
        return await engine_service.finish(run, asked.job, asked.call, asked.wait_s)

    @router.post("/runs/{run}/calls/fail")
    async def fail(run: str, asked: wire.CallRequest) -> wire.CallView:
        return await engine_service.fail(run, asked.job, asked.call, asked.message)

    @router.post("/runs/{run}/end")
    async def end(run: str, asked: wire.EndRequest) -> Response:
        await engine_service.end_run(run, EngineOutcome.SUCCEEDED if asked.succeeded else EngineOutcome.FAILED, asked.message)
        return Response(b"{}", media_type="application/json")

    @router.get("/runs/{run}/where")
    async def where(run: str, lfn: str) -> wire.FileWhere:
        return await engine_service.where(run, lfn)

    return router
