"""`stager host`: this host as a part of a cluster, and the compute hosts of a scheduler, listed, drained and forgotten."""

from __future__ import annotations

import click

from stager import wire
from stager.cli.host_join import join, run, stop
from stager.cli.options import Where, json_option, print_json, where_option
from stager.cli.reach import reach
from stager.cli.tables import print_table
from stager.model.units import counted, format_size


@click.group(
    epilog="""\b
Example:
  stager host join 'https://10.0.0.5:7435/#FINGERPRINT.SECRET'
  stager host list
  stager host drain h1
  stager host forget h1 --why 'its power supply died'"""
)
def command() -> None:
    """Join a cluster with this host. List the compute hosts of a pool, and take one out of service."""


@command.command(
    "list",
    epilog="""\b
Example:
  stager host list
  stager host list --server http://127.0.0.1:7433 --json""",
)
@where_option
@json_option
def listed(where: Where, as_json: bool) -> None:
    """Each host: the I/O node that its jobs read from, its state, and how much of it jobs have.

    open: it takes jobs. away: it does not answer, and its jobs may go on. draining: nothing more is started there.
    """
    with reach(where) as client:
        hosts = client.hosts.listed()
    if as_json:
        print_json([host.model_dump(mode="json") for host in hosts])
        return
    columns = [("host", "left"), ("state", "left"), ("node", "left"), ("attempts", "right"), ("cores", "right")]
    columns += [("memory", "right"), ("scratch", "right"), ("pool", "left")]
    print_table(columns, (row_of(host) for host in hosts))
    if not hosts:
        click.echo("no host has reported here; `stager worker` starts one")


def row_of(host: wire.HostView) -> tuple[str, ...]:
    cores = f"{host.cores_used} of {host.cores}"
    memory, scratch = of(host.memory_used_bytes, host.memory_bytes), of(host.scratch_used_bytes, host.scratch_bytes)
    return host.host, host.state, host.node, str(host.attempts), cores, memory, scratch, host.pool


def of(used_bytes: int, size_bytes: int | None) -> str:
    return "not watched" if size_bytes is None else f"{format_size(used_bytes)} of {format_size(size_bytes)}"


@command.command(
    "drain",
    epilog="""\b
Example:
  stager host drain h1""",
)
@click.argument("host")
@where_option
@json_option
def drain(host: str, where: Where, as_json: bool) -> None:
    """Start nothing more on HOST. What runs there goes on to its end. It is open again when `stager worker` is started anew there."""
    with reach(where) as client:
        view = client.hosts.drain(host)
    if as_json:
        print_json(view.model_dump(mode="json"))
    else:
        click.echo(f"{host} drains; {counted(view.attempts, 'attempt', 'is', 'are')} there")


@command.command(
    "forget",
    epilog="""\b
Example:
  stager host forget h1 --why 'its power supply died'""",
)
@click.argument("host")
@click.option("--why", default="", metavar="TEXT", help="told wherever somebody asks why it is gone")
@click.option("--force", is_flag=True, help="also where it answers")
@where_option
@json_option
def forget(host: str, why: str, force: bool, where: Where, as_json: bool) -> None:
    """Give HOST up: it does not come back as it was. Its attempts are lost, and their jobs run elsewhere, but for those that may not run
    twice. A host of its name that comes later is a new one.
    """
    with reach(where) as client:
        view = client.hosts.forget(host, wire.HostForget(why=why, force=force))
    if as_json:
        print_json(view.model_dump(mode="json"))
    else:
        click.echo(f"{host} is forgotten; {counted(view.attempts, 'attempt', 'was', 'were')} there")


for each in (join, run, stop):
    command.add_command(each)
