"""`stager resume RUN`."""

from __future__ import annotations

from pathlib import Path

import click

from stager.cli.options import RunName, settings_of, state_dir_option
from stager.cli.prepare import credentials_for
from stager.cli.progress import follow
from stager.cli.reach import find_run, reach
from stager.cli.summary import print_summary


@click.command(
    epilog="""\b
Example:
  stager resume montage-3f2a
  stager resume            (the newest run)"""
)
@click.argument("run", required=False, type=RunName())
@click.option("--detach", is_flag=True, help="return at once")
@click.option("--quiet", "-q", is_flag=True, help="no progress, only the summary")
@state_dir_option
def command(run: str | None, detach: bool, quiet: bool, state_dir: Path | None) -> int:
    """Go on with RUN (default: the newest): after an interruption, a crash, or a failure whose cause was mended. Finished jobs do not run
    again; credentials are read anew.
    """
    with reach(state_dir) as client:
        found = find_run(client, run)
        now = found.wait(timeout_s=0)
        if now.finished and now.state == "succeeded":
            click.echo(f"run {found.name} has succeeded: there is nothing to do")
            return 0
        needs = found.needs()
        found.resume(credentials_for(settings_of(state_dir), needs.origin_values(), set(needs.env_pass)))
        if detach:
            click.echo(found.name)
            return 0
        click.echo(f"run {found.name}: resumed", err=True)
        follow(found, quiet=quiet)
        return int(print_summary(found))
