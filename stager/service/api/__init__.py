"""The socket API, on the scheduler's Unix socket: a router per resource.

May know: the scheduler, views, wire. One rule: a handler asks the driving thread, waits without blocking, and answers; it decides
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from stager import wire
from stager.model.errors import ErrorClass, Fault, StagerError
from stager.service.api.activity import Activity
from stager.service.api.engines import engines_router
from stager.service.api.housekeeping import housekeeping_router
from stager.service.api.inspect import inspect_router, parts_router, sandbox_router, timelines_router
from stager.service.api.runs import runs_router
from stager.service.lifetime import Lifetime
from stager.service.services import Services

STATUS_OF = {
    ErrorClass.INVALID_INPUT: 422,
    ErrorClass.REFUSED: 409,
    ErrorClass.TRANSIENT: 503,
    ErrorClass.CORRUPT: 500,
    ErrorClass.DENIED: 403,
}


def make_api(services: Services, lifetime: Lifetime, activity: Activity) -> FastAPI:
    runs, owner = services.runs, services.owner
    api = FastAPI(title="stager", version=str(wire.API_VERSION), docs_url=None, redoc_url=None)
    for router in (
        housekeeping_router(owner.health, owner.garbage, owner.ending, owner.giving_way),
        runs_router(runs.commands, runs.lists, runs.queries, runs.following, lifetime),
        inspect_router(runs.queries, runs.status),
        parts_router(runs.queries, runs.jobs),
        timelines_router(runs.logs, runs.journal, runs.following),
        sandbox_router(owner.sandboxes, lifetime),
        engines_router(runs.engines),
    ):
        api.include_router(router, prefix="/v1")

    @api.exception_handler(StagerError)
    async def on_error(request: Request, problem: StagerError) -> JSONResponse:
        return error_response(STATUS_OF[problem.error_class], problem.fault())

    @api.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        refusal = refused(request)
        if refusal is not None:
            return error_response(400, refusal)
        with activity.call():
            return await call_next(request)

    return api


def refused(request: Request) -> Fault | None:
    """A browser that was talked into calling us says another host; a newer client says a newer version."""
    if request.headers.get("host", "") != wire.HOST:
        return Fault(ErrorClass.INVALID_INPUT, "bad_request", f"the Host header must be {wire.HOST!r}")
    version = request.headers.get("x-stager-api", str(wire.API_VERSION))
    if not version.isdecimal() or int(version) > wire.API_VERSION:
        text = f"this client speaks version {version} of the API and the running scheduler {wire.API_VERSION}"
        return Fault(ErrorClass.INVALID_INPUT, "api_version", f"{text}; end the scheduler with its own version (stager shutdown)")
    return None


def error_response(status: int, fault: Fault) -> JSONResponse:
    body = wire.ErrorResponse(error=wire.ErrorBody.of(fault))
    return JSONResponse(body.model_dump(mode="json", by_alias=True), status_code=status)
