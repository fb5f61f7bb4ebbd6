"""What the api-server of Airflow shows of the provider: the form of a connection, its Test button, the link of a task. The real
application, called in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.api_fastapi.app import create_app
from fastapi.testclient import TestClient

from stager.client import RestClient
from tests.airflow.dag_rig import run_dag, told
from tests.e2e.serve_rig import Service, small
from tests.testbed.sshd import Sshd


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with TestClient(create_app(), base_url="http://127.0.0.1") as client:
        client.headers["Authorization"] = f"Bearer {client.get('/auth/token').json()['access_token']}"
        yield client


def test_the_form_of_a_connection(api: TestClient) -> None:
    hooks = {each["connection_type"]: each for each in api.get("/ui/connections/hook_meta").json()}
    form = hooks["stager"]
    assert form["hook_name"] == "Stager"
    assert form["standard_fields"]["password"]["title"] == "Token" and form["standard_fields"]["login"]["hidden"]
    assert {"dashboard_url", "deployment", "airflow_api_url"} <= set(form["extra_fields"])
    assert form["extra_fields"]["airflow_api_password"]["schema"]["format"] == "password"


@pytest.mark.parametrize(
    ("scope", "status", "told_of"), [("submit", True, "the token may submit"), ("read", False, "scope 'read'"), ("none", False, "token")]
)
def test_the_test_button(api: TestClient, service: Service, scope: str, status: bool, told_of: str) -> None:
    token = service.token("t", scope) if scope != "none" else "stranger"
    address, port = service.url.removeprefix("http://").split(":")
    fields = {"connection_id": "tried", "conn_type": "stager", "host": address, "port": int(port), "password": token}
    answer = api.post("/api/v2/connections/test", json=fields)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] is status and told_of in answer.json()["message"] and token not in answer.text


def test_the_link_of_a_task_that_stages(served: Service, client: RestClient, lab: Sshd) -> None:
    run = run_dag(
        "staged_link",
        f"""
raw = Asset("paged-header", uri="sftp://127.0.0.1:{lab.port}{lab.data}/region.hdr")

@task.stager(inlets=[raw])
def look(files):
    return files[raw].read_text()

look()
""",
    )
    assert told(run, "look") == "header\n"
    page = f"{served.url}/#/runs/{told(run, 'look', 'stager_run')}/jobs/look"
    assert told(run, "look", "_link_StagerRunLink") == page


def test_the_link_of_a_task(api: TestClient, service: Service, token: str, connect, data: Path) -> None:
    connect("stager_default", service, token)
    text = small(data, "linked")
    run = run_dag(
        "linked",
        f"""
from airflow.providers.stager.operators.submit import StagerSubmitOperator
StagerSubmitOperator(task_id="sent", workflow={text!r})
""",
    )
    found = api.get(f"/api/v2/dags/linked/dagRuns/{run.run_id}/taskInstances/sent/links")
    assert found.json()["extra_links"] == {"Run in stager": f"{service.url}/#/runs/{told(run, 'sent', 'stager_run')}"}, found.text
