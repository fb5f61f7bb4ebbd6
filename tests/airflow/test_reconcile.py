"""What the service holds for tries that are over, beside a stand-in for what Airflow's API says of them. With a real Airflow:
test_real_airflow.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.stager import reconcile, service
from airflow.providers.stager.calls import call_name
from airflow.providers.stager.graph import DagFact, FileFact, TaskFact

from stager.client import RestClient

MID = (FileFact("stager://waits/mid"),)
TASKS = (TaskFact("make", True, outlets=MID), TaskFact("read", True, MID, upstream=("make",)))
DAG, ENDED = DagFact("halfway", TASKS), DagFact("ended", TASKS)


def one(task: str, state: str) -> dict[str, Any]:
    return {"task_id": task, "map_index": -1, "try_number": 1, "id": f"of-{task}", "state": state}


class StandInAirflow:
    """Airflow's answers: one DagRun goes on, its reader was killed while it waited for its inputs; another has failed."""

    http = type("Http", (), {"close": lambda self: None})()

    def __init__(self, *where: str) -> None:
        pass

    def state_of(self, ident: Any) -> str:
        return {DAG.dag_id: "running", ENDED.dag_id: "failed"}.get(ident.dag_id, "success")

    def tries(self, ident: Any) -> dict[str, list[dict[str, Any]]]:
        return {"make": [one("make", "running")], "read": [one("read", "failed")]}


@pytest.mark.usefixtures("client")
def test_a_call_that_still_waits_is_given_back_too(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "Airflow", StandInAirflow)
    found = service.connected()
    opened = found.runs(DAG, "r1").open()
    assert opened is not None
    calls = {task: call_name(task, -1, 1, f"of-{task}") for task in ("make", "read")}
    assert opened.run.call("make", calls["make"]) and opened.run.staged("make", calls["make"]).state.value == "staged"
    assert opened.run.call("read", calls["read"]).state.value == "waiting", "for what the other is to publish"
    done = reconcile.reconcile(found)
    assert [line for line in done if "halfway r1" in line] == [
        f"halfway r1: call {calls['read']} of read was open, though the task is failed: given back now"
    ]
    assert [each.call for each in opened.run.open_calls()] == [calls["make"]]
    opened.run.end(False)


@pytest.mark.usefixtures("client")
def test_a_dag_run_whose_end_was_not_told_is_ended(client: RestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "Airflow", StandInAirflow)
    found = service.connected()
    assert found.runs(ENDED, "r1").open() is not None
    (run,) = [info.run for info in client.runs() if info.workflow == "ended r1"]
    assert [line for line in reconcile.reconcile(found) if "ended r1" in line] == [
        f"ended r1 is failed, and run {run} was not told: ended now"
    ]
    assert client.run(run).wait_finished(60).state == "failed"
    assert [line for line in reconcile.reconcile(found) if "ended r1" in line] == []
