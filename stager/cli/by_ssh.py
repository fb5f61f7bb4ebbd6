"""What `stager ionode` and `stager worker` share where they bring up another host by ssh: options, and how they tell of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stager.cli.options import Size, json_option, print_json, settings_of, state_dir_option
from stager.model.units import counted, format_size
from stager.service.state_dir import StateDir

if TYPE_CHECKING:
    from stager import wire
    from stager.client import Client
    from stager.service.host_node import Wanted
    from stager.service.up_by_ssh import FarFacts

LOOK_AGAIN_S = 1.0
DONE = {
    "nothing": "is up already with the same version, and nothing was changed",
    "joined": "has joined the cluster",
    "started": "is up again",
    "changed": "is up, with what was said now",
    "replaced": "is up with this version",
}


def up_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Of both."""
    for option in (
        json_option,
        state_dir_option,
        click.option(
            "--address",
            default="",
            metavar="HOST:PORT",
            help="where that host reaches `stager serve --cluster-listen`; default: where it listens",
        ),
        click.option(
            "--systemd", "unit", type=click.Choice(["user", "system"]), help="have systemd keep it running there; default: as it is there"
        ),
        click.option(
            "--replace", "may_replace", is_flag=True, help="where another version runs there: end it and start this one; jobs go on"
        ),
        click.option(
            "--python", default="", metavar="PROGRAM", help="a Python there of the same version as here; default: python3.N or python3"
        ),
        click.option("--node-id", default="", metavar="ID", help="the name of that host and of its node; default: its host name"),
    ):
        command = option(command)
    return command


def size_option(name: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(name, type=Size(), help=text)


def bring_up(url: str, *, is_node: bool, wanted: Wanted, how: dict[str, Any]) -> None:
    """`how`: the options of `up_options`, but for the node's name."""
    from stager.adapters.ssh_link import SshTarget
    from stager.service import up_by_ssh

    target = SshTarget.of(url)
    settings = settings_of(how["state_dir"])
    asked = up_by_ssh.FarUp(target, is_node, wanted, how["python"], how["may_replace"], how["address"], how["unit"] or "")
    facts = up_by_ssh.bring_up(asked, StateDir(settings.state_dir), settings.environ, told_of(target))
    if is_node and facts.done == "started":
        open_again(settings.state_dir, facts.node_id)
    if how["as_json"]:
        print_json(json_of(facts))
    else:
        tell(facts)


def told_of(target: object) -> Callable[[str], None]:
    return lambda text: click.echo(f"{target}: {text}", err=True)


def open_again(state_dir: Path, node: str) -> None:
    """What `stager ionode down` drained."""
    from stager import wire
    from stager.client import connect

    client = connect(state_dir)
    if client is not None:
        with client:
            if any(view.node == node and view.state == "draining" for view in client.nodes()):
                client.drain_node(node, wire.NodeDrain(undo=True))
                click.echo(f"{node} takes work again", err=True)


def down_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Of both."""
    for option in (
        json_option,
        state_dir_option,
        click.option("--python", default="", metavar="PROGRAM", help="a Python there, 3.8 or newer; default: python3"),
    ):
        command = option(command)
    return command


def bring_down(url: str, *, is_node: bool, is_now: bool, how: dict[str, Any]) -> None:
    from stager import wire
    from stager.adapters.ssh_link import SshTarget
    from stager.cli.node import drained, drained_text
    from stager.cli.reach import reach_here
    from stager.service import down_by_ssh

    target = SshTarget.of(url)
    settings, say = settings_of(how["state_dir"]), told_of(target)

    def drain(node: str) -> None:
        with reach_here(how["state_dir"]) as client:
            known = (
                [view.node for view in client.nodes() if view.state != "gone"] if is_node else [view.host for view in client.hosts.listed()]
            )
            if node not in known:
                say("the scheduler has not heard of it, or forgot it, so nothing is drained")
            elif is_node:
                view = client.drain_node(node, wire.NodeDrain())
                say(drained_text(view if is_now else drained(client, view, say)))
            else:
                host_drained(client, client.hosts.drain(node), is_now, say)

    asked = down_by_ssh.FarDown(target, is_node, how["python"])
    facts = down_by_ssh.bring_down(asked, StateDir(settings.state_dir), settings.environ, drain, say)
    if how["as_json"]:
        print_json({"host": facts.host, "node": facts.node_id, "store": facts.store, "ended": facts.ended})
    elif not facts.ended:
        click.echo(f"{facts.node_id} ({facts.host}) has none")
    elif is_node:
        click.echo(f"the node {facts.node_id} has ended; `stager ionode up` starts it again, and `stager node forget` gives it up")
    else:
        click.echo(f"the worker of {facts.node_id} has ended; `stager worker up` starts it again")


def host_drained(client: Client, view: wire.HostView, is_now: bool, say: Callable[[str], None]) -> None:
    """When no attempt is there any more."""
    told = -1
    while view.attempts and not is_now:
        if view.attempts != told:
            told = view.attempts
            say(f"{view.host} drains; {counted(told, 'attempt')} still there")
        time.sleep(LOOK_AGAIN_S)
        found = [each for each in client.hosts.listed() if each.host == view.host]
        if not found:
            return
        view = found[0]


def json_of(facts: FarFacts) -> dict[str, Any]:
    own = {"host": facts.host, "node": facts.node_id, "store": facts.store, "software": facts.software}
    return {**own, "done": facts.done, "sent_files": facts.sent_files, "joined": facts.joined}


def tell(facts: FarFacts) -> None:
    click.echo(f"{facts.node_id} ({facts.host}) {DONE[facts.done]}")
    if "address" in facts.joined:
        click.echo(f"node {facts.node_id} at {facts.joined['address']}: {format_size(facts.joined['capacity_bytes'])} in {facts.store}")
    worker = facts.joined.get("worker")
    if worker and not facts.joined["worker_problem"]:
        click.echo(f"worker {facts.node_id} of the pool {worker['pool']}, beside the node {worker['beside']}; `stager host list` shows it")
    elif worker:
        click.echo(f"no worker yet: {facts.joined['worker_problem']}", err=True)


def scratch_path(scratch: Path | None) -> str:
    """On that host: a path that is not absolute would be one of nobody's directory."""
    if scratch is not None and not scratch.is_absolute():
        raise click.UsageError(f"--scratch {scratch} is a directory of that host; write its whole path")
    return str(scratch) if scratch is not None else ""
