"""Waits in the triggerer until a task's inputs are staged.

May know: Airflow's core, the hook. One rule: it decides nothing: whatever came of the calls, the task looks itself.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.providers.stager.hooks.stager import StagerHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from stager import wire
from stager.model.errors import StagerError

WAIT_S = 20.0


class StagerStagedTrigger(BaseTrigger):
    """`calls`: run, job and call of each. Fires when none of them waits, after `timeout_s`, or when they cannot be asked about."""

    def __init__(self, calls: Sequence[Sequence[str]], stager_conn_id: str, timeout_s: float) -> None:
        super().__init__()
        self.calls, self.stager_conn_id, self.timeout_s = [list(each) for each in calls], stager_conn_id, timeout_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        known = {"calls": self.calls, "stager_conn_id": self.stager_conn_id, "timeout_s": self.timeout_s}
        return f"{type(self).__module__}.{type(self).__qualname__}", known

    async def run(self) -> AsyncIterator[TriggerEvent]:
        end = time.monotonic() + self.timeout_s
        try:
            async with await StagerHook(self.stager_conn_id).get_async_conn() as client:
                for run, job, call in self.calls:
                    engine = client.engine(run)
                    view = await engine.staged(job, call, wait_s=WAIT_S)
                    while view.state is wire.CallState.WAITING and time.monotonic() < end:
                        view = await engine.staged(job, call, wait_s=WAIT_S)
        except StagerError as problem:
            yield TriggerEvent({"problem": problem.message})
            return
        yield TriggerEvent({})
