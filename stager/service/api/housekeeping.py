"""The scheduler itself: health, gc, shutdown. One rule: health answers as long as the scheduler lives, also while runs drain."""

from __future__ import annotations

from stager import wire
from stager.service.api.routing import Asked, Router
from stager.service.gc import GarbageCollector
from stager.service.health import Health
from stager.service.shutdown import Ending, GivingWay


def housekeeping_router(health: Health, garbage: GarbageCollector, ending: Ending, giving_way: GivingWay) -> Router:
    router = Router()

    @router.get("/health")
    async def health_now(asked: Asked) -> wire.Health:
        return await health.now()

    @router.post("/gc")
    async def gc(asked: Asked) -> wire.GcReport:
        return await garbage.collect(await asked.body_as(wire.GcRequest))

    @router.post("/shutdown")
    async def shutdown(asked: Asked) -> None:
        ending.begin(now=asked.flag("now", default=False))

    @router.post("/give-way")
    async def give_way(asked: Asked) -> None:
        await giving_way.give_way()

    return router
