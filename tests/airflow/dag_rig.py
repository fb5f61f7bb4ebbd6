"""DAGs as files in Airflow's own folder, run by `dag.test()` in this process.

May know: Airflow's core, its database. One rule: each DAG has a name of its own, so that tests share the database and nothing else. A
name of an Asset, too, is one URI's for all DAGs that there ever were: where the lab is another one, so is the name.
"""

from __future__ import annotations

import importlib.util
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select

HEAD = """
import pendulum
from airflow.sdk import DAG, Asset, ObjectStoragePath, task
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
"""


def dag_file(name: str, body: str, folder: Path | None = None) -> Path:
    """`body`: what stands inside `with DAG(name)`, with the imports it needs."""
    path = (folder or Path(os.environ["AIRFLOW_HOME"]) / "dags") / f"{name}.py"
    inside = textwrap.indent(textwrap.dedent(body), "    ")
    path.write_text(f"{HEAD}\nwith DAG({name!r}, schedule=None, start_date=pendulum.datetime(2024, 1, 1)) as dag:\n{inside}\n")
    return path


def load_dag(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dag


def run_dag(name: str, body: str) -> DagRun:
    return load_dag(dag_file(name, body)).test()


def state_of(run: DagRun, task: str) -> str | None:
    return str(of_task(run, task, lambda instance: instance.state))


def of_task(run: DagRun, task: str, ask: Callable[[TaskInstance], Any]) -> Any:
    wanted = select(TaskInstance).where(TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id, TaskInstance.task_id == task)
    with create_session() as session:
        return ask(session.scalars(wanted).one())


def told(run: DagRun, task: str, key: str = "return_value") -> Any:
    """A value of XCom."""
    with create_session() as session:
        found = session.execute(XComModel.get_many(run_id=run.run_id, key=key, task_ids=task, dag_ids=run.dag_id)).scalars().first()
        return None if found is None else XComModel.deserialize_value(found)
