"""`stager node`: the I/O nodes of a scheduler, listed, drained and forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from stager import wire
from stager.cli.options import Where, json_option, print_json, where_option
from stager.cli.reach import reach
from stager.cli.tables import print_table
from stager.model.errors import Refused
from stager.model.units import counted, format_size

if TYPE_CHECKING:
    from stager.client import Client, RestClient

LOOK_AGAIN_S = 1.0
STORE_SHOWN = 8


@click.group(
    epilog="""\b
Example:
  stager node list
  stager node drain node1 --wait
  stager node forget node1 --why 'its disk died'"""
)
def command() -> None:
    """List the I/O nodes, and take one out of service."""


@command.command(
    "list",
    epilog="""\b
Example:
  stager node list
  stager node list --server http://127.0.0.1:7433 --json""",
)
@where_option
@json_option
def listed(where: Where, as_json: bool) -> None:
    """Each node: where it is, its state and since when, how full it is, and what would be lost with it now.

    up: it answers. away: it does not answer; what it holds is not lost. draining: it takes nothing more, and gives away what only it
    holds. gone: it was forgotten. refused: it refused this scheduler. unknown: it was never heard of.
    """
    with reach(where) as client:
        nodes = client.nodes()
    if as_json:
        print_json([node.model_dump(mode="json", exclude={"pid"}) for node in nodes])
        return
    columns = [("node", "left"), ("state", "left"), ("since", "left"), ("used", "right"), ("capacity", "right")]
    columns += [("only there", "left"), ("store", "left"), ("address", "left")]
    print_table(columns, (row_of(node) for node in nodes))
    for node in nodes:
        if node.kept_bytes:
            click.echo(f"{node.node}: kept results: {format_size(node.kept_bytes)}, evictable")
        if said := node.why or node.problem:
            click.echo(f"{node.node}: {said}")


def row_of(node: wire.NodeView) -> tuple[str, ...]:
    since = datetime.fromtimestamp(node.since, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S") if node.since else ""
    state = node.state if node.connected or node.state != "draining" else "draining, away"
    sizes = format_size(node.used_bytes), format_size(node.capacity_bytes)
    return node.node, state, since, *sizes, unsafe_text(node) or "-", node.store_id[:STORE_SHOWN], node.address


@command.command(
    "drain",
    epilog="""\b
Example:
  stager node drain node1 --wait
  stager node drain node1 --undo""",
)
@click.argument("node")
@click.option("--undo", is_flag=True, help="let it take work again")
@click.option("--wait", is_flag=True, help="tell what is left, and end when the node can go without a loss")
@where_option
@json_option
def drain(node: str, undo: bool, wait: bool, where: Where, as_json: bool) -> None:
    """Have NODE take nothing more and give away what only it holds. Jobs that run beside it go on to their end."""
    if undo and wait:
        raise click.UsageError("--undo leaves nothing to wait for")
    with reach(where) as client:
        view = client.drain_node(node, wire.NodeDrain(undo=undo))
        if wait:
            view = drained(client, view, (lambda line: None) if as_json else click.echo)
    if as_json:
        print_json(view.model_dump(mode="json", exclude={"pid"}))
    else:
        click.echo(f"{node} takes work again" if undo else drained_text(view))


def drained(client: Client | RestClient, view: wire.NodeView, say: Callable[[str], None]) -> wire.NodeView:
    """Of a node that drains, when it can go without a loss. Raises Refused where it drains no more."""
    node, told = view.node, ""
    while view.unsafe_files is not None and unsafe_text(view):
        if view.state != "draining":
            raise Refused(f"the node {node} drains no more: it is {view.state}", code="not_draining", subject=node)
        if (line := drained_text(view)) != told:
            say(told := line)
        time.sleep(LOOK_AGAIN_S)
        view = next(each for each in client.nodes() if each.node == node)
    return view


def drained_text(view: wire.NodeView) -> str:
    away = "" if view.connected else ", and does not answer"
    unsafe = unsafe_text(view)
    return f"{view.node} drains{away}; still there: {unsafe}" if unsafe else f"{view.node} drains{away}; nothing would be lost with it"


def unsafe_text(view: wire.NodeView) -> str:
    """In words; empty where it can go."""
    files = f"{counted(view.unsafe_files, 'file')} ({format_size(view.unsafe_bytes or 0)})" if view.unsafe_files else ""
    jobs = counted(view.unsafe_jobs, "running job") if view.unsafe_jobs else ""
    return ", ".join(part for part in (files, jobs) if part)


@command.command(
    "forget",
    epilog="""\b
Example:
  stager node forget node1 --dry-run
  stager node forget node1 --why 'its disk died'""",
)
@click.argument("node")
@click.option("--why", default="", metavar="TEXT", help="told wherever somebody asks why it is gone")
@click.option("--force", is_flag=True, help="also where it answers and something would be lost with it")
@click.option("--dry-run", is_flag=True, help="only say what would go with it")
@where_option
@json_option
def forget(node: str, why: str, force: bool, dry_run: bool, where: Where, as_json: bool) -> None:
    """Give NODE up for good. What only it held is made or fetched again elsewhere, and its jobs run elsewhere. A node of its name that
    comes later is a stranger: its cached inputs are used, what jobs made there is deleted.
    """
    with reach(where) as client:
        said = client.forget_node(node, wire.NodeForget(dry_run=True))
        if not as_json:
            for line in loss_lines(said):
                click.echo(line)
        if not dry_run:
            said = client.forget_node(node, wire.NodeForget(why=why, force=force))
    if as_json:
        print_json(said.model_dump(mode="json"))
    elif not dry_run:
        click.echo(f"{node} is forgotten")


def loss_lines(loss: wire.NodeLoss) -> list[str]:
    """What goes with it, before it goes."""
    lines = []
    if loss.files_total:
        more = f" and {loss.files_total - len(loss.files)} more" if loss.files_total > len(loss.files) else ""
        lines.append(f"only {loss.node} holds {', '.join(loss.files)}{more} ({format_size(loss.size_bytes)}): jobs make them again")
    if loss.not_again:
        lines.append(f"of these not made again, since their jobs may not run twice: {', '.join(loss.not_again)}")
    if loss.fetched_bytes:
        lines.append(f"{format_size(loss.fetched_bytes)} of inputs that only {loss.node} holds are fetched again")
    if loss.jobs_running:
        lines.append(f"beside {loss.node} {counted(loss.jobs_running, 'job')} would end, and begin again elsewhere")
    return lines or [f"nothing is lost with {loss.node}"]
