"""The REST API of `stager serve` over TCP: a router per resource, behind authentication (docs/formats/rest.md).

May know: the services, the tenants. One rule: a handler asks, waits without blocking and answers; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from stager import rest
from stager.adapters.tokens import TokenStore
from stager.model.errors import StagerError
from stager.service.accounts import Accounts
from stager.service.dashboard import dashboard_router
from stager.service.machine_side import MachineSide
from stager.service.node_side import NodeSide
from stager.service.occupancy import NodeOccupancy
from stager.service.reading import Reading
from stager.service.rest import problems
from stager.service.rest.accounts import accounts_router
from stager.service.rest.auth import BodyRefused, Guard, on_body_refused
from stager.service.rest.callers import Own, known_query, run_of
from stager.service.rest.contents import contents_router, results_router
from stager.service.rest.engines import calls_router, engine_runs_router, rights_of_tenants
from stager.service.rest.events import events_router
from stager.service.rest.graph import graph_router
from stager.service.rest.health import health_router
from stager.service.rest.hosts import hosts_router
from stager.service.rest.limits import Limiter, TooManyOpen, Waits
from stager.service.rest.metrics import Counted, Figures
from stager.service.rest.openapi import document
from stager.service.rest.parts import parts_router
from stager.service.rest.places import MeasuredProfiles, places_router
from stager.service.rest.runs import Intake, Resumption, controls_router, queries_router, submit_router
from stager.service.rest.storage import storage_router
from stager.service.rest.workflows import workflows_router
from stager.service.sent_contents import SentStores
from stager.service.services import RunServices
from stager.service.settings import RestSettings

# Each slot of an engine may wait for its inputs.
CALLS_FOR_EACH_WAIT = 8


@dataclass(frozen=True, slots=True)
class Reached:
    """All that the REST API reaches, composed beside it."""

    machine: MachineSide
    node: NodeSide
    runs: RunServices
    reading: Reading
    limiter: Limiter
    profiles: Path
    contents: SentStores


def make_rest(reached: Reached, settings: RestSettings, tokens: TokenStore) -> ASGIApp:
    machine, node, waits = reached.machine, reached.node, Waits(settings.waits_max)
    figures = Figures(machine.inquiry, machine.runs, machine.stores.records, machine.totals, node.view, waits)
    app = make_app(reached, settings, waits, figures)
    return Counted(Guard(app, settings, tokens, machine.tenancy), figures)


def make_app(reached: Reached, settings: RestSettings, waits: Waits, figures: Figures) -> FastAPI:
    """Without its guard."""
    app = FastAPI(
        docs_url=None, redoc_url=None, openapi_url=f"{rest.API_PREFIX}/openapi.json", generate_unique_id_function=lambda route: route.name
    )
    # FastAPI's own way to say it: a function in the place of the method.
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    app.include_router(dashboard_router())
    machine, node = reached.machine, reached.node
    app.include_router(health_router(machine.lifetime, node.view, figures, metrics_open=settings.metrics_open))
    own = run_of(reached.runs.queries)
    for router in (
        workflows_router(reached.reading, reached.limiter),
        *runs_routers(reached, own, waits, Waits(settings.waits_max * CALLS_FOR_EACH_WAIT)),
        *parts_routers(reached, own),
        events_router(own, reached.runs.following, waits),
        *shared_routers(reached),
    ):
        app.include_router(router, prefix=rest.API_PREFIX, dependencies=[Depends(known_query)])
    app.add_exception_handler(BodyRefused, on_body_refused)
    app.add_exception_handler(TooManyOpen, problems.on_too_many_open)
    app.add_exception_handler(StagerError, problems.on_stager_error)
    app.add_exception_handler(RequestValidationError, problems.on_invalid_parameters)
    app.add_exception_handler(HTTPException, problems.on_http_error)
    app.add_exception_handler(Exception, problems.on_defect)
    return app


def runs_routers(reached: Reached, own: Own, waits: Waits, call_waits: Waits) -> Iterator[APIRouter]:
    """Those of engines come before the parts: of a path that ends in a call's name, all before that is the job's."""
    runs, lifetime, reading, limiter = reached.runs, reached.machine.lifetime, reached.reading, reached.limiter
    intake = Intake(runs.commands, lifetime, limiter, reached.contents)
    resumption = Resumption(runs.queries, runs.commands, lifetime, reading, limiter)
    engines = runs.engines.asking(rights_of_tenants(reached.machine.tenancy, reading, limiter))
    yield submit_router(intake, reading)
    yield queries_router(own, runs.lists, runs.queries, runs.status, runs.following, waits)
    yield results_router(own, runs.queries, reached.contents)
    yield controls_router(own, runs.commands, runs.following, resumption)
    yield engine_runs_router(own, intake, reading, engines, runs.following, lifetime)
    yield calls_router(own, engines, lifetime, call_waits)


def parts_routers(reached: Reached, own: Own) -> Iterator[APIRouter]:
    runs, machine = reached.runs, reached.machine
    accounts = Accounts(machine.inquiry, machine.runs, machine.past.counters, machine.stores.journal.read_beside, machine.clock)
    yield parts_router(own, runs.queries, runs.jobs, runs.logs, runs.status)
    yield graph_router(own, runs.queries, runs.jobs)
    yield accounts_router(own, accounts, runs.journal, machine.tenancy)


def shared_routers(reached: Reached) -> Iterator[APIRouter]:
    """Of what all tenants share."""
    machine, node, stores = reached.machine, reached.node, reached.machine.stores
    occupancy = NodeOccupancy(machine.inquiry, machine.runs, machine.totals)
    yield places_router(occupancy, reached.runs.nodes, MeasuredProfiles(machine.inquiry, stores.profiles, stores.records, reached.profiles))
    yield hosts_router(reached.runs.hosts)
    yield storage_router(node.objects)
    yield contents_router(reached.contents)
