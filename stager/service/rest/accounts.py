"""What a run did in time, and what it has cost. One rule: both are worked out of the journal, and at most so often."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from stager import rest, wire
from stager.service.accounts import Accounts
from stager.service.app import Scheduler
from stager.service.rest.callers import Reader, run_of
from stager.service.rest.pages import TAGGED, tagged


def accounts_router(scheduler: Scheduler) -> APIRouter:
    router = APIRouter(tags=["parts of a run"])
    own, accounts = run_of(scheduler), Accounts(scheduler)

    @router.get("/runs/{run}/history", response_model=wire.RunHistory, responses=TAGGED)
    async def history(request: Request, run: str, caller: Reader) -> Response:
        """Attempts, transfers and bytes held in time; 409 until it has finished."""
        await own(run, caller)
        return tagged(request, await accounts.history(run))

    @router.get("/runs/{run}/cost", response_model=rest.RunCost, responses=TAGGED)
    async def cost(request: Request, run: str, caller: Reader) -> Response:
        """What it has cost so far, by the packaged prices."""
        await own(run, caller)
        return tagged(request, await accounts.cost(run))

    return router
