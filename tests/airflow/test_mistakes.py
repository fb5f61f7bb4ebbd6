"""What users of @task.stager get wrong, and whether the log of the task tells them which file it is about and what to do."""

from __future__ import annotations

import pytest
from airflow.providers.stager.graph import Part
from airflow.providers.stager.runs import refused_files

from stager.client import RestClient
from stager.model.errors import InvalidInput, Transient
from tests.airflow.dag_rig import run_dag, state_of, told
from tests.testbed.sshd import Sshd

TELLING = """
from airflow.providers.stager.operators.stage import StagerOperator

class Telling(StagerOperator):
    def execute(self, context):
        try:
            return super().execute(context)
        except Exception as problem:
            context["ti"].xcom_push(key="said", value=str(problem))
            raise

def look(files, ti):
    return [path.read_text() for path in files.inputs.values()]
"""


def at(lab: Sshd, name: str) -> str:
    return f"sftp://127.0.0.1:{lab.port}{lab.data}/{name}"


def test_a_file_that_is_not_there_is_named_and_nobody_is_told_to_start_a_service_that_is_there(
    lab: Sshd, client: RestClient, caplog: pytest.LogCaptureFixture
) -> None:
    uri = at(lab, "absent.fits")
    run = run_dag("absent", f"{TELLING}\nTelling(task_id='t', python_callable=look, inlets=[Asset({uri!r})])\n")
    assert state_of(run, "t") == "failed"
    said = told(run, "t", "said")
    assert uri in said and "is missing" in said and "start the service" not in said, said
    (warned,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING" and "absent.fits" in record.getMessage()]
    assert "is missing" in warned


def test_one_host_that_is_refused_keeps_no_other_file_from_being_staged(lab: Sshd, client: RestClient) -> None:
    uri = "https://127.0.0.1:9/x.fits"
    refused = f"Telling(task_id='refused', python_callable=look, inlets=[Asset({uri!r})])"
    body = f"{TELLING}\n{refused}\nTelling(task_id='good', python_callable=look, inlets=[Asset({at(lab, 'region.hdr')!r})])\n"
    run = run_dag("one_host", body)
    assert [state_of(run, task) for task in ("good", "refused")] == ["success", "failed"], told(run, "good", "said")
    assert told(run, "good", "stager_run"), "it was staged by the service"
    said = told(run, "refused", "said")
    assert uri in said and "not an address of the public internet" in said and "no provider that is installed here" in said, said


@pytest.mark.parametrize(
    ("uri", "told_of"), [("stfp://lab/raw.fits", "did you mean sftp://?"), ("postgres://db/table", "s3, file, http, https, stager")]
)
def test_an_inlet_whose_scheme_is_none_of_ours_is_called_that(lab: Sshd, client: RestClient, uri: str, told_of: str) -> None:
    body = f"{TELLING}\ndef take(files):\n    return str(files['raw'])\n"
    run = run_dag("scheme", f"{body}\nTelling(task_id='t', python_callable=take, inlets=[Asset('raw', uri={uri!r})])\n")
    assert uri in told(run, "t", "said") and told_of in told(run, "t", "said")


def test_an_origin_that_cannot_be_asked_just_now_refuses_no_file() -> None:
    uri = "https://archive.example.org/x.fits"
    part = Part("", "{}", frozenset(), {uri: "x.fits"}, {})
    key = "files.x.fits.from"
    assert refused_files(part, Transient("the host is not known here", code="origin_unreachable", subject=key)) == {}
    assert refused_files(part, InvalidInput("it is too old", subject=key)) == {uri: "it is too old"}
