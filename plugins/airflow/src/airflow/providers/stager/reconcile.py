"""Events get lost: what the service still keeps for DagRuns and tasks is compared with what Airflow's own REST API says of them.

May know: both REST APIs. One rule: what the service holds is asked first, so that nothing is called lost that began in between.
`python -m airflow.providers.stager.reconcile --once` does it from anywhere, by cron for instance; the scheduler does it by itself where the
connection says `airflow_api_url`.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.stager import service
from airflow.providers.stager.calls import call_name
from airflow.providers.stager.graph import DagFact
from airflow.providers.stager.hand_in import HAND_IN, HAND_IN_S
from airflow.providers.stager.runs import GENERATIONS_MAX, DagRunId

if TYPE_CHECKING:
    import httpx
    from airflow.providers.stager.service import Service

    from stager import wire

log = logging.getLogger(__name__)
TIMEOUT_S = 30.0
OWN = re.compile(r"of (\S+) \d+")
EVERY_S = 60.0
ACTIVE = frozenset(("active", "failed", "not_durable"))
TASK_OVER = frozenset(("success", "failed", "skipped", "upstream_failed", "removed", "up_for_retry"))


@dataclass(frozen=True, slots=True)
class Followed:
    """A run of the service that is of a DagRun of this Airflow. `call`: of which try it is, if it is one's own."""

    run: str
    ident: DagRunId
    call: str = ""


class Airflow:
    """Its REST API, as one user."""

    def __init__(self, url: str, user: str, password: str) -> None:
        import httpx

        from stager.client.proxies import mounts_for

        self.url, self.http = url, httpx.Client(base_url=url, timeout=TIMEOUT_S, mounts=mounts_for(url))
        try:
            token = self._token(user, password)
        except httpx.TransportError as problem:
            raise RuntimeError(f"Airflow's API at {url} does not answer: {problem}") from problem
        self.http.headers["Authorization"] = f"Bearer {token}"

    def _token(self, user: str, password: str) -> str:
        """Without a user: of an Airflow that asks nobody who they are."""
        asked = {"username": user, "password": password}
        answer = self.http.post("/auth/token", json=asked) if user else self.http.get("/auth/token")
        self._good(answer, "a token")
        return str(answer.json()["access_token"])

    def state_of(self, ident: DagRunId) -> str:
        """Empty: there is no such DagRun."""
        answer = self.http.get(self._path(ident))
        if answer.status_code == 404:
            return ""
        return str(self._good(answer, ident.title).json()["state"])

    def tries(self, ident: DagRunId) -> dict[str, list[dict[str, Any]]]:
        """The newest try of each task, by its id."""
        found: dict[str, list[dict[str, Any]]] = {}
        offset = 0
        while True:
            asked = {"limit": 100, "offset": offset}
            page = self._good(self.http.get(f"{self._path(ident)}/taskInstances", params=asked), ident.title).json()
            for each in page["task_instances"]:
                found.setdefault(each["task_id"], []).append(each)
            offset += len(page["task_instances"])
            if not page["task_instances"] or offset >= page["total_entries"]:
                return found

    def _path(self, ident: DagRunId) -> str:
        return f"/api/v2/dags/{quote(ident.dag_id, safe='')}/dagRuns/{quote(ident.run_id, safe='')}"

    def _good(self, answer: httpx.Response, what: str) -> httpx.Response:
        if answer.is_error:
            raise RuntimeError(f"Airflow's API answered {answer.status_code} when asked for {what}; check airflow_api_url and its user")
        return answer


def reconcile_if_asked() -> None:
    found = service.connected(TIMEOUT_S)
    with found.client:
        if found.airflow_url:
            reconcile(found)


