"""`stager host join`, `stager host run` and `stager host stop`: what this host does in a cluster."""

from __future__ import annotations

import logging
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stager.cli.options import Size, json_option, print_json
from stager.model.units import format_size
from stager.service.settings import Settings, read_settings

if TYPE_CHECKING:
    from stager.service.host_node import HostDir
    from stager.service.host_up import HostUp

store_option = click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    help="the directory of this host's node, worker and certificates; default: stager-node where state is kept",
)


@click.command(
    "join",
    epilog="""\b
Example:
  stager host join 'https://10.0.0.5:7435/#FINGERPRINT.SECRET' --store /srv/stager --capacity '500 GB'
  stager host join --store /srv/stager --cores 8
  stager host join 'https://10.0.0.5:7435/#FINGERPRINT.SECRET' --systemd user""",
)
@click.argument("url", required=False)
@store_option
@click.option("--node-id", default="", metavar="ID", help="the name of this host and of its node; default: its host name")
@click.option("--node/--no-node", "has_node", default=None, help="run an I/O node here; default: as before, else yes")
@click.option("--worker/--no-worker", "has_worker", default=None, help="run jobs here; default: as before, else yes")
@click.option("--capacity", type=Size(), help="space for replicas; default: four fifths of what is free")
@click.option(
    "--listen", default="", metavar="IP:PORT", help="where others reach the node; default: a free port of this host's own address"
)
@click.option("--beside", default="", metavar="ID", help="with --no-node: the I/O node that jobs read from")
@click.option("--cores", type=click.IntRange(1), help="cores for jobs; default: all")
@click.option("--memory", type=Size(), help="memory for jobs; default: all")
@click.option("--scratch", type=click.Path(file_okay=False, path_type=Path), help="the directory for jobs' sandboxes; default: in --store")
@click.option("--scratch-size", type=Size(), help="how much of that disk jobs may use; default: 80 % of what is free")
@click.option(
    "--systemd",
    "unit",
    type=click.Choice(["user", "system", "print"]),
    help="have systemd keep it running: write the unit of this user or of the system, or print it",
)
@json_option
def join(
    url: str | None,
    store: Path | None,
    node_id: str,
    has_node: bool | None,
    has_worker: bool | None,
    capacity: int | None,
    listen: str,
    beside: str,
    cores: int | None,
    memory: int | None,
    scratch: Path | None,
    scratch_size: int | None,
    unit: str | None,
    as_json: bool,
) -> None:
    """Have this host store files and run jobs in the cluster that the invite URL is of (`stager cluster invite`).

    An I/O node and a worker of the scheduler's pool go on when this command has ended, and are started again where they end. Called again
    with the same --store it is the same host, and only what is said now changes. Without URL it is started again, as after a reboot. `-`
    reads the URL from standard input, so that no list of processes shows it.
    """
    from stager.service.host_node import Wanted
    from stager.service.host_up import bring_up

    if url == "-":
        url = sys.stdin.readline().strip()
    settings = read_settings()
    place = host_dir(settings, store)
    wanted = Wanted(
        node_id or ("" if place.read() is not None else own_name()),
        capacity,
        listen,
        has_node,
        has_worker,
        beside,
        cores,
        memory,
        str(scratch.absolute()) if scratch is not None else "",
        scratch_size,
    )
    up = bring_up(place, url, wanted, settings.environ, unit or "")
    if as_json:
        print_json(facts_of(place, up))
    else:
        tell(place, up)


def facts_of(place: HostDir, up: HostUp) -> dict[str, object]:
    record, worker = up.record, up.record.worker
    facts: dict[str, object] = {"node": record.node_id, "scheduler": record.scheduler, "store": str(place.store)}
    if up.node is not None:
        facts |= {"address": record.listen, "capacity_bytes": up.node.capacity_bytes, "pid": up.node.pid}
    if worker is not None:
        facts["worker"] = {"pool": worker.pool, "beside": worker.beside, "pid": up.worker_pid}
        facts["worker_problem"] = up.no_worker or up.pool_silent
    if up.unit:
        facts |= {"unit": up.unit, "unit_path": str(up.unit_path or ""), "steps": up.steps}
    return facts


def tell(place: HostDir, up: HostUp) -> None:
    record, worker = up.record, up.record.worker
    if up.node is not None:
        click.echo(f"node {record.node_id} at {record.listen}: {format_size(up.node.capacity_bytes)} in {place.store}")
    if worker is not None and up.no_worker:
        click.echo(f"no worker yet: {up.no_worker}", err=True)
    elif worker is not None:
        click.echo(f"worker {record.node_id} of the pool {worker.pool}, beside the node {worker.beside}; `stager host list` shows it")
        if up.pool_silent:
            text = f"the pool {worker.pool} does not answer this host yet: {up.pool_silent}"
            click.echo(f"{text}; is `stager pool` there, and is its port open?", err=True)
    if up.unit_path is not None:
        click.echo(f"{up.unit_path} is written; nothing runs before you say:")
        for step in up.steps:
            click.echo(f"  {step}")
    elif up.unit:
        click.echo(up.unit, nl=False)
    else:
        click.echo(f"both are kept running; `stager host stop --store {place.root}` ends them", err=True)


@click.command(
    "run",
    epilog="""\b
Example:
  stager host run --store /srv/stager""",
)
@store_option
def run(store: Path | None) -> None:
    """Keep the I/O node and the worker of a host that has joined running, in the foreground: what a service manager starts. SIGTERM and
    Ctrl-C end both, and jobs go on.
    """
    from stager.service.host_keeper import HostKeeper

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    settings = read_settings()
    HostKeeper(host_dir(settings, store), settings.environ).run()


@click.command(
    "stop",
    epilog="""\b
Example:
  stager host stop --store /srv/stager""",
)
@store_option
def stop(store: Path | None) -> None:
    """End the I/O node and the worker of this host. Jobs that run go on. `stager host join --store DIR` starts both again, and takes the
    jobs up.
    """
    from stager.service import host_keeper

    settings = read_settings()
    place = host_dir(settings, store)
    if host_keeper.stop(place, settings.environ):
        click.echo("stopped; `stager host join` without a URL starts it again")
    else:
        click.echo("nothing of this host runs")


def host_dir(settings: Settings, store: Path | None) -> HostDir:
    from stager.service.host_node import HostDir

    return HostDir((store or settings.state_dir.with_name("stager-node")).absolute())


def own_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0])[:128] or "node1"
