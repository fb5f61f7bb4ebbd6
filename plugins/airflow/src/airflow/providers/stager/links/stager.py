"""A link from a task to its run in the dashboard of the service. One rule: it is told as soon as there is a run, not when the task ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

RUN_KEY, PAGE_KEY = "stager_run", "stager_run_page"
# Of this process, by task instance. To ask XCom for what is not there is an error in the task's log.
PAGES: dict[tuple[str, str, str, int], str] = {}


class StagerRunLink(BaseOperatorLink):
    """Of operators that call `tell_run`, or `note_page` in a process that goes on with a task."""

    name = "Run in stager"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Asked in the task's process when it ends, of a task that was resumed too; Airflow puts the answer where `tell_run` did."""
        return PAGES.get(place_of(ti_key), "")


def place_of(instance: Any) -> tuple[str, str, str, int]:
    index = instance.map_index
    return instance.dag_id, instance.run_id, instance.task_id, -1 if index is None else index


def note_page(instance: Any, page: str) -> None:
    PAGES[place_of(instance)] = page


def tell_run(context: Any, run: str, page: str) -> None:
    """For the link, and for tasks that want to know the run before this one has ended."""
    instance = context["ti"]
    note_page(instance, page)
    instance.xcom_push(key=RUN_KEY, value=run)
    instance.xcom_push(key=PAGE_KEY, value=page)
    # Where Airflow looks for the link; it writes it by itself only when the task ends.
    instance.xcom_push(key=StagerRunLink().xcom_key, value=page)
