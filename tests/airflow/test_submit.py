"""StagerSubmitOperator and StagerDurableSensor in DAGs that `dag.test()` runs, with a real service."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.providers.stager.operators.submit import StagerSubmitOperator
from airflow.providers.stager.sensors.stager import StagerDurableSensor
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tests.airflow.dag_rig import run_dag, state_of, told
from tests.e2e.serve_rig import Service, small

IMPORTS = """
from airflow.providers.stager.operators.submit import StagerSubmitOperator
from airflow.providers.stager.sensors.stager import StagerDurableSensor
"""


@pytest.fixture
def connected(service: Service, token: str, connect) -> Service:
    connect("stager_default", service, token)
    return service


def runs_of(service: Service, token: str) -> int:
    return len(service.client(token).get("/runs").json()["runs"])


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_workflow_is_one_task(connected: Service, data: Path, deferrable: bool) -> None:
    name = f"one_task_{deferrable}"
    text = small(data, name)
    run = run_dag(
        name,
        f"""{IMPORTS}
sent = StagerSubmitOperator(task_id="sent", workflow={text!r}, deferrable={deferrable})
there = StagerDurableSensor(task_id="there", run='{{{{ ti.xcom_pull("sent", key="stager_run") }}}}', lfns="b", deferrable={deferrable})
every = StagerDurableSensor(task_id="every", run='{{{{ ti.xcom_pull("sent", key="stager_run") }}}}', deferrable={deferrable})
sent >> there >> every
""",
    )
    assert [state_of(run, task) for task in ("sent", "there", "every")] == ["success"] * 3
    summary = told(run, "sent")
    assert (summary["outcome"], summary["finals_durable"], summary["run"]) == ("succeeded", 1, told(run, "sent", "stager_run"))
    assert (data / "out" / name).read_text() == "HELLO\n"
    page = f"{connected.url}/#/runs/{summary['run']}"
    assert told(run, "sent", "stager_run_page") == told(run, "sent", "_link_StagerRunLink") == page


def test_a_run_that_failed_says_which_job_and_where_to_look(connected: Service, data: Path) -> None:
    body = f"""{IMPORTS}
from airflow.sdk.exceptions import AirflowException

class Telling(StagerSubmitOperator):
    def run_ended(self, context, event, resumes=0):
        try:
            return super().run_ended(context, event, resumes)
        except AirflowException as problem:
            context["ti"].xcom_push(key="said", value=str(problem))
            raise

Telling(task_id="sent", workflow={small(data, "broken", "echo dear me >&2; exit 3")!r})
"""
    run = run_dag("broken", body)
    assert state_of(run, "sent") == "failed"
    said, made = told(run, "sent", "said"), told(run, "sent", "stager_run")
    assert "the end of its stderr, attempt 3:\n    | dear me" in said, said
    assert f"run {made} is failed" in said and "job up: " in said and f"stager logs {made} up --server {connected.url}" in said
    assert told(run, "sent", "_link_StagerRunLink").endswith(made), "the link of a task that failed after it was resumed"


def test_a_workflow_file_beside_the_dag_and_variables_of_its_jobs(connected: Service, data: Path) -> None:
    text = small(data, "beside", 'echo "$GREETING" > b', "    env_pass: [GREETING]\n")
    (Path(os.environ["AIRFLOW_HOME"]) / "dags" / "beside-workflow.yml").write_text(text)
    run = run_dag(
        "beside",
        f"""{IMPORTS}
StagerSubmitOperator(task_id="sent", workflow="beside-workflow.yml", env={{"GREETING": "hello {{{{ dag_run.dag_id }}}}"}})
""",
    )
    assert state_of(run, "sent") == "success"
    assert (data / "out" / "beside").read_text() == "hello beside\n"
    assert "env" not in StagerSubmitOperator.template_fields, "they are shown to all who may look at the task"


def test_parameters_of_the_workflow_are_templated(connected: Service, data: Path) -> None:
    text = small(
        data, "parameters", "echo {night} {count} {names} > b", "params:\n  night:\n  count: {type: integer, default: 1}\n  names: [x]\n"
    )
    run = run_dag(
        "parameters",
        f"""{IMPORTS}
