"""A link from a task to its run in the dashboard of the service. One rule: it is told as soon as there is a run, not when the task ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

RUN_KEY, PAGE_KEY = "stager_run", "stager_run_page"


class StagerRunLink(BaseOperatorLink):
    """Of operators that call `tell_run`."""

    name = "Run in stager"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Asked in the task's process when it ends, of a task that was resumed too."""
        from airflow.sdk.execution_time.xcom import XCom

        return XCom.get_value(ti_key=ti_key, key=PAGE_KEY) or ""


def tell_run(context: Any, run: str, page: str) -> None:
    """For the link, and for tasks that want to know the run before this one has ended."""
    instance = context["ti"]
    instance.xcom_push(key=RUN_KEY, value=run)
    instance.xcom_push(key=PAGE_KEY, value=page)
    # Where Airflow looks for the link; it writes it by itself only when the task ends.
    instance.xcom_push(key=StagerRunLink().xcom_key, value=page)
