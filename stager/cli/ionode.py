"""`stager ionode`: I/O nodes of other hosts, reached by ssh."""

from __future__ import annotations

from typing import Any

import click

from stager.cli.by_ssh import bring_down, bring_up, down_options, size_option, up_options


@click.group(
    epilog="""\b
Example:
  stager ionode up ssh://me@io1/srv/stager --capacity '500 GB'"""
)
def command() -> None:
    """Bring up an I/O node on another host, from the scheduler's, and end it. `stager node` is for nodes that are in the cluster."""


@command.command(
    "up",
    epilog="""\b
Example:
  stager ionode up ssh://me@io1/srv/stager --capacity '500 GB'
  stager ionode up ssh://io2 --node-id io2""",
)
@click.argument("url", metavar="ssh://[USER@]HOST[:PORT][/DIR]")
@size_option("--capacity", "space for replicas; default: four fifths of what is free there")
@click.option(
    "--listen", default="", metavar="IP:PORT", help="where others reach the node; default: a free port of that host's own address"
)
@up_options
def up(url: str, capacity: int | None, listen: str, node_id: str, **how: Any) -> None:
    """Copy this stager to a host by ssh, and have an I/O node of the cluster run there in DIR.

    The key of the host has to be in known_hosts. Your ssh configuration, keys and agent are used. The host needs Python of the same version
    as here, and nothing else. Called again it does nothing where all is as it should be, and changes what is said now.
    """
    from stager.service.host_node import Wanted

    bring_up(url, is_node=True, wanted=Wanted(node_id, capacity, listen), how=how)


@command.command(
    "down",
    epilog="""\b
Example:
  stager ionode down ssh://me@io1/srv/stager""",
)
@click.argument("url", metavar="ssh://[USER@]HOST[:PORT][/DIR]")
@click.option("--now", "is_now", is_flag=True, help="do not wait: what only it holds is there again when it is up again")
@down_options
def down(url: str, is_now: bool, **how: Any) -> None:
    """Drain the I/O node of a host that was brought up, and end it when nothing would be lost with it. Its store stays."""
    bring_down(url, is_node=True, is_now=is_now, how=how)
