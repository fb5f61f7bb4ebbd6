"""A task that waits until products of a run are durable: at their origin, verified there.

May know: Airflow's SDK, the hook, waiting.py. One rule: what can never come is said at once, and not waited for until the timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.stager.hooks.stager import StagerHook
from airflow.providers.stager.waiting import ENDED, PATIENCE_S, never, not_all, told_superseded
from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from stager.model.errors import StagerError, Transient

if TYPE_CHECKING:
    from airflow.sdk import Context

    from stager.client import RestRun

LOG = logging.getLogger("airflow.task")


class StagerDurableSensor(BaseSensorOperator):
    """`run`: its id, mostly `{{ ti.xcom_pull("TASK", key="stager_run") }}`. `lfns`: products by their names in the workflow; none: all."""

    template_fields = ("run", "lfns", "stager_conn_id")
    ui_color = "#e3f0ea"

    def __init__(
        self,
        *,
        run: str,
        lfns: Sequence[str] | str = (),
        stager_conn_id: str = StagerHook.default_conn_name,
        deferrable: bool = True,
        patience_s: float = PATIENCE_S,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.run, self.lfns = run, lfns
        self.stager_conn_id, self.deferrable, self.patience_s = stager_conn_id, deferrable, patience_s

    @property
    def names(self) -> list[str]:
        return [self.lfns] if isinstance(self.lfns, str) else list(self.lfns)

    def execute(self, context: Context) -> Any:
        if not self.deferrable or self.poke(context):
            return super().execute(context) if not self.deferrable else None
        from airflow.providers.stager.triggers.stager import StagerDurableTrigger

        trigger = StagerDurableTrigger(self.run, self.names, self.stager_conn_id, self.patience_s)
        self.defer(trigger=trigger, method_name="came", timeout=timedelta(seconds=self.timeout))

    def came(self, context: Context, event: dict[str, Any]) -> None:
        if event.get("error"):
            raise AirflowException(event["error"])
        warn(event.get("superseded", ()))
        self.log.info("durable: %s", ", ".join(event["durable"]) or f"all products of run {self.run}")

    def poke(self, context: Context) -> bool:
        """A service that is away is asked again at the next poke."""
        if self.run in ("", "None"):
            text = "its template found none; the task that submits pushes it as XCom 'stager_run', and has to be upstream of this one"
            raise AirflowFailException(f"this sensor waits for no run: {text}")
        try:
            with StagerHook(self.stager_conn_id).get_conn() as client:
                return all_durable(client.run(self.run), self.names)
        except Transient as problem:
            self.log.warning("%s", problem.message)
            return False
        except StagerError as problem:
            raise AirflowException(problem.message) from None


def all_durable(run: RestRun, lfns: Sequence[str]) -> bool:
    """Raises AirflowException if one never will be."""
    for lfn in lfns:
        answer = run.wait(timeout_s=0, lfn=lfn)
        if answer.superseded:
            warn([answer.superseded])
        elif not answer.durable:
            if answer.finished:
                raise AirflowException(never(run.name, answer, lfn))
            return False
    if lfns:
        return True
    status = run.status()
    there = status.finals_durable == status.finals_total
    if not there and status.info.state in ENDED:
        raise AirflowException(not_all(run.name, status))
    if there:
        warn(told_superseded(status))
    return there


def warn(superseded: Sequence[str]) -> None:
    for told in superseded:
        LOG.warning("%s", told)
