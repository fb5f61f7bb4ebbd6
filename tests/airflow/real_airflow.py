"""Airflow as its users run it: scheduler, API server, DAG processor and triggerer, each in a process group of its own.

One rule: what it started ends with it, whatever state it is in.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Any

import httpx

from tests.testbed.processes import free_port
from tests.testbed.waiting import wait_until

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
START_S = 360.0
# Its API server takes 20 ms and more of the processor for each answer.
PAUSE_S = 0.5
# Everything at once on few cores: what waits by default waits less, and nothing is started in copies.
QUICK = {
    "AIRFLOW__API__HOST": "127.0.0.1",
    "AIRFLOW__API__WORKERS": "1",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
}


class RealAirflow:
    """In AIRFLOW_HOME of this process's environment."""

    def __init__(self, env: dict[str, str]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # Components that start at the same time would each make up their own.
        secrets = {name: uuid.uuid4().hex * 3 for name in ("AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__API__SECRET_KEY")}
        own = {"AIRFLOW__API__PORT": str(self.port), "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/"}
        self.env = {**os.environ, **QUICK, **secrets, **own, **env}
        self.env_of: dict[str, dict[str, str]] = {}
        home = Path(os.environ["AIRFLOW_HOME"])
        self.logs, self.dags = home / "components", home / "real_dags"
        self.logs.mkdir()
        self.dags.mkdir()
        self.env["AIRFLOW__CORE__DAGS_FOLDER"] = str(self.dags)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.http = httpx.Client(base_url=self.url, timeout=120.0)

    def start(self) -> None:
        for name in COMPONENTS:
            self.start_one(name)
        wait_until(self._healthy, "Airflow to be healthy", START_S, PAUSE_S)
        self.http.headers["Authorization"] = f"Bearer {self.http.get('/auth/token').json()['access_token']}"

    def start_one(self, name: str) -> None:
        with (self.logs / f"{name}.log").open("ab") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            env = {**self.env, **self.env_of.get(name, {})}
            self.processes[name] = subprocess.Popen(["airflow", name], env=env, start_new_session=True, **streams)

    def kill(self, name: str) -> None:
        """At once, with all that it started."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait(20)

    def _healthy(self) -> bool:
        for name, process in self.processes.items():
            assert process.poll() is None, self.log(name)
        with contextlib.suppress(httpx.TransportError, ValueError):
            said = self.http.get("/api/v2/monitor/health").json()
            return all(said[part]["status"] == "healthy" for part in ("scheduler", "dag_processor", "triggerer"))
        return False

    def log(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text()[-20_000:]

    def get(self, path: str) -> dict[str, Any]:
        return dict(self.http.get(f"/api/v2{path}").raise_for_status().json())

    def trigger(self, dag: str) -> str:
        """The id of a new DagRun."""
        wait_until(lambda: self.http.get(f"/api/v2/dags/{dag}").status_code == 200, f"{dag} to be parsed", START_S, PAUSE_S)
        made = self.http.post(f"/api/v2/dags/{dag}/dagRuns", json={"logical_date": None})
        return str(made.raise_for_status().json()["dag_run_id"])

    def state(self, dag: str, run: str) -> str:
        return str(self.get(f"/dags/{dag}/dagRuns/{run}")["state"])

    def ended(self, dag: str, run: str) -> str:
        wait_until(lambda: self.state(dag, run) in ("success", "failed"), f"{dag} {run} to end", START_S, PAUSE_S)
        return self.state(dag, run)

    def tries(self, dag: str, run: str) -> dict[str, dict[str, Any]]:
        return {each["task_id"]: each for each in self.get(f"/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]}

    def task_log(self, dag: str, run: str, task: str, number: int = 1) -> str:
        return self.http.get(f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/{number}").text

    def clear(self, dag: str, run: str, task: str) -> None:
        body = {"dry_run": False, "dag_run_id": run, "task_ids": [task], "include_downstream": True, "only_failed": False}
        self.http.post(f"/api/v2/dags/{dag}/clearTaskInstances", json=body).raise_for_status()

    def mark(self, dag: str, run: str, state: str) -> None:
        """As somebody does by hand. The API server tells listeners of that, and not the scheduler."""
        self.http.patch(f"/api/v2/dags/{dag}/dagRuns/{run}", json={"state": state}).raise_for_status()

    def mark_task(self, dag: str, run: str, task: str, state: str) -> None:
        path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}"
        self.http.patch(path, json={"new_state": state}).raise_for_status()

    def end(self) -> None:
        self.http.close()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
            for process in self.processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
