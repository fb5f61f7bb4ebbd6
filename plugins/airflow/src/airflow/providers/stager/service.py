"""The service through which the tasks of this Airflow stage, and its settings in Airflow's configuration.

May know: Airflow's configuration, the hook. One rule: one connection for all of an Airflow, since the scheduler and every task must mean
the same runs.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.providers.stager.graph import exchanged
from airflow.providers.stager.loose import Loose
from airflow.providers.stager.runs import DagRunId, Runs

if TYPE_CHECKING:
    from airflow.providers.stager.graph import DagFact
    from airflow.providers.stager.hooks.stager import ServiceAddress

    from stager.client import RestClient

SECTION = "stager"
# Options by their names of today, and what a configuration of before calls them.
BEFORE = {"fallback_dir": "shelf", "fallback_days": "shelf_days"}
# How long a task waits for its inputs before it fetches them itself.
STAGE_TIMEOUT_S = 6 * 3600.0
# How long the files of a DagRun that failed stay in the fallback directory for somebody who clears it.
FALLBACK_DAYS = 30.0
# And for a service that does not answer. One that is started again is back by then; a DAG whose tasks went on without it mixes two ways.
PATIENCE_S = 30.0
# For one that a task cannot do without: what it reads is only there, or what it made is to be handed over.
AWAY_TIMEOUT_S = 1800.0
# Tasks that begin so soon after one has waited in vain ask once: each of a large DAG would wait as long again.
AWAY_S = 300.0


@dataclass(frozen=True, slots=True)
class Service:
    """`deployment`: see `DagRunId`. `airflow_url` and the like: of Airflow's own REST API, to reconcile with; empty where nobody said."""

    client: RestClient
    address: str
    deployment: str = ""
    airflow_url: str = ""
    airflow_user: str = ""
    airflow_password: str = ""

    def runs(self, dag: DagFact, run_id: str) -> Runs:
        return Runs(self.client, dag, DagRunId(dag.dag_id, run_id, self.deployment))


def option(name: str, default: str) -> str:
    from airflow.sdk.configuration import conf

    before = str(conf.get(SECTION, BEFORE[name], fallback="")) if name in BEFORE else ""
    return before or str(conf.get(SECTION, name, fallback=default) or default)


def conn_id() -> str:
    return option("conn_id", "stager_default")


def address() -> ServiceAddress:
    from airflow.providers.stager.hooks.stager import StagerHook

    return StagerHook(conn_id()).address()


def fallback_dir() -> Path:
    """Without a word: beside the directory of the DAGs, which is AIRFLOW_HOME where that was left alone."""
    from airflow.sdk.configuration import conf

    return Path(option("fallback_dir", str(Path(conf.get("core", "dags_folder")).parent / "stager")))


def fallback_days() -> float:
    return float(option("fallback_days", str(FALLBACK_DAYS)))


def patience_s() -> float:
    return float(option("patience_s", str(PATIENCE_S)))


def was_away_just_now(server: str) -> bool:
    """A task, maybe on another worker, has lost its patience with this service."""
    try:
        return abs(time.time() - away_mark(server).stat().st_mtime) < AWAY_S
    except OSError:
        return False


def note(server: str, *, away: bool) -> None:
    """A fallback directory that cannot be written costs the others their patience, nothing more."""
    mark = away_mark(server)
    with suppress(OSError):
        if away:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        else:
            mark.unlink(missing_ok=True)


def away_mark(server: str) -> Path:
    return fallback_dir() / "away" / hashlib.sha256(server.encode()).hexdigest()[:16]


def loose_of(dag: DagFact, run_id: str, *, objects: bool = False) -> Loose:
    """For what tasks of this DagRun move themselves. `objects`: the service is there."""
    name = hashlib.sha256(f"{dag.dag_id}\0{run_id}".encode()).hexdigest()[:16]
    return Loose(fallback_dir(), name, exchanged(dag), conn_id() if objects else "")


def stage_timeout_s() -> float:
    return float(option("stage_timeout_s", str(STAGE_TIMEOUT_S)))


def away_timeout_s() -> float:
    return float(option("away_timeout_s", str(AWAY_TIMEOUT_S)))


def waits_for_home() -> bool:
    return option("wait_for_home", "True").lower() not in ("false", "0", "no", "off")


def connected(timeout_s: float = 120.0) -> Service:
    """Raises AirflowNotFoundException where no connection is, ValueError where it is none that could be used. Asks nothing yet."""
    from airflow.providers.stager.hooks.stager import StagerHook

    hook = StagerHook(conn_id(), timeout_s=timeout_s)
    said = {name: str(value) for name, value in hook.get_connection(conn_id()).extra_dejson.items() if value is not None}
    return Service(
        client=hook.get_conn(),
        address=hook.address().server,
        deployment=said.get("deployment", ""),
        airflow_url=said.get("airflow_api_url", "").rstrip("/"),
        airflow_user=said.get("airflow_api_user", ""),
        airflow_password=said.get("airflow_api_password", ""),
    )
