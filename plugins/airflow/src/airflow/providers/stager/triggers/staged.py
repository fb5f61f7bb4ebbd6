"""Waits in the triggerer until a task's inputs are staged.

May know: Airflow's core, the hook, waiting.py. One rule: it decides nothing: whatever came of the calls, the task looks itself.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from airflow.providers.stager import progress
from airflow.providers.stager.hooks.stager import StagerHook
from airflow.providers.stager.progress import Pulse
from airflow.providers.stager.waiting import patiently, shared_client
from airflow.triggers.base import BaseTrigger, TriggerEvent

from stager import wire
from stager.model.errors import StagerError

WAIT_S = 20.0
AWAY_TIMEOUT_S = 1800.0


class StagerStagedTrigger(BaseTrigger):
    """`calls`: run, job and call of each. Fires when none of them waits, after `timeout_s`, or when they cannot be asked about, as by a
    service that has been away for `away_timeout_s`. `names`: URIs of their inputs by logical names.
    """

    def __init__(
        self,
        calls: Sequence[Sequence[str]],
        stager_conn_id: str,
        timeout_s: float,
        away_timeout_s: float = AWAY_TIMEOUT_S,
        names: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.calls, self.stager_conn_id, self.timeout_s = [list(each) for each in calls], stager_conn_id, timeout_s
        self.away_timeout_s, self.names = away_timeout_s, names or {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        known = {"calls": self.calls, "stager_conn_id": self.stager_conn_id, "timeout_s": self.timeout_s}
        known |= {"away_timeout_s": self.away_timeout_s, "names": self.names}
        return f"{type(self).__module__}.{type(self).__qualname__}", known

    async def run(self) -> AsyncIterator[TriggerEvent]:
        end, pulse = time.monotonic() + self.timeout_s, Pulse()
        try:
            async with shared_client(await StagerHook(self.stager_conn_id).async_address()) as line:
                for run, job, call in self.calls:
                    ask = partial(line.client.engine(run, patience_s=0.0).staged, job, call, wait_s=WAIT_S)
                    view = None
                    while view is None or (view.state is wire.CallState.WAITING and time.monotonic() < end):
                        await line.say(run, pulse, lambda status: f"waiting for its inlets: {progress.of_inputs(status, self.names)}")
                        view = await patiently(ask, self.away_timeout_s)
        except StagerError as problem:
            yield TriggerEvent({"problem": problem.message})
            return
        yield TriggerEvent({})
