"""Who waits for a product that was superseded at its place: ends well, and has been warned."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.stager.calls import at_home
from airflow.providers.stager.sensors.stager import StagerDurableSensor, all_durable
from airflow.providers.stager.waiting import durable

from stager import wire
from stager.model.errors import NEWER_CODE

TOLD = "out was changed after its replacement was made"


class Run:
    """Goes on, and has one product."""

    name = "r"

    def wait(self, *, timeout_s: float, lfn: str | None = None) -> wire.WaitResponse:
        named: dict[str, Any] = {"durable": False, "superseded": TOLD} if lfn else {}
        return wire.WaitResponse(run="r", finished=False, state="active", **named)

    def ledger(self, lfn: str) -> list[wire.LedgerEntry]:
        return [wire.LedgerEntry(lfn=lfn, state="superseded", final=True, fault=TOLD)]

    def status(self) -> Any:
        problem = wire.ErrorBody(error_class="refused", code=NEWER_CODE, message=TOLD)
        return SimpleNamespace(finals_durable=0, finals_total=0, problems=[problem], info=SimpleNamespace(state="active"))


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("airflow.task")
    log.addHandler(handler)
    yield said
    log.removeHandler(handler)


def test_the_task_that_made_it_succeeds(warnings: list[str]) -> None:
    at_home(Run(), "out", "sftp://lab/out", time.monotonic())
    assert warnings == [f"sftp://lab/out: {TOLD}"]


@pytest.mark.parametrize("lfns", [["out"], []])
def test_a_sensor_and_a_trigger_end(lfns: list[str], warnings: list[str]) -> None:
    assert all_durable(Run(), lfns)

    async def wait(run: str, lfn: str | None = None) -> wire.WaitResponse:
        return Run().wait(timeout_s=0, lfn=lfn)

    async def status() -> Any:
        return Run().status()

    async def say(*_: Any) -> None:
        """Nothing: a log is not what this is about."""

    line = SimpleNamespace(wait=wait, say=say, client=SimpleNamespace(run=lambda run: SimpleNamespace(status=status)))
    event = asyncio.run(durable(line, "r", lfns))
    assert event == {"run": "r", "durable": lfns, "superseded": [TOLD]}
    StagerDurableSensor(task_id="t", run="r").came({}, event)
    assert warnings == [TOLD, TOLD]
