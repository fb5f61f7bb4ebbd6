"""The nodes as they are seen from outside: each by its name, the slow and the lost ones too."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from stager.model.errors import Denied, Fault, Refused, StagerError, Transient
from stager.runtime.outstanding import Outstanding
from stager.scheduler import commands as cmd
from stager.service import node_view
from stager.service.lifetime import Lifetime
from stager.service.node_view import NodeWatch
from stager.service.rest import problems
from stager.service.rest.health import health_router
from stager.wire.node import NodeAbout, NodeTransfer

AWAY = Transient("the I/O node does not answer", code="connection_lost").fault()
TAKEN = Refused("another scheduler has taken over", code="stale_epoch").fault()


class ScriptedClient:
    def __init__(self, *transfers: str, slow: bool = False) -> None:
        self.said = [NodeTransfer(transfer_id=name, state="running", bytes_done=1, bytes_total=2) for name in transfers]
        self.slow = slow

    async def transfers(self) -> list[NodeTransfer]:
        if self.slow:
            await asyncio.Event().wait()
        return self.said

    async def node(self) -> NodeAbout:
        if self.slow:
            await asyncio.Event().wait()
        return about(7)


def about(used_bytes: int) -> NodeAbout:
    numbers = {"pid": 1, "capacity_bytes": 10, "used_bytes": used_bytes, "reserved_bytes": 0}
    return NodeAbout(node_id="n", incarnation="i", can_link=True, draining=False, **numbers)


def link(node: str, client: ScriptedClient | None = None, problem: Fault | None = None, **facts: Any) -> Any:
    """Up, if there is somebody to ask."""
    known = {"node": node, "up": client is not None, "client": client, "problem": problem, "excluded": False, "about": None}
    known["address"] = f"{node}:1"
    return SimpleNamespace(**known | facts)


def watch(*links: Any) -> NodeWatch:
    executors: Any = SimpleNamespace(parked=lambda run: 0, pool_of=lambda tenant: None)
    return NodeWatch({each.node: each for each in links}, "io0", executors, Outstanding())


def fetch(node: str, run: str) -> cmd.Fetch:
    return cmd.Fetch(
        id="c",
        at=0.0,
        cause="e",
        node=node,
        transfer="t",
        file="f",
        lfn="f",
        run=run,
        origin="lab",
        path="p",
        size_bytes=1,
        token="",
        purpose=cmd.Purpose.PREFETCH,
        priority=0,
    )


def test_each_node_is_listed_with_what_keeps_it_away() -> None:
    lost = link("io1", problem=AWAY, about=about(3))
    seen = asyncio.run(watch(link("io0", ScriptedClient()), lost, link("io2", problem=TAKEN, excluded=True)).nodes())
    assert [(each.node, each.connected, each.excluded, each.used_bytes, each.problem) for each in seen] == [
        ("io0", True, False, 7, ""),
        ("io1", False, False, 3, AWAY.message),
        ("io2", False, True, 0, TAKEN.message),
    ]
    assert [each.node for each in seen if each.embedded] == ["io0"]


def test_a_slow_node_costs_the_deadline_once_and_no_other_nodes_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_view, "DEADLINE_S", 0.05)
    slow = [link(f"io{number}", ScriptedClient("lost", slow=True), about=about(3)) for number in (1, 2, 3)]
    seen = watch(link("io0", ScriptedClient("t0")), *slow, link("io4", ScriptedClient("t4")), link("io5", problem=AWAY))
    seen.outstanding.transfers["t"] = fetch("io0", "r")

    async def ask() -> None:
        async with asyncio.timeout(2):
            assert set(await seen.telemetry()) == {"t0", "t4"}
            assert [each.used_bytes for each in await seen.nodes()] == [7, 3, 3, 3, 7, 0]

    asyncio.run(ask())


def test_a_run_is_told_of_the_nodes_that_it_needs() -> None:
    """Of one that another node can stand in for it is not."""
    two = watch(link("io0", ScriptedClient()), link("io1", problem=AWAY))
    assert two.troubles("r") == []
    two.outstanding.transfers["t"] = fetch("io1", "r")
    assert two.troubles("r") == [AWAY] and two.troubles("other") == []
    nobody = watch(link("io0", problem=AWAY), link("io1", problem=TAKEN))
    assert nobody.troubles("other") == [AWAY, TAKEN]


@pytest.mark.parametrize(
    ("links", "status", "says"),
    [
        ([link("io0", ScriptedClient()), link("io1", problem=AWAY)], 200, "version"),
        ([link("io0", problem=AWAY)], 503, "its I/O node does not answer yet"),
        ([link("io0", problem=AWAY), link("io1")], 503, "its I/O nodes io0, io1"),
    ],
)
def test_the_service_takes_runs_while_one_node_answers(links: list[Any], status: int, says: str) -> None:
    figures: Any = SimpleNamespace()

    async def asked() -> httpx.Response:
        lifetime = Lifetime(0.0)
        lifetime.ready.set()
        app = FastAPI()
        app.include_router(health_router(lifetime, watch(*links), figures, metrics_open=True))
        app.add_exception_handler(StagerError, problems.on_stager_error)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://stager") as client:
            return await client.get("/readyz")

    answer = asyncio.run(asked())
    assert answer.status_code == status and says in answer.text


TO_MEND = [
    Denied("this scheduler's own certificate has expired", code="peer_refused").fault(),
    Refused("the node b answers there, and not io1", code="another_node").fault(),
    Transient("its token cannot be read", code="token_missing").fault(),
]


@pytest.mark.parametrize("problem", TO_MEND, ids=lambda problem: problem.code)
def test_a_node_that_somebody_has_to_mend_something_for_is_not_silent_and_is_not_given_up(problem: Fault) -> None:
    """When the scheduler's certificate expires, all nodes seemed silent at once, and `gone_after` gave up what they hold."""
    seen = watch(link("io0"), link("io1", problem=problem), link("io2", problem=AWAY), link("io3", ScriptedClient()), link("io4"))
    assert [node for node in ("io0", "io1", "io2", "io3", "io4", "never") if seen.is_silent(node)] == ["io2", "io4", "never"]
    assert not watch(link("io1", problem=TAKEN, excluded=True)).is_silent("io1")
