"""The trigger that waits for a service in the triggerer, so that the task holds no slot meanwhile.

May know: Airflow's core, the hook, waiting.py. One rule: a trigger can be started anew at any time, anywhere, and then waits for the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.providers.stager.hooks.stager import StagerHook
from airflow.providers.stager.waiting import BY_AIRFLOW, PATIENCE_S, back, durable, ended, shared_client
from airflow.triggers.base import BaseTrigger, TriggerEvent


class StagerRunTrigger(BaseTrigger):
    """Fires when the run has ended, however. `when_killed`: what happens to the run if a user ends the task: stop, cancel or leave."""

    def __init__(self, run: str, stager_conn_id: str, when_killed: str = "stop", patience_s: float = PATIENCE_S) -> None:
        super().__init__()
        self.run_id, self.stager_conn_id, self.when_killed, self.patience_s = run, stager_conn_id, when_killed, patience_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        known = {"run": self.run_id, "stager_conn_id": self.stager_conn_id, "when_killed": self.when_killed, "patience_s": self.patience_s}
        return f"{type(self).__module__}.{type(self).__qualname__}", known

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async with shared_client(await StagerHook(self.stager_conn_id).async_address()) as line:
            yield TriggerEvent(await ended(line, self.run_id, self.patience_s))

    async def on_kill(self) -> None:
        if self.when_killed == "leave":
            return
        async with await StagerHook(self.stager_conn_id).get_async_conn() as client:
            run = client.run(self.run_id)
            if self.when_killed == "cancel":
                await run.cancel()
            else:
                await run.stop(BY_AIRFLOW)


class StagerDurableTrigger(BaseTrigger):
    """Fires when these products of the run are durable, all of them if none is named, or when they never will be."""

    def __init__(self, run: str, lfns: Sequence[str], stager_conn_id: str, patience_s: float = PATIENCE_S) -> None:
        super().__init__()
        self.run_id, self.lfns, self.stager_conn_id, self.patience_s = run, list(lfns), stager_conn_id, patience_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        known = {"run": self.run_id, "lfns": self.lfns, "stager_conn_id": self.stager_conn_id, "patience_s": self.patience_s}
        return f"{type(self).__module__}.{type(self).__qualname__}", known

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async with shared_client(await StagerHook(self.stager_conn_id).async_address()) as line:
            yield TriggerEvent(await durable(line, self.run_id, self.lfns, self.patience_s))


class StagerServiceTrigger(BaseTrigger):
    """Fires when the service takes runs, or has been away for `patience_s`."""

    def __init__(self, stager_conn_id: str, patience_s: float = PATIENCE_S) -> None:
        super().__init__()
        self.stager_conn_id, self.patience_s = stager_conn_id, patience_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        known = {"stager_conn_id": self.stager_conn_id, "patience_s": self.patience_s}
        return f"{type(self).__module__}.{type(self).__qualname__}", known

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async with shared_client(await StagerHook(self.stager_conn_id).async_address()) as line:
            yield TriggerEvent(await back(line, self.patience_s))
