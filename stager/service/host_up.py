"""`stager host join`, whole: a host joins, its node and its worker run and are kept running.

May know: host_node, host_keeper, host_unit. One rule: what can be refused is refused before anything is left running.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from stager.adapters import host_join
from stager.model.errors import Refused
from stager.service.host_keeper import keep, keeper_pid, pool_joined, stop
from stager.service.host_node import HostDir, Record, Wanted, joined, node_started, node_stopped
from stager.service.host_unit import USER, install, unit_text, version_here
from stager.service.settings import current_umask
from stager.wire.node import NodeAbout

PRINT = "print"


@dataclass(frozen=True, slots=True)
class HostUp:
    """`no_worker`: why none runs where one is wanted. `pool_silent`: why its pool does not answer it yet. `unit`: the text of systemd's
    unit, which is at `unit_path` if that is not None; `steps`: the commands that start it.
    """

    record: Record
    node: NodeAbout | None = None
    no_worker: str = ""
    pool_silent: str = ""
    worker_pid: int | None = None
    unit: str = ""
    unit_path: Path | None = None
    steps: list[str] = field(default_factory=list)


def bring_up(place: HostDir, url: str | None, wanted: Wanted, environ: Mapping[str, str], unit: str = "") -> HostUp:
    """`unit`: `user`, `system` or `print`, for one that systemd keeps running. Raises StagerError by name."""
    no_worker = pool_silent = ""
    with place.held():
        record = joined(place, url, wanted, environ)
        if record.worker is not None:
            try:
                record = pool_joined(place, record)
                pool_silent = host_join.why_no_pool(record.worker.pool if record.worker is not None else "", place.pool_tls)
            except Refused as problem:
                if problem.code != "no_pool":
                    raise
                no_worker = problem.message
        node = None
        if record.has_node:
            _, record, node = node_started(place, record, environ)
    up = HostUp(record, node, no_worker, pool_silent)
    if unit:
        return with_unit(place, up, environ, unit)
    return replace(up, worker_pid=keep(place, record, environ).worker_pid)


def with_unit(place: HostDir, up: HostUp, environ: Mapping[str, str], kind: str) -> HostUp:
    """What runs ends, since systemd is to start it."""
    of_whom = USER if kind == PRINT else kind
    text = unit_text(place.root, of_whom, getpass.getuser(), current_umask(), environ, version_here())
    path, steps = (None, []) if kind == PRINT else install(text, kind, environ)
    if keeper_pid(place) is not None:
        stop(place, environ)
    elif up.record.has_node:
        node_stopped(place, up.record, environ)
    return replace(up, unit=text, unit_path=path, steps=steps)