def reconcile(found: Service) -> list[str]:
    """A line for each thing that was mended. Raises StagerError or RuntimeError where one of the two cannot be asked."""
    followed = list(followed_runs(found))
    open_calls = {each.run: found.client.engine(each.run).open_calls() for each in followed}
    airflow = Airflow(found.airflow_url, found.airflow_user, found.airflow_password)
    done: list[str] = []
    with closing(airflow.http):
        for each in followed:
            done += reconciled(found, airflow, each, open_calls[each.run])
    for line in done:
        log.warning("%s", line)
    return done


def reconciled(found: Service, airflow: Airflow, each: Followed, open_calls: list[wire.OpenCall]) -> list[str]:
    state, engine = airflow.state_of(each.ident), found.client.engine(each.run)
    if state not in ("running", "queued"):
        if found.client.run(each.run).status().info.state not in ("active",):
            return []
        loose = service.loose_of(DagFact(each.ident.dag_id, ()), each.ident.run_id)
        if state == "failed":
            loose.failed()
        else:
            loose.clear()
        engine.end(state == "success", f"the DagRun is {state or 'deleted'}")
        return [f"{each.ident.title} is {state or 'deleted'}, and run {each.run} was not told: ended now"]
    done = []
    tries = airflow.tries(each.ident)
    if each.call:
        now = {call_of(one): one["state"] for of_task in tries.values() for one in of_task}.get(each.call)
        if now is None or now in TASK_OVER:
            engine.end(False, "its task is over, and stager was not told")
            done.append(f"{each.ident.title}: run {each.run} of {each.call} was open, though that is over: ended now")
        return done
    for job in open_calls:
        if job.call.startswith(HAND_IN) and job.open_s < HAND_IN_S:
            # A task hands in just now what that one made without the service.
            continue
        newest = {call_of(one): one["state"] for one in tries.get(job.job, ())}
        now = newest.get(job.call)
        if job.call in newest and now not in TASK_OVER:
            continue
        # A task that succeeded has handed over by itself; what is still open after that was marked by hand, and may be half written.
        message = f"the task is {now}" if now else "another try of the task has begun"
        engine.fail(job.job, job.call, f"{message}, and stager was not told")
        done.append(f"{each.ident.title}: call {job.call} of {job.job} was open, though {message}: given back now")
    return done


def call_of(one: dict[str, Any]) -> str:
    return call_name(one["task_id"], one["map_index"], one["try_number"], str(one["id"]))


def followed_runs(found: Service) -> Iterator[Followed]:
    """Runs that are not over, whose key is the one that this Airflow gives to the DagRun which they are called by."""
    for info in found.client.runs():
        dag_id, space, rest = info.workflow.partition(" ")
        run_id, _, part = rest.partition(" ")
        if not space or info.state not in ACTIVE:
            continue
        ident = DagRunId(dag_id, run_id, found.deployment)
        own = OWN.fullmatch(part)
        if any(run == info.run for run in runs_of(found, ident, part)):
            yield Followed(info.run, ident, own[1] if own else "")


def runs_of(found: Service, ident: DagRunId, part: str) -> Iterator[str]:
    for generation in range(GENERATIONS_MAX):
        run = found.client.run_of_key(ident.key(part, generation))
        if not run:
            return
        yield run


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m airflow.providers.stager.reconcile", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--once", action="store_true", help=f"not again every {EVERY_S:.0f} s")
    asked = parser.parse_args(words)
    while True:
        problem = reconciled_once()
        if problem:
            sys.stderr.write(f"{problem}\n")
        if asked.once:
            return 1 if problem else 0
        time.sleep(EVERY_S)


def reconciled_once() -> str:
    """The reason why nothing was reconciled, in one line; empty: it was."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    from stager.model.errors import StagerError

    try:
        found = service.connected(TIMEOUT_S)
        with found.client:
            if not found.airflow_url:
                return f"connection {service.conn_id()!r} does not say where Airflow's API is; set airflow_api_url in its extra"
            lines = reconcile(found)
    except (AirflowNotFoundException, StagerError, RuntimeError, ValueError) as problem:
        return str(problem)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
