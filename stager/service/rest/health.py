"""Whether the service lives and can work, and its figures for Prometheus. One rule: asking costs next to nothing."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from stager import __version__, rest
from stager.model.errors import NOT_READY_CODE, Transient
from stager.service.lifetime import Lifetime
from stager.service.node_view import NodeWatch
from stager.service.rest.callers import Administrator
from stager.service.rest.metrics import Figures


def health_router(lifetime: Lifetime, node_view: NodeWatch, figures: Figures, *, metrics_open: bool) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.get("/healthz")
    async def healthz() -> rest.Alive:
        """The process answers."""
        return rest.Alive()

    @router.get("/readyz")
    async def readyz() -> rest.Ready:
        """It takes runs: the journal is replayed, an I/O node answers, and nobody asked it to end."""
        if not lifetime.ready.is_set() or lifetime.ending or not node_view.any_reachable():
            away = node_view.unreachable()
            nodes = "its I/O node does not answer yet" if len(away) == 1 else f"no answer yet of its I/O nodes {', '.join(away)}"
            what = "it is ending" if lifetime.ending else nodes
            raise Transient(f"the service does not take runs just now: {what}; ask again in a moment", code=NOT_READY_CODE)
        return rest.Ready(version=__version__)

    async def exposition() -> Response:
        return Response(await figures.text(), media_type=figures.media_type)

    text: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus' text format"}
    }

    if metrics_open:

        @router.get("/metrics", name="metrics", response_class=Response, responses=text)
        async def metrics_for_all() -> Response:
            """Figures for Prometheus."""
            return await exposition()

    else:

        @router.get("/metrics", response_class=Response, responses=text)
        async def metrics(caller: Administrator) -> Response:
            """Figures for Prometheus."""
            return await exposition()

    return router
