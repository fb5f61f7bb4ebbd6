"""Which hosts of a pool are taken. A script plays Dask; a real one is in tests/e2e/test_hosts.py."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from stager.adapters.dask_pool import DaskPool
from stager.adapters.host_words import Call, HostFacts, Step, plain
from stager.model.errors import Transient
from stager.scheduler import events as ev

H1 = HostFacts(host="h1", node="node0", cores=1, version="0.1.0")


class Dask:
    """`says`: what the host answers when it is looked at."""

    def __init__(self, says: dict[str, Any]) -> None:
        self.says, self.scheduler, self.beats, self.asked = says, self, 0, list[tuple[Any, ...]]()

    async def identity(self, n_workers: int) -> dict[str, Any]:
        self.beats += 1
        return {"workers": {"tcp://h:1": {"resources": {"stager@h1": 1.0}, "last_seen": float(self.beats)}}}

    async def run(self, function: Any, *args: Any, workers: list[str]) -> dict[str, Any]:
        self.asked.append(args)
        return {workers[0]: self.says}


@pytest.mark.parametrize(
    "says, why",
    [
        (plain(H1) | {"version": "9.1.0"}, "it runs stager 9.1.0"),
        ({"refused": "it works for another scheduler"}, "another scheduler"),
        (plain(H1) | {"host": "h2"}, "calls itself h2"),
    ],
    ids=["version", "scheduler", "name"],
)
def test_a_host_that_is_none_for_us_is_not_taken_and_one_that_becomes_so_is_lost(
    says: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An older stager leaves out what it does not know of a job, such as that it is to be isolated."""
    events: list[Any] = []
    pool, dask = DaskPool("tcp://d:1", lambda event, on_durable=None: events.append(event), scheduler="us"), Dask(says)
    pool.client = dask

    async def timeline() -> None:
        for _ in range(3):
            await pool._look()
        assert events == [] and dask.asked[0] == ("us",)
        dask.says = plain(H1)
        await pool._look()
        dask.says = says
        pool.heard.hosts["h1"].beat = -1.0
        await pool._look()

    with caplog.at_level(logging.WARNING):
        asyncio.run(timeline())
    assert [type(event) for event in events] == [ev.HostReported, ev.HostLost]
    assert [record.message.startswith("host h1 is not taken: ") and why in record.message for record in caplog.records] == [True, True]


class GivenUp(Dask):
    """A client whose Dask scheduler died: it takes nothing, and says so before there is a future."""

    def submit(self, *words: Any, **more: Any) -> Any:
        raise RuntimeError("Client is closed. Can't send update-graph message.")


class Answers(Dask):
    def submit(self, *words: Any, **more: Any) -> Any:
        class Given(asyncio.Future[dict[str, Any]]):
            def release(self) -> None: ...

        given = Given()
        given.set_result({"answer": "ok"})
        return given


def test_a_client_that_has_given_its_scheduler_up_is_no_end_of_a_call() -> None:
    """Else the attempt would be asked about by nobody, and its run would never end."""
    pool = DaskPool("tcp://d:1", lambda event, on_durable=None: None)
    pool.client = GivenUp({})
    call = Call(attempt="a-1", step=Step.RUN, node="node0", epoch=1, brief="", scratch="s")

    async def make() -> Call:
        return call

    async def timeline() -> dict[str, Any]:
        with pytest.raises(Transient, match="Client is closed"):
            await pool.call_once("stager-a-1", call, "h1", 1)
        asked = asyncio.create_task(pool.call("stager-a-1", make, "h1", 1))
        await asyncio.sleep(0)
        pool.client = Answers({})
        return await asyncio.wait_for(asked, 10)

    assert asyncio.run(timeline()) == {"answer": "ok"}


def test_a_pool_of_another_kind_of_dask_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask says so by an ImportError. Its hosts come as soon as somebody has started the pool anew."""

    class OfAnotherKind:
        def __init__(self, *words: Any, **more: Any) -> None: ...

        def __await__(self) -> Any:
            raise ImportError("mismatched versions")

        async def close(self, timeout: float) -> None:
            raise ImportError("mismatched versions")

    monkeypatch.setattr("distributed.Client", OfAnotherKind)
    with pytest.raises(Transient, match="ImportError: mismatched versions"):
        asyncio.run(DaskPool("tcp://d:1", lambda event, on_durable=None: None)._connect())