values = {{"night": "of {{{{ dag_run.dag_id }}}}", "count": 3, "names": ["a", "{{{{ dag_run.dag_id }}}}"]}}
StagerSubmitOperator(task_id="sent", workflow={text!r}, workflow_params=values)
""",
    )
    assert state_of(run, "sent") == "success"
    assert (data / "out" / "parameters").read_text() == "of parameters 3 a parameters\n"


def test_mapped_tasks_have_a_run_each(connected: Service, token: str, data: Path) -> None:
    texts = [small(data, f"mapped-{number}") for number in range(2)]
    before = runs_of(connected, token)
    run_dag("mapped", f"{IMPORTS}\nStagerSubmitOperator.partial(task_id='sent').expand(workflow={texts!r})\n")
    assert runs_of(connected, token) == before + 2
    assert all((data / "out" / f"mapped-{number}").read_text() == "HELLO\n" for number in range(2))


@pytest.mark.parametrize(
    ("more", "told_of"),
    [
        ({"workflow": "stager: 1\nname: x\njobs: {}\n"}, "jobs"),
        ({"workflow": "absent.yml"}, "absent.yml"),
        ({"files": ["absent.yml"]}, "absent"),
        ({"workflow_params": {"nite": "m31"}}, "no parameter 'nite'"),
        ({"workflow_params": {"night": {"m31": 1}}}, r"workflow_params\.night"),
        ({"options": {"spil": "x"}}, r"options\.spil: Extra inputs are not permitted$"),
        ({"workflow_format": "pegasos"}, r"workflow_format: Input should be 'native', 'pegasus' or 'wfcommons'$"),
    ],
)
def test_what_only_a_person_can_mend_is_not_tried_again(connected: Service, data: Path, more: dict[str, object], told_of: str) -> None:
    operator = StagerSubmitOperator(task_id="sent", **({"workflow": small(data, "mend")} | more))
    operator.dag = DAG("mend", schedule=None)
    with pytest.raises(AirflowFailException, match=told_of):
        operator.execute({"ti": SimpleNamespace(dag_id="mend", run_id="r", task_id="sent", map_index=-1, max_tries=0)})


def test_whose_connection_it_is_that_does_not_work(service: Service, data: Path, connect) -> None:
    connect("stranger", service, "no-such-token")
    operator = StagerSubmitOperator(task_id="sent", workflow=small(data, "whose"), stager_conn_id="stranger")
    operator.dag = DAG("whose", schedule=None)
    with pytest.raises(AirflowException, match="the token is not good.*connection 'stranger'"):
        operator.execute({"ti": SimpleNamespace(dag_id="whose", run_id="r", task_id="sent", map_index=-1, max_tries=0)})


@pytest.mark.parametrize("run", ["", "None"])
def test_a_sensor_whose_template_found_no_run_says_that(run: str) -> None:
    with pytest.raises(AirflowFailException, match="stager_run.*upstream"):
        StagerDurableSensor(task_id="home", run=run).poke({})


def test_a_dag_is_parsed_without_the_client() -> None:
    """Every process of Airflow imports all that a DAG file imports, every few seconds."""
    modules = "operators.submit", "sensors.stager", "triggers.stager", "links.stager", "assets.stager", "fs.stager"
    imports = "; ".join(f"import airflow.providers.stager.{each}" for each in modules)
    code = f"{imports}; import sys; print(sorted(name for name in sys.modules if name.startswith('stager.')))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    # The version is a module of its own where stager was installed.
    assert set(ast.literal_eval(done.stdout)) - {"stager._version"} == {"stager.model", "stager.model.errors"}


def test_a_sensor_waits_for_a_run_that_another_task_only_submitted(connected: Service, data: Path) -> None:
    """As docs/operating/airflow.md shows it."""
    text = small(data, "submitted")
    run = run_dag(
        "submitted",
        f"""
from airflow.providers.stager.hooks.stager import StagerHook
from airflow.providers.stager.sensors.stager import StagerDurableSensor
from stager.rest import Submission

@task
def submitted(run_id=None):
    with StagerHook().get_conn() as client:
        return client.submit(Submission(workflow={text!r}), key=f"submitted-{{run_id}}")

StagerDurableSensor(task_id="preview", run=submitted(), lfns=["b"])
""",
    )
    assert state_of(run, "preview") == "success"
    assert (data / "out" / "submitted").read_text() == "HELLO\n"
