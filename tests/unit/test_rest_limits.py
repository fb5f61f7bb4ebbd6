"""What a call has looked up for it on a thread waits its turn: there are only so many threads, and who asks much must not have them all."""

from __future__ import annotations

import asyncio
import threading
import types
from collections import Counter
from contextvars import ContextVar
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from stager import rest, wire
from stager.adapters.run_records import RunRecord
from stager.model.tenants import Scope
from stager.service.engine_service import EngineService
from stager.service.lifetime import Lifetime
from stager.service.rest.accounts import accounts_router
from stager.service.rest.callers import Caller, run_of
from stager.service.rest.engines import calls_router, rights_of_tenants
from stager.service.rest.graph import graph_router
from stager.service.rest.limits import READING_EACH_MAX, READING_MAX, Limiter, Waits
from stager.service.rest.places import places_router
from stager.service.rest.runs import Resumption, controls_router
from stager.service.threads import Threads

ASKED = 6
whose: ContextVar[str] = ContextVar("whose")


class Slow:
    """Submissions whose origins have names that nobody answers for."""

    def __init__(self) -> None:
        self.go, self.now, self.most, self.lock = threading.Event(), 0, 0, threading.Lock()

    def resumption(self, *_: Any) -> wire.Credentials:
        return self.credentials()

    def credentials(self, *_: Any) -> wire.Credentials:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.go.wait(20)
        with self.lock:
            self.now -= 1
        return wire.Credentials()

    submission = engine_submission = resumption


class Known:
    """One run of alice's, for whoever asks."""

    def __init__(self) -> None:
        self.lifetime = Lifetime(0.0)

    async def record(self, run: str) -> RunRecord:
        return RunRecord("w-1", "k", "w", "", 0.0, 1, tenant="alice")

    async def definition(self, run: str) -> Any:
        return types.SimpleNamespace(workflow=None)

    def of_run(self, run: str) -> str:
        return "alice"


