"""Workflows that are only looked at: validate, plan, estimate. One rule: nothing is started, and nothing of them is kept."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from stager import rest
from stager.service.reading import Reading
from stager.service.rest.callers import Reader
from stager.service.rest.limits import Limiter
from stager.service.rest.openapi import body_of


def workflows_router(reading: Reading, limiter: Limiter) -> APIRouter:
    router = APIRouter(tags=["workflows"])

    @router.post("/validate", openapi_extra=body_of(rest.WorkflowText))
    async def validate(request: Request, caller: Reader) -> rest.Validated:
        """Reads a workflow and says all that is wrong with it; its patterns are listed at their origins."""
        body = await request.body()
        return await limiter.run(caller.tenant, reading.validate, body, caller.tenant)

    @router.post("/plan", response_model=rest.Planned, openapi_extra=body_of(rest.WorkflowText))
    async def plan(request: Request, caller: Reader) -> Response:
        """Plans a workflow; nothing is started."""
        body = await request.body()
        found = await limiter.run(caller.tenant, reading.plan, body, caller.tenant)
        return Response(found, media_type="application/json")

    @router.post("/estimate", openapi_extra=body_of(rest.EstimateQuestion))
    async def estimate(request: Request, caller: Reader) -> rest.Estimated:
        """Estimates time and cost of a workflow, with so many I/O nodes or so many."""
        body = await request.body()
        return await limiter.run(caller.tenant, reading.estimate, body, caller.tenant)

    return router
