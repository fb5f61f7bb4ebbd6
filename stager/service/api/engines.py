"""Runs of an engine: its calls, their ends, the run's end, where files are. One rule: ids stand in bodies, for an engine's names may hold
anything.
"""

from __future__ import annotations

from stager import wire
from stager.scheduler.events import EngineOutcome, Stage
from stager.service.api.routing import Asked, Router
from stager.service.engine_service import EngineService


def engines_router(engine_service: EngineService) -> Router:
    router = Router()

    @router.post("/runs/{run}/calls")
    async def call(asked: Asked) -> wire.CallView:
        wanted = await asked.body_as(wire.CallRequest)
        return await engine_service.call(asked.run, wanted.job, wanted.call, Stage.PINS if wanted.pins else Stage.PATHS)

    @router.post("/runs/{run}/calls/staged")
    async def staged(asked: Asked) -> wire.CallView:
        wanted = await asked.body_as(wire.CallRequest)
        return await engine_service.staged(asked.run, wanted.job, wanted.call, wanted.wait_s)

    @router.post("/runs/{run}/calls/finish")
    async def finish(asked: Asked) -> wire.CallView:
        wanted = await asked.body_as(wire.CallRequest)
        return await engine_service.finish(asked.run, wanted.job, wanted.call, wanted.wait_s)

    @router.post("/runs/{run}/calls/fail")
    async def fail(asked: Asked) -> wire.CallView:
        wanted = await asked.body_as(wire.CallRequest)
        return await engine_service.fail(asked.run, wanted.job, wanted.call, wanted.message)

    @router.post("/runs/{run}/end")
    async def end(asked: Asked) -> None:
        wanted = await asked.body_as(wire.EndRequest)
        outcome = EngineOutcome.SUCCEEDED if wanted.succeeded else EngineOutcome.FAILED
        await engine_service.end_run(asked.run, outcome, wanted.message)

    @router.get("/runs/{run}/where")
    async def where(asked: Asked) -> wire.FileWhere:
        return await engine_service.where(asked.run, asked.required("lfn"))

    return router