@pytest.mark.parametrize("path", ["/runs/w-1/resume", "/runs/w-1/jobs/j/calls"])
def test_rights_are_looked_up_for_a_few_at_a_time(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(run_service: EngineService, run: str, *_: Any) -> wire.CallView:
        assert run_service.rights is not None
        await run_service.rights(run, None)  # type: ignore[arg-type]
        raise AssertionError("not reached: nothing is ready")

    monkeypatch.setattr(EngineService, "call", call)

    async def play() -> int:
        submissions, limiter, app = Slow(), Limiter(), FastAPI()
        known: Any = Known()
        known.lifetime.ready.set()
        own, nobody = run_of(known), types.SimpleNamespace()
        resumption = Resumption(known, nobody, known.lifetime, submissions, limiter)  # type: ignore[arg-type]
        app.include_router(controls_router(own, nobody, nobody, resumption))  # type: ignore[arg-type]
        rights = rights_of_tenants(known, submissions, limiter)  # type: ignore[arg-type]
        engines = EngineService(*[nobody] * 8, rights)  # type: ignore[arg-type]
        app.include_router(calls_router(own, engines, known.lifetime, Waits(9)))

        @app.middleware("http")
        async def let_in(request: Request, go_on: Any) -> Any:
            request.state.caller = Caller("alice", Scope.SUBMIT, "t")
            return await go_on(request)

        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            body = {"call": "one"} if path.endswith("calls") else {}
            asking = [asyncio.create_task(client.post(path, json=body)) for _ in range(ASKED)]
            while submissions.most < READING_EACH_MAX:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            submissions.go.set()
            await asyncio.gather(*asking)
            return submissions.most

    assert asyncio.run(play()) == READING_EACH_MAX


class SlowJournal:
    """What is worked out of a journal that takes long to be read."""

    def __init__(self) -> None:
        self.go, self.now, self.most = asyncio.Event(), Counter[str](), Counter[str]()

    async def cost(self, run: str) -> rest.RunCost:
        tenant = run.partition("-")[0]
        self.now[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self.now[tenant])
        await self.go.wait()
        self.now[tenant] -= 1
        words: Any = {"currency": "USD", "prices_date": "", "instance": "", "lines": [], "missing": []}
        return rest.RunCost(run=run, final=True, nodes=1, wall_s=0.0, total=0.0, **words)

    async def explained(self, run: str, *_: Any) -> wire.Explanation:
        await self.cost(run)
        return wire.Explanation(subject=run, lines=[])


class SlowRun:
    """One whose graph takes long to be written, and measurements that take long to be read."""

    def __init__(self, journal: SlowJournal) -> None:
        self.journal = journal

    async def definition(self, run: str) -> Any:
        return types.SimpleNamespace(workflow=None, graph=None)

    async def states(self, run: str) -> tuple[list[Any], list[str]]:
        return [], []

    async def of(self, tenant: str) -> dict[str, Any]:
        await self.journal.cost(tenant)
        return {}


@pytest.mark.parametrize("paths", [("runs/{}/cost", "runs/{}/explain?job=j"), ("runs/{}/graph", "runs/{}/states"), ("profiles?of={}",)])
def test_a_tenant_has_one_answer_at_a_time_that_takes_a_thread_for_long(monkeypatch: pytest.MonkeyPatch, paths: tuple[str, ...]) -> None:
    """With six runs one had all threads of a machine with two cores, and with as many questions all turns of whoever reads timelines."""

    async def play() -> Counter[str]:
        journal, app = SlowJournal(), FastAPI()
        run: Any = SlowRun(journal)

        async def own(run: str, caller: Caller) -> Any:
            return None

        async def on_a_thread(answer: Any) -> Any:
            await journal.cost(whose.get())
            return Response()

        monkeypatch.setattr("stager.service.rest.graph.asyncio", types.SimpleNamespace(to_thread=on_a_thread))
        app.include_router(accounts_router(own, journal, journal, types.SimpleNamespace()))  # type: ignore[arg-type]
        app.include_router(graph_router(own, run, run))
        app.include_router(places_router(run, run, run))

        @app.middleware("http")
        async def let_in(request: Request, go_on: Any) -> Any:
            whose.set("bob" if "bob" in str(request.url) else "alice")
            request.state.caller = Caller(whose.get(), Scope.READ, "t")
            return await go_on(request)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            asked = [path.format(f"alice-{at}") for at in range(ASKED) for path in paths]
            asking = [asyncio.create_task(client.get(path)) for path in (*asked, paths[0].format("bob-1"))]
            async with asyncio.timeout(20):
                while not journal.now["bob"]:
                    await asyncio.sleep(0.01)
            # Whoever else wanted to begin had its time.
            await asyncio.sleep(0.2)
            journal.go.set()
            assert [answer.status_code for answer in await asyncio.gather(*asking)] == [200] * len(asking)
            return journal.most

    assert asyncio.run(play()) == {"alice": 1, "bob": 1}


def test_all_turns_taken_hold_up_nothing_else_that_is_done_on_threads() -> None:
    """On the threads that all share they took each one of a machine with two cores: no log was shown then, and no job's output taken."""

    async def play() -> None:
        asyncio.get_running_loop().set_default_executor(Threads("beside", READING_MAX))
        submissions, limiter = Slow(), Limiter()
        tenants = [f"tenant-{number // READING_EACH_MAX}" for number in range(READING_MAX)]
        asking = [asyncio.create_task(limiter.run(tenant, submissions.resumption)) for tenant in tenants]
        try:
            while submissions.now < READING_MAX:
                await asyncio.sleep(0.01)
            async with asyncio.timeout(10):
                assert await asyncio.to_thread(lambda: "a log") == "a log"
            assert len(limiter.threads.under_way) == READING_MAX, "an end of the service knows of them"
        finally:
            submissions.go.set()
            await asyncio.gather(*asking)

    asyncio.run(play())
