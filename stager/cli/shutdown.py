"""`stager shutdown`."""

from __future__ import annotations

from pathlib import Path

import click

from stager.cli.options import settings_of, state_dir_option
from stager.client import connect


@click.command(
    epilog="""\b
Example:
  stager shutdown
  stager shutdown --now"""
)
@click.option("--now", is_flag=True, help="kill running jobs instead of letting them end")
@state_dir_option
def command(now: bool, state_dir: Path | None) -> None:
    """End the scheduler of this state directory and its I/O node. Runs that go on are interrupted and can be resumed. It ends by itself
    soon after its last run.
    """
    settings = settings_of(state_dir)
    client = connect(settings.state_dir)
    if client is None:
        click.echo(f"no scheduler runs for {settings.state_dir}")
        return
    with client:
        client.shutdown(now=now)
    click.echo("the scheduler is ending")
