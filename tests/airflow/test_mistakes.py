"""What users of @task.stager get wrong, and whether the log of the task tells them which file it is about and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.stager.calls import Calls, Try
from airflow.providers.stager.files import TaskFiles
from airflow.providers.stager.graph import DagFact, DagRunPart, FileFact, TaskFact
from airflow.providers.stager.links.stager import StagerRunLink, note_page
from airflow.providers.stager.runs import in_words, refused_files
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.types import TaskInstanceKey

from stager.client import RestClient
from stager.model.errors import InvalidInput, Transient
from tests.airflow.dag_rig import run_dag, state_of, told
from tests.airflow.test_dag_runs import by_airflow, url
from tests.testbed.sshd import Sshd

__all__ = ["by_airflow", "url"]
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
    assert uri in said and "an address that is not of the public internet" in said and "no provider that is installed here" in said, said


@pytest.mark.parametrize(
    ("uri", "told_of"), [("stfp://lab/raw.fits", "did you mean sftp://?"), ("postgres://db/table", "s3, file, http, https, stager")]
)
def test_an_inlet_whose_scheme_is_none_of_ours_is_called_that(lab: Sshd, client: RestClient, uri: str, told_of: str) -> None:
    # The name of an Asset is one URI's for all DAGs.
    name = f"scheme_{uri.partition(':')[0]}"
    body = f"{TELLING}\ndef take(files):\n    return str(files[{name!r}])\n"
    operator = f"Telling(task_id='t', python_callable=take, inlets=[Asset({name!r}, uri={uri!r})])"
    run = run_dag(name, f"{body}\n{operator}\n")
    assert uri in told(run, "t", "said") and told_of in told(run, "t", "said")


@pytest.mark.usefixtures("by_airflow")
def test_an_inlet_that_a_task_cannot_fetch_itself_is_named(url: str, connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's own hook says: no such file."""
    monkeypatch.setattr("stager.client.calls.TRIES", 1)
    monkeypatch.setenv("AIRFLOW__STAGER__PATIENCE_S", "0")
    connect("stager_default", "http://127.0.0.1:9", "token")
    uri = f"{url}/nowhere.fits"
    files = TaskFiles(Calls(Try("d", "r", "t", -1, 1, "named"), DagFact("d", (TaskFact("t", True, (FileFact(uri),)),))))
    with pytest.raises(AirflowException, match=f"{uri} is not to be had. The task itself: .*The service: .*does not answer"):
        files.stage([uri], [])


def test_refusals_are_in_the_words_of_a_dag() -> None:
    mid = "stager://survey/clean.fits"
    part = DagRunPart("", "{}", frozenset(), {mid: "survey/clean.fits", f"{mid}.idx": "survey/clean.fits.idx"}, {})
    said = "'survey/clean.fits' is not there, for job 'clean' has not published it: clear that task, then this one"
    assert in_words(said, part) == f"{mid} is not there, for task 'clean' has not published it: clear that task, then this one"
    assert in_words("call 'try-2.add.0123' took the place of 'x'", part) == "try 2 took the place of 'x'"


def test_the_link_of_a_task_without_a_run_asks_nobody() -> None:
    """XCom answers a question for what it has not with an error in the task's log."""
    key = TaskInstanceKey(dag_id="d", task_id="no-run", run_id="r", try_number=1, map_index=-1)
    assert StagerRunLink().get_link(StagerRunLink(), ti_key=key) == ""
    note_page(key, "http://lab/#/runs/r-1")
    assert StagerRunLink().get_link(StagerRunLink(), ti_key=key) == "http://lab/#/runs/r-1"


def test_an_origin_that_cannot_be_asked_just_now_refuses_no_file() -> None:
    uri = "https://archive.example.org/x.fits"
    part = DagRunPart("", "{}", frozenset(), {uri: "x.fits"}, {})
    key = "files.x.fits.from"
    assert refused_files(part, Transient("the host is not known here", code="origin_unreachable", subject=key)) == {}
    assert refused_files(part, InvalidInput("it is too old", subject=key)) == {uri: "it is too old"}
