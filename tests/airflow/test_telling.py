"""Telling the service of DagRuns: it costs the scheduler no time, whatever the service does, and nothing is raised into Airflow."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.stager import handoff, macros, reconcile, service
from airflow.providers.stager.calls import patiently
from airflow.providers.stager.graph import DagFact, FileFact, TaskFact
from airflow.providers.stager.handoff import Begun, Ended, Outbox
from airflow.providers.stager.listener import StagerListener

from stager.client import RestClient
from stager.model.errors import Transient
from tests.airflow.test_dag_runs import mortal_service
from tests.e2e.serve_rig import Service
from tests.testbed.processes import free_port
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

DAG = DagFact("survey", (TaskFact("a", True, (FileFact("sftp://lab/raw"),)),))
# The first of a hundred that waited for an answer would wait as long.
AT_ONCE_S = 5.0


@pytest.fixture
def silent() -> Iterator[str]:
    """A service that takes calls and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def outbox() -> Outbox:
    return Outbox(lambda: None, every_s=3600.0)


def test_it_takes_no_time_though_the_service_is_silent(silent: str, connect: Any) -> None:
    connect("stager_default", silent, "token")
    told, began = outbox(), time.monotonic()
    for number in range(100):
        told.tell(Begun(DAG, f"run-{number}"))
    assert time.monotonic() - began < AT_ONCE_S


def test_too_much_is_said_once(silent: str, connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    connect("stager_default", silent, "token")
    monkeypatch.setattr(handoff, "WAITING_MAX", 2)
    told = outbox()
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            told.tell(Begun(DAG, "run-1"))
    assert len([record for record in caplog.records if "too much waits" in record.getMessage()]) == 1


def test_what_cannot_be_told_is_said_once(connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    connect("stager_default", "http://127.0.0.1:9", "token")
    monkeypatch.setattr("stager.client.calls.TRIES", 1)
    told = outbox()
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            told.tell(Begun(replace(DAG, dag_id="told_once"), f"run-{number}"))
        wait_until(lambda: not told.told.unfinished_tasks, "all of it to be tried")
    (said,) = [record.getMessage() for record in caplog.records if "told_once" in record.getMessage()]
    assert "run-0: stager was not told" in said and "http://127.0.0.1:9" in said


def test_an_end_that_could_not_be_told_is_told_when_the_service_is_back(
    session_dir: Path, lab: Sshd, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held for the DagRun would be held for ever."""
    monkeypatch.setattr("stager.client.calls.TRIES", 1)
    dag = DagFact("owed", (TaskFact("a", True, outlets=(FileFact(f"sftp://127.0.0.1:{lab.port}{lab.data}/out/owed"),)),))
    served, told = mortal_service(session_dir, lab), Outbox(lambda: None, every_s=0.2)
    try:
        token = served.start().token("t", "submit")
        connect("stager_default", served, token)
        opened = service.connected().runs(dag, "run-1").open()
        assert opened is not None
        served.kill()
        told.tell(Ended(dag, "run-1", False, "a task failed"))
        told.drain()
        wait_until(lambda: told.owed, "the end to be owed")
        with RestClient(served.start().url, token) as client:
            assert client.run(opened.run.name).wait_finished(240).state == "failed"
        wait_until(lambda: not told.owed, "nothing to be owed any more")
    finally:
        served.end()


def test_who_begins_after_another_has_waited_in_vain_asks_once(
    connect: Any, client: RestClient, served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task of a large DAG would wait as long again."""
    monkeypatch.setattr("stager.client.calls.TRIES", 1)
    monkeypatch.setenv("AIRFLOW__STAGER__PATIENCE_S", "0")
    away = f"http://127.0.0.1:{free_port()}"
    connect("stager_default", away, "token")
    runs = service.connected().runs(DAG, "run-1")
    with pytest.raises(Transient, match="is `stager serve` running there"):
        patiently(runs)
    monkeypatch.setenv("AIRFLOW__STAGER__PATIENCE_S", "3600")
    with pytest.raises(Transient, match="is `stager serve` running there"):
        patiently(runs)
    connect("stager_default", served, served.token("t", "submit"))
    there = service.connected().runs(DAG, "run-1")
    service.note(there.client.server, away=True)
    patiently(there)
    assert not service.was_away_just_now(there.client.server), "it is there again"
    assert service.was_away_just_now(away)


def test_nothing_is_raised_into_airflow() -> None:
    listener = StagerListener()
    for hook in (listener.on_dag_run_running, listener.on_dag_run_success, listener.on_dag_run_failed):
        hook(object(), "")
    listener.on_task_instance_running(None, object())
    listener.on_task_instance_success(None, object())
    listener.on_task_instance_failed(None, object(), None)
    listener.on_task_instance_skipped(None, object())
    assert listener.outbox.thread is None


def test_a_template_that_is_only_shown_stages_nothing() -> None:
    context: dict[str, Any] = {"ti": object()}
    assert macros.input(context, "sftp://lab/raw") == "sftp://lab/raw"
    assert macros.output(context, "sftp://lab/raw") == "sftp://lab/raw"


def test_what_stands_against_reconciling_is_one_line(connect: Any, client: RestClient, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for extra in ({}, {"airflow_api_url": "http://127.0.0.1:9"}):
        connect("stager_default", client.server, client.http.headers["Authorization"].removeprefix("Bearer "), **extra)
        assert reconcile.main(["--once"]) == 1
        said.append(capsys.readouterr().err)
    assert "set airflow_api_url in its extra" in said[0] and "http://127.0.0.1:9 does not answer" in said[1]
    assert all(line.count("\n") == 1 for line in said)
