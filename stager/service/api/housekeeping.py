"""The scheduler itself and its nodes: health, gc, shutdown, drain, forget.

One rule: health answers as long as the scheduler lives, also while runs drain.
"""

from __future__ import annotations

from stager import wire
from stager.service.api.routing import Asked, Router
from stager.service.gc import GarbageCollector
from stager.service.health import Health
from stager.service.nodes import NodeService
from stager.service.shutdown import Ending, GivingWay

# Who asks over the owner's socket.
OWNER_WORD = "the owner"


def nodes_router(nodes: NodeService) -> Router:
    router = Router()

    @router.get("/nodes")
    async def listed(asked: Asked) -> wire.NodeViews:
        return wire.NodeViews(nodes=await nodes.listed())

    @router.post("/nodes/{node}/drain")
    async def drain(asked: Asked) -> wire.NodeView:
        return await nodes.drain(asked.node, await asked.body_as(wire.NodeDrain))

    @router.post("/nodes/{node}/forget")
    async def forget(asked: Asked) -> wire.NodeLoss:
        return await nodes.forget(asked.node, await asked.body_as(wire.NodeForget), OWNER_WORD)

    return router


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
