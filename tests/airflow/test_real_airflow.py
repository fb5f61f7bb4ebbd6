"""What only a real scheduler does: it tells that DagRuns begin and end, runs tasks in processes of their own, and loses some of it.

One test, since an Airflow takes half a minute to be there.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.stager import reconcile
from airflow.providers.stager.plugin import StagerPlugin

from stager.client import RestClient
from tests.airflow import real_submit
from tests.airflow.real_airflow import RealAirflow
from tests.e2e.serve_rig import Service
from tests.testbed.processes import descendants, end
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

HERE = Path(__file__).parent
INPUTS = {"region.hdr": b"header\n", "raw/t1.fits": b"one\n" * 50_000}
REDUCED = b"image\n" + INPUTS["region.hdr"] + INPUTS["raw/t1.fits"]


def followed(client: RestClient, title: str) -> Any:
    return next((each for each in client.runs() if each.workflow == title), None)


def history(served: Service, client: RestClient, run: str) -> dict[str, Any]:
    return dict(client.http.get(f"api/v1/runs/{run}/history").raise_for_status().json())


def calibrations_come(client: RestClient, title: str) -> None:
    """Until then the task goes on that those who read them wait for."""
    run = client.run(wait_until(lambda: followed(client, title), "the DagRun to be told of").run)
    wait_until(lambda: run.status().fetched_bytes == sum(map(len, INPUTS.values())), "what tasks will read to come")


def prefetched_once_and_home(airflow: RealAirflow, served: Service, client: RestClient, lab: Sshd) -> None:
    """Calibrations were there before the task began that reads them, and crossed once; a cleared task goes on; finals are verified."""
    dag_run = airflow.trigger("night")
    calibrations_come(client, f"night {dag_run}")
    (lab.data / "prefetched").touch()
    assert airflow.ended("night", dag_run) == "failed"
    states = {name: each["state"] for name, each in airflow.tries("night", dag_run).items()}
    wanted = {"observe": "success", "reduce": "success", "draw": "success", "extract": "failed"}
    assert states == wanted, "\n".join(airflow.task_log("night", dag_run, name)[-5000:] for name in states if states[name] != wanted[name])
    first = followed(client, f"night {dag_run}")
    wait_until(lambda: client.run(first.run).status().info.state == "failed", "the end to be told")
    (lab.data / "mended").touch()
    airflow.clear("night", dag_run, "extract")
    assert airflow.ended("night", dag_run) == "success", airflow.task_log("night", dag_run, "extract", 2)
    run = client.run(first.run)
    wait_until(lambda: run.status().info.state == "succeeded", "the end to be told again")
    log = airflow.task_log("night", dag_run, "reduce")
    assert "stager staged 2 inlets" in log and "XCom not found" not in log, log[-5000:]

    told = history(served, client, first.run)
    fetched = {move["lfn"].rpartition("/")[2]: move for move in told["moves"] if move["direction"] == "fetch"}
    assert Counter(move["lfn"].rpartition("/")[2] for move in told["moves"] if move["direction"] == "fetch") == {
        "region.hdr": 1,
        "t1.fits": 1,
    }
    began = datetime.fromisoformat(airflow.tries("night", dag_run)["reduce"]["start_date"]).timestamp()
    for move in fetched.values():
        assert first.submitted_at + move["ended_s"] < began, "it was fetched when its task had begun"
    after = followed(client, f"night {dag_run} after observe")
    moves = history(served, client, after.run)["moves"]
    assert [(move["direction"], move["lfn"].rpartition("/")[2]) for move in moves] == [("fetch", "image.fits")]

    finals = {entry.lfn.rpartition("/")[2]: entry for entry in run.ledger() if entry.final}
    assert {name: entry.state for name, entry in finals.items()} == {"catalog.txt": "durable", "preview.png": "durable"}
    assert all(entry.verified for entry in finals.values())
    assert (lab.data / "out/catalog.txt").read_bytes() == REDUCED.upper()
    assert (lab.data / "out/preview.png").read_bytes() == REDUCED


def lost_events_are_made_up_for(airflow: RealAirflow, client: RestClient, lab: Sshd, capsys: pytest.CaptureFixture[str]) -> None:
    dag_run = airflow.trigger("lost")
    wait_until(lambda: (lab.data / "victim").exists() and (lab.data / "victim").read_text(), "the victim to run", 240)
    wait_until(lambda: (lab.data / "ended_by_hand").exists(), "the other to run", 240)
    run = followed(client, f"lost {dag_run}").run
    airflow.mark_task("lost", dag_run, "ended_by_hand", "failed")
    victim = int((lab.data / "victim").read_text())
    # With what watches over it, so that nobody is left to say a word.
    end((*descendants(victim), victim))
    wait_until(lambda: airflow.tries("lost", dag_run)["victim"]["state"] == "failed", "Airflow to see that it is gone", 240)
    wait_until(lambda: [job.job for job in client.run(run).status().running] == ["victim"], "the other to give back what it was given", 240)
    assert reconcile.main(["--once"]) == 0
    assert "of victim was open, though the task is failed" in capsys.readouterr().out
    wait_until(lambda: not client.run(run).status().running, "its call to be given back")
    airflow.mark("lost", dag_run, "failed")
    assert reconcile.main(["--once"]) == 0
    # Its scheduler may just then look at the tasks, which are all over now. Then it marks the DagRun as well, and tells.
    itself = f"Marking run <DagRun lost @ None: {dag_run}"
    assert "is failed, and run" in capsys.readouterr().out or itself in airflow.log("scheduler")
    assert client.run(run).wait_finished(240).state == "failed"
    assert reconcile.main(["--once"]) == 0
    assert capsys.readouterr().out == ""
    assert not (lab.data / "out/never").exists()


@pytest.fixture
def jobs(service: Service, token: str) -> Iterator[RestClient]:
    """Of a service whose tenant may run programs."""
    with RestClient(service.url, token) as made:
        yield made


@pytest.mark.timeout(1800)
def test_with_a_real_scheduler(
    lab: Sshd,
    served: Service,
    client: RestClient,
    jobs: RestClient,
    data: Path,
    connect: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = {"STAGER_TEST_LAB": f"sftp://127.0.0.1:{lab.port}{lab.data}", "STAGER_TEST_LAB_DISK": str(lab.data)}
    airflow = RealAirflow(at | real_submit.QUICK)
    shutil.copy(HERE / "night_dags.py", airflow.dags)
    submitting = real_submit.Submitting(airflow, jobs, data)
    submitting.write()
    token = served.token("t", "submit")
    # Without the way to Airflow's API nobody reconciles but this test: the scheduler would, and so would what earlier DAGs left here.
    connect("stager_default", served, token)
    connect(real_submit.CONNECTION, jobs.server, jobs.http.headers["Authorization"].removeprefix("Bearer "))
    airflow.env |= {name: value for name, value in os.environ.items() if name.startswith("AIRFLOW_CONN_STAGER_")}
    connect("stager_default", served, token, airflow_api_url=airflow.url)
    monkeypatch.setattr(StagerPlugin.listeners[0].outbox, "reconcile", lambda: None)
    # What it should tell is lost.
    airflow.env_of["api-server"] = {"AIRFLOW_CONN_STAGER_DEFAULT": json.dumps({"conn_type": "stager", "host": "http://127.0.0.1:9"})}
    try:
        airflow.start()
        submitting.begin()
        prefetched_once_and_home(airflow, served, client, lab)
        submitting.outlives_all()
        lost_events_are_made_up_for(airflow, client, lab, capsys)
        submitting.ends()
    finally:
        airflow.end()
