"""The scheduler itself: health, gc, shutdown. One rule: health answers as long as the scheduler lives, also while runs drain."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from stager import wire
from stager.model.errors import InvalidInput
from stager.service.gc import GarbageCollector
from stager.service.health import Health
from stager.service.shutdown import Ending, GivingWay


def housekeeping_router(health: Health, garbage: GarbageCollector, ending: Ending, giving_way: GivingWay) -> APIRouter:
    router = APIRouter()

    @router.get("/health")
    async def health_now() -> wire.Health:
        return await health.now()

    @router.post("/gc")
    async def gc(request: Request) -> wire.GcReport:
        try:
            wanted = wire.GcRequest.model_validate_json(await request.body())
        except ValueError as problem:
            raise InvalidInput(f"the gc request is not understood: {problem}", code="bad_request") from problem
        return await garbage.collect(wanted)

    @router.post("/shutdown")
    async def shutdown(now: int = 0) -> Response:
        ending.begin(now=bool(now))
        return Response(b"{}", media_type="application/json")

    @router.post("/give-way")
    async def give_way() -> Response:
        await giving_way.give_way()
        return Response(b"{}", media_type="application/json")

    return router
