"""A run in time, its cost, and the timeline of its files and jobs. One rule: all are worked out of the journal, only so often, and for each
tenant one after the other.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from stager import rest, wire
from stager.service.accounts import Accounts
from stager.service.journal_queries import JournalQueries
from stager.service.rest.callers import Own, Reader
from stager.service.rest.limits import Turns
from stager.service.rest.pages import TAGGED, tagged
from stager.service.tenancy import Tenancy

Name = Annotated[str | None, Query(max_length=4000)]


def accounts_router(own: Own, accounts: Accounts, journal: JournalQueries, tenancy: Tenancy) -> APIRouter:
    router = APIRouter(tags=["parts of a run"])
    # Each of them may read all of the journal.
    turns = Turns()

    @router.get("/runs/{run}/history", response_model=wire.RunHistory, responses=TAGGED)
    async def history(request: Request, run: str, caller: Reader) -> Response:
        """Attempts, transfers and bytes held in time; 409 until it has finished."""
        await own(run, caller)
        async with turns.of(caller.tenant):
            return tagged(request, await accounts.history(run))

    @router.get("/runs/{run}/cost", response_model=rest.RunCost, responses=TAGGED)
    async def cost(request: Request, run: str, caller: Reader) -> Response:
        """Its cost so far, by the packaged prices."""
        await own(run, caller)
        async with turns.of(caller.tenant):
            return tagged(request, await accounts.cost(run))

    @router.get("/runs/{run}/explain")
    async def explain(run: str, caller: Reader, lfn: Name = None, job: Name = None) -> wire.Explanation:
        """The timeline of one file or one job: what happened to it, in order, each step with its cause."""
        await own(run, caller)
        async with turns.of(caller.tenant):
            return await journal.explained(run, lfn, job, lambda other: caller.sees(tenancy.of_run(other)))

    return router
