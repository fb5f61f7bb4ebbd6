"""Which hosts of a pool are taken. A script plays Dask; a real one is in tests/e2e/test_hosts.py."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from stager.adapters.dask_pool import DaskPool
from stager.adapters.host_words import HostFacts, plain
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
