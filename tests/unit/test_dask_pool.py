"""Which hosts of a pool are taken. A script plays Dask; a real one is in tests/e2e/test_hosts.py."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from stager.adapters.dask_pool import DaskPool
from stager.adapters.host_words import Call, HostFacts, Step, plain
from stager.model.errors import Transient
from stager.scheduler import events as ev

CALL = Call(attempt="a-1", step=Step.RUN, node="node0", epoch=1, brief="", scratch="s")
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

    async def make() -> Call:
        return CALL

    async def timeline() -> dict[str, Any]:
        with pytest.raises(Transient, match="Client is closed"):
            await pool.call_once("stager-a-1", CALL, "h1", 1)
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


class Together(Dask):
    """As Dask does, the answers of all futures are brought by one task. `asked`: the futures."""

    def __init__(self) -> None:
        super().__init__({})
        self.bringing: asyncio.Task[None] | None = None
        self.may_come = asyncio.Event()

    async def bring(self) -> None:
        await self.may_come.wait()

    def submit(self, function: Any, said: Any, *, key: str, **more: Any) -> Any:
        dask = self

        class Brought:
            def release(self) -> None: ...

            def __await__(self) -> Any:
                if dask.bringing is None:
                    dask.bringing = asyncio.ensure_future(dask.bring())
                yield from dask.bringing.__await__()
                return {"answer": key}

        return Brought()


def asked_twice(play: Callable[[Together, asyncio.Task[Any]], None]) -> tuple[Any, asyncio.Task[Any]]:
    """What the second of two calls has for an answer after this was done to the first, and that one."""

    async def timeline() -> tuple[Any, asyncio.Task[Any]]:
        pool, dask = DaskPool("tcp://d:1", lambda event, on_durable=None: None), Together()
        pool.client = dask
        first, second = (asyncio.ensure_future(pool.call_once(key, CALL, "h1", 1)) for key in ("a", "b"))
        while dask.bringing is None:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        play(dask, first)
        await asyncio.sleep(0)
        dask.may_come.set()
        return (await asyncio.gather(second, return_exceptions=True))[0], first

    return asyncio.run(timeline())


def test_a_call_that_is_called_off_takes_no_other_one_along() -> None:
    """Of a host that is gone. The other calls ended as cancelled, which nobody told, and their runs never ended."""
    answer, first = asked_twice(lambda dask, first: first.cancel() and None)
    assert answer == {"answer": "b"} and first.cancelled()


def test_what_dask_itself_calls_off_is_asked_again() -> None:
    answer, first = asked_twice(lambda dask, first: dask.bringing is not None and dask.bringing.cancel() and None)
    assert isinstance(answer, Transient) and isinstance(first.exception(), Transient)
