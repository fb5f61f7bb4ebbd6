"""A workflow that a DAG submits, in a real Airflow: while others are looked at it goes on, and everything that may die meanwhile dies.

One rule: it is asked of Airflow and of the service what is, never of the provider.
"""

from __future__ import annotations

from pathlib import Path

from stager.client import RestClient
from tests.airflow.dag_rig import dag_file
from tests.airflow.real_airflow import RealAirflow
from tests.e2e.serve_rig import small
from tests.testbed.waiting import wait_until

DAG, CONNECTION = "submitting", "stager_jobs"
# A triggerer that was killed is given up after 30 s otherwise.
QUICK = {"AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1", "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5"}
# Airflow fails a try whose trigger fires before its scheduler has heard that the worker had put it off, and tries it again: still one run.
BODY = """
from datetime import timedelta

from airflow.providers.stager.operators.submit import StagerSubmitOperator
from airflow.providers.stager.sensors.stager import StagerDurableSensor

again = dict(retries=3, retry_delay=timedelta(seconds=1))
sent = StagerSubmitOperator(task_id="sent", workflow={text!r}, stager_conn_id={connection!r}, **again)
home = StagerDurableSensor(task_id="home", run='{{{{ ti.xcom_pull("sent", key="stager_run") }}}}', stager_conn_id={connection!r}, **again)
sent >> home
"""


class Submitting:
    def __init__(self, airflow: RealAirflow, client: RestClient, data: Path) -> None:
        self.airflow, self.client, self.data = airflow, client, data

    def write(self) -> None:
        text = small(self.data, DAG, f"while ! test -e {self.data}/open; do sleep 0.05; done; cat a > b")
        dag_file(DAG, BODY.format(text=text, connection=CONNECTION), self.airflow.dags)

    def begin(self) -> None:
        self.dag_run = self.airflow.trigger(DAG)

    def state(self) -> str:
        return str(self.airflow.tries(DAG, self.dag_run)["sent"]["state"])

    def outlives_all(self) -> None:
        """Deferred; cleared, which stops the run and goes on with it; its triggerer killed: it is one run all the time."""
        wait_until(lambda: self.state() == "deferred", "the task to give its slot back", 240)
        (info,) = self.client.runs()
        run = self.client.run(info.run)
        links = self.airflow.get(f"/dags/{DAG}/dagRuns/{self.dag_run}/taskInstances/sent/links")["extra_links"]
        assert links == {"Run in stager": f"{self.client.server}/#/runs/{info.run}"}, "the link of a task that still waits"
        self.airflow.clear(DAG, self.dag_run, "sent")
        wait_until(lambda: run.status().info.state != "active", "the run to be stopped with its task")
        wait_until(lambda: run.status().info.state == "active" and self.state() == "deferred", "the next try to go on with it", 240)
        self.airflow.kill("triggerer")
        (self.data / "open").touch()
        assert run.wait_finished(240).state == "succeeded"
        self.airflow.start_one("triggerer")

    def ends(self) -> None:
        assert self.airflow.ended(DAG, self.dag_run) == "success", self.airflow.task_log(DAG, self.dag_run, "sent", 2)
        assert len(self.client.runs()) == 1
        logs = "".join(self.airflow.task_log(DAG, self.dag_run, "sent", number) for number in (1, 2))
        assert "is active: 0 of 1 jobs done" in logs, "what it waited for, in its own log though the triggerer says it"
        assert "XCom not found" not in logs
        assert (self.data / "out" / DAG).read_text() == "hello\n"
