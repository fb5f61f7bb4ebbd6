"""The socket API, on the scheduler's Unix socket: a router per resource.

May know: the scheduler, views, wire. One rule: a handler asks the driving thread, waits without blocking, and answers; it decides
nothing.
"""

from __future__ import annotations

from starlette.applications import Starlette

from stager.service.api.activity import Activity
from stager.service.api.engines import engines_router
from stager.service.api.hosts import hosts_router
from stager.service.api.housekeeping import housekeeping_router, nodes_router
from stager.service.api.inspect import inspect_router, parts_router, sandbox_router, timelines_router
from stager.service.api.runs import runs_router
from stager.service.lifetime import Lifetime
from stager.service.services import Services


def make_api(services: Services, lifetime: Lifetime, activity: Activity) -> Starlette:
    runs, owner = services.runs, services.owner
    routers = (
        housekeeping_router(owner.health, owner.garbage, owner.ending, owner.giving_way),
        nodes_router(runs.nodes),
        runs_router(runs.commands, runs.lists, runs.queries, runs.following, lifetime),
        inspect_router(runs.queries, runs.status),
        parts_router(runs.queries, runs.jobs),
        timelines_router(runs.logs, runs.journal, runs.following),
        sandbox_router(owner.sandboxes, lifetime),
        engines_router(runs.engines),
        hosts_router(runs.hosts),
    )
    return Starlette(routes=[route for router in routers for route in router.routes(activity)])
