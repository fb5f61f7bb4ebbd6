"""News of DagRuns and tasks from Airflow, and the answer to them in each of its processes.

May know: the outbox, the files of a try. One rule: nothing is raised into Airflow, and the scheduler is never kept waiting.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl
from airflow.providers.stager import service
from airflow.providers.stager.facts import dag_fact
from airflow.providers.stager.files import OPEN, TaskFiles
from airflow.providers.stager.handoff import Begun, Ended, Outbox
from airflow.providers.stager.reconcile import reconcile_if_asked

log = logging.getLogger(__name__)


class StagerListener:
    def __init__(self) -> None:
        self.outbox = Outbox(reconcile_if_asked)

    # In the scheduler; and in the API server, where somebody said by hand how a DagRun ended

    @hookimpl
    def on_dag_run_running(self, dag_run: Any, msg: str) -> None:
        fact = fact_of_run(dag_run)
        if fact is not None:
            self.outbox.tell(Begun(fact, dag_run.run_id))

    @hookimpl
    def on_dag_run_success(self, dag_run: Any, msg: str) -> None:
        self._ended(dag_run, True, msg)

    @hookimpl
    def on_dag_run_failed(self, dag_run: Any, msg: str) -> None:
        self._ended(dag_run, False, msg)

    def _ended(self, dag_run: Any, succeeded: bool, msg: str) -> None:
        fact = fact_of_run(dag_run)
        if fact is not None:
            self.outbox.tell(Ended(fact, dag_run.run_id, succeeded, str(msg or "")))

    # In the process of a task

    @hookimpl
    def on_task_instance_running(self, previous_state: Any, task_instance: Any) -> None:
        """Its templates are rendered by now. If they asked for files, what it makes is handed over before it has succeeded."""
        files = OPEN.get(str(getattr(task_instance, "id", "")))
        if files is not None:
            handed_over_at_its_end(task_instance.task, files)

    @hookimpl
    def on_task_instance_success(self, previous_state: Any, task_instance: Any) -> None:
        """Prefetches the files that the task made for readers that stage."""
        try:
            task = getattr(task_instance, "task", None)
            if task is not None and task.outlets and type(task_instance).__name__ == "RuntimeTaskInstance":
                submit_readers(task, task_instance.run_id)
        except Exception as problem:
            log.warning("readers of what %s made fetch it when they begin: %s", task_instance.task_id, problem)

    @hookimpl
    def on_task_instance_failed(self, previous_state: Any, task_instance: Any, error: Any) -> None:
        over(task_instance, f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error))

    @hookimpl
    def on_task_instance_skipped(self, previous_state: Any, task_instance: Any) -> None:
        over(task_instance, "skipped")


def fact_of_run(dag_run: Any) -> Any:
    """None: nothing of it is staged, or its DAG cannot be seen from here."""
    try:
        dag = getattr(dag_run, "dag", None) or dag_run.get_dag()
        fact = dag_fact(dag)
    except Exception as problem:
        log.warning("stager cannot see the DAG of %s: %s", getattr(dag_run, "run_id", dag_run), problem)
        return None
    return fact if fact.stages else None


def over(task_instance: Any, message: str) -> None:
    files = OPEN.get(str(getattr(task_instance, "id", "")))
    if files is not None:
        files.fail(message)


def handed_over_at_its_end(task: Any, files: TaskFiles) -> None:
    """A task that fails to hand over has failed, so it is done before Airflow says that it succeeded."""
    before = task._post_execute_hook

    def hand_over(context: Any, result: Any = None) -> None:
        if before is not None:
            before(context, result)
        files.finish()

    task._post_execute_hook = hand_over


def submit_readers(task: Any, run_id: str) -> None:
    fact = dag_fact(task.dag)
    mine = next((each for each in fact.tasks if each.task_id == task.task_id), None)
    if not fact.stages or mine is None or mine.stages or mine.many:
        return
    found = service.connected()
    with found.client:
        runs = found.runs(fact, run_id)
        if any(part.after == task.task_id for part in runs.shape().parts):
            read = True
            try:
                runs.ask_once()
                read = runs.is_read(task.task_id)
            finally:
                loose = service.loose_of(fact, run_id)
                for file in mine.outlets if read else ():
                    loose.mark(file.uri)
            runs.open(task.task_id)
