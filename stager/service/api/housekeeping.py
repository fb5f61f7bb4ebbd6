"""The scheduler itself: health, gc, shutdown. One rule: health answers as long as the scheduler lives, also while runs drain."""

from __future__ import annotations

import os

from fastapi import APIRouter, Request, Response

from stager import __version__, wire
from stager.model.errors import InvalidInput
from stager.service import commands
from stager.service.app import Scheduler
from stager.service.gc import collect


def housekeeping_router(scheduler: Scheduler) -> APIRouter:
    router = APIRouter()

    @router.get("/health")
    async def health() -> wire.Health:
        state = scheduler.machine.state
        active, stale = await scheduler.ask(lambda: (list(state.active), state.stale))
        return wire.Health(
            api=wire.API_VERSION,
            version=__version__,
            pid=os.getpid(),
            state_dir=str(scheduler.state_dir.root),
            ready=scheduler.ready.is_set() and not scheduler.ending,
            epoch=scheduler.epoch,
            started_at=scheduler.started_at,
            active_runs=active,
            nodes=await scheduler.node_view.nodes(),
            stale={"events": stale},
        )

    @router.post("/gc")
    async def gc(request: Request) -> wire.GcReport:
        try:
            wanted = wire.GcRequest.model_validate_json(await request.body())
        except ValueError as problem:
            raise InvalidInput(f"the gc request is not understood: {problem}", code="bad_request") from problem
        return await collect(scheduler, wanted)

    @router.post("/shutdown")
    async def shutdown(now: int = 0) -> Response:
        commands.begin_to_end(scheduler, now=bool(now))
        return Response(b"{}", media_type="application/json")

    @router.post("/give-way")
    async def give_way() -> Response:
        await commands.give_way(scheduler)
        return Response(b"{}", media_type="application/json")

    return router
