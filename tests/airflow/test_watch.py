"""A task that is killed gives back what it was given, though it cannot say a word, and nobody reconciles."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from airflow.providers.stager import watch

from stager import rest
from stager.client import RestClient
from tests.airflow.dag_rig import run_dag
from tests.airflow.test_dag_runs import url
from tests.testbed.places import PROJECT
from tests.testbed.processes import descendants, is_alive
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

__all__ = ["url"]
# By the file: Airflow would take seconds to be imported, and has no part in this.
A_TRY = """
import importlib.util, json, os, signal, sys
spec = importlib.util.spec_from_file_location("watch", sys.argv[1])
watch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(watch)
from stager.client import RestClient
said = json.loads(sys.stdin.read())
beside = watch.Watch()
with RestClient(said["server"], said["token"]) as client:
    for run, own in said["runs"]:
        beside.note(client, run, "j", "try-1", own=own)
if said["leaves"]:
    beside.leave()
os.kill(os.getpid(), signal.SIGKILL)
"""


def called(client: RestClient, name: str) -> str:
    """A run of one job, which is called."""
    jobs = {"j": {"outputs": {"x": {"size": 10}}}}
    text = json.dumps({"stager": 1, "name": name, "engine": "airflow", "jobs": jobs})
    run = client.engine_run(rest.EngineSubmission(workflow=text), key=name)
    client.engine(run).call("j", "try-1")
    return run


@pytest.mark.parametrize("leaves", [False, True])
def test_what_a_try_was_given_is_given_back_when_it_dies_and_not_when_it_leaves(client: RestClient, leaves: bool) -> None:
    """Of its DagRun's run, and of one that is its own. A try that leaves has told by itself, or comes back."""
    first, own = called(client, f"first-{leaves}"), called(client, f"own-{leaves}")
    token = client.http.headers["Authorization"].removeprefix("Bearer ")
    said = {"server": client.server, "token": token, "runs": [(first, False), (own, True)], "leaves": leaves}
    words = [sys.executable, "-c", A_TRY, watch.__file__]
    done = subprocess.run(words, cwd=PROJECT, input=json.dumps(said), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    if leaves:
        assert all(client.engine(run).open_calls() for run in (first, own))
    else:
        wait_until(lambda: not client.engine(first).open_calls(), "its call to be given back")
        assert client.run(own).wait_finished(240).state == "failed"
        (job,) = client.run(first).jobs()
        assert job.fault is not None and "gone without a word" in job.fault.message
    assert client.run(first).status().info.state == "active", "its DagRun may go on"
    client.engine(first).end(False)
    if leaves:
        client.engine(own).end(False)


def test_each_try_of_ours_has_its_watch_which_ends_with_it(lab: Sshd, url: str, client: RestClient) -> None:
    # Names that no other DAG gives to files of another lab.
    result = run_dag(
        "watched",
        f"""
import os
from tests.testbed.processes import command_line, descendants

raw, product = Asset("watched-raw", uri="{url}/raw/t1.fits"), Asset("watched-pids", uri="{url}/out/watched")

@task.stager(inlets=[raw], outlets=[product])
def look(files):
    files[product].write_text(" ".join(str(pid) for pid in descendants(os.getpid()) if "watch.py" in command_line(pid)))

look()
""",
    )
    assert result.state == "success"
    (seen,) = (lab.data / "out/watched").read_text().split()
    assert not is_alive(int(seen)) and int(seen) not in descendants(os.getpid())
