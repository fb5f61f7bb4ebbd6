"""The REST API of `stager serve` over TCP: a router per resource, behind authentication (docs/formats/rest.md).

May know: the scheduler, its questions and changes, the tenants. One rule: a handler asks, waits without blocking and answers; it decides
nothing.
"""

from __future__ import annotations

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from stager import rest
from stager.adapters.tokens import TokenStore
from stager.model.errors import StagerError
from stager.service.app import Scheduler
from stager.service.dashboard import dashboard_router
from stager.service.reading import Reading
from stager.service.rest import problems
from stager.service.rest.accounts import accounts_router
from stager.service.rest.auth import BodyRefused, Guard, on_body_refused
from stager.service.rest.callers import known_query
from stager.service.rest.engines import engines_router
from stager.service.rest.events import events_router
from stager.service.rest.graph import graph_router
from stager.service.rest.health import health_router
from stager.service.rest.limits import Limiter, TooManyOpen, Waits
from stager.service.rest.metrics import Counted, Figures
from stager.service.rest.openapi import document
from stager.service.rest.parts import parts_router
from stager.service.rest.places import places_router
from stager.service.rest.runs import runs_router
from stager.service.rest.storage import storage_router
from stager.service.rest.workflows import workflows_router
from stager.service.settings import RestSettings

# Each slot of an engine may wait for its inputs.
CALLS_FOR_EACH_WAIT = 8


def make_rest(scheduler: Scheduler, settings: RestSettings, tokens: TokenStore, reading: Reading, limiter: Limiter) -> ASGIApp:
    waits = Waits(settings.waits_max)
    figures = Figures(scheduler, waits)
    app = make_app(scheduler, settings, waits, figures, reading, limiter)
    return Counted(Guard(app, settings, tokens, scheduler.tenancy), figures)


def make_app(scheduler: Scheduler, settings: RestSettings, waits: Waits, figures: Figures, reading: Reading, limiter: Limiter) -> FastAPI:
    """Without its guard."""
    app = FastAPI(
        docs_url=None, redoc_url=None, openapi_url=f"{rest.API_PREFIX}/openapi.json", generate_unique_id_function=lambda route: route.name
    )
    # FastAPI's own way to say it: a function in the place of the method.
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    app.include_router(dashboard_router())
    app.include_router(health_router(scheduler, figures, metrics_open=settings.metrics_open))
    for router in (
        workflows_router(reading, limiter),
        runs_router(scheduler, reading, limiter, waits),
        # Before the parts: of a path that ends in a call's name, all before that is the job's.
        engines_router(scheduler, reading, limiter, Waits(settings.waits_max * CALLS_FOR_EACH_WAIT)),
        parts_router(scheduler),
        graph_router(scheduler),
        accounts_router(scheduler),
        events_router(scheduler, waits),
        places_router(scheduler),
        storage_router(scheduler),
    ):
        app.include_router(router, prefix=rest.API_PREFIX, dependencies=[Depends(known_query)])
    app.add_exception_handler(BodyRefused, on_body_refused)
    app.add_exception_handler(TooManyOpen, problems.on_too_many_open)
    app.add_exception_handler(StagerError, problems.on_stager_error)
    app.add_exception_handler(RequestValidationError, problems.on_invalid_parameters)
    app.add_exception_handler(HTTPException, problems.on_http_error)
    app.add_exception_handler(Exception, problems.on_defect)
    return app
