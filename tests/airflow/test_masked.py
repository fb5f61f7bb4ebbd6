"""Secrets that Airflow knows, in what a task says when it fails. One rule: the masker is Airflow's own."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.providers.stager import masked as masking
from airflow.providers.stager.calls import Called, Calls
from airflow.providers.stager.masked import masked
from airflow.sdk import Connection

from stager.client import RestClient
from tests.airflow.dag_rig import run_dag, state_of
from tests.airflow.test_dag_runs import ended
from tests.e2e.serve_rig import Service
from tests.testbed.sshd import Sshd

PASSWORD = "correct-horse-battery"


class Told(list[str]):
    """What the run of a call is told."""

    def fail(self, job: str, call: str, message: str) -> None:
        self.append(message)

    def end(self, succeeded: bool, message: str) -> None:
        self.append(message)


def test_a_password_in_an_exception_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a connection, which Airflow masks from the moment in which it is asked for."""
    monkeypatch.setenv("AIRFLOW_CONN_MASKED_DB", json.dumps({"conn_type": "generic", "login": "me", "password": PASSWORD}))
    there, said = Connection.get("masked_db"), Told()
    called = Called(SimpleNamespace(run=said), "half", "try-1", SimpleNamespace(), own=True)
    Calls(attempt=SimpleNamespace(), dag=SimpleNamespace(), staged=[called]).give_back(f"no database at {there.login}:{there.password}@db")
    assert said == ["no database at me:***@db"] * 2


def kept(served: Service, text: str) -> list[str]:
    return [str(path) for path in served.stager.state_dir.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_no_file_of_the_service_and_no_answer_has_it(
    lab: Sshd, served: Service, client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"conn_type": "generic", "host": "db.example.org", "login": "me", "password": PASSWORD}
    monkeypatch.setenv("AIRFLOW_CONN_MASKED_DB", json.dumps(fields))
    url = f"sftp://127.0.0.1:{lab.port}{lab.data}"
    result = run_dag(
        "masks",
        f"""
from airflow.sdk import Connection

# Names of assets are one for all of an Airflow, and each module of tests has a lab of its own.
raw, product = Asset("masked-raw", uri="{url}/raw/t1.fits"), Asset("masked-product", uri="{url}/out/masks")

"""
        + """
@task.stager(inlets=[raw], outlets=[product])
def half(files):
    there = Connection.get("masked_db")
    raise RuntimeError(f"no database at {there.login}:{there.password}@{there.host}: mended by nobody")

half()
""",
    )
    assert state_of(result, "half") == "failed"
    run = client.run(ended(client, "masks").run)
    said = f"{run.jobs()} {run.explain(job='half')} {run.summary()}"
    assert "RuntimeError: no database at me:***@db.example.org" in said and PASSWORD not in said
    assert not kept(served, PASSWORD)


def test_a_long_text_is_masked_before_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.log import mask_secret

    mask_secret(PASSWORD)
    said = masked("x" * 990 + PASSWORD)[:1000]
    assert said == "x" * 990 + "***"


def test_without_a_masker_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> str:
        raise ValueError(text)

    monkeypatch.setattr(masking, "maskers", lambda: ())
    assert PASSWORD not in masked(PASSWORD)
    monkeypatch.setattr(masking, "maskers", lambda: (broken,))
    assert PASSWORD not in masked(PASSWORD) and "ValueError" in masked(PASSWORD)


def test_what_airflow_says_of_a_dag_run_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the masker of Airflow's core, in its scheduler."""
    from airflow._shared.secrets_masker import mask_secret

    mask_secret("only-the-core-knows")
    assert masked("failed by only-the-core-knows") == "failed by ***"
