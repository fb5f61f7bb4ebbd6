"""`stager cancel RUN`."""

from __future__ import annotations

import click

from stager.cli.exits import Exit
from stager.cli.options import RunName, Where, where_option
from stager.cli.reach import find_run, reach
from stager.model.errors import Refused
from stager.model.units import format_size

FILES_SHOWN = 20
FOR_GOOD = ("succeeded", "cancelled")


@click.command(
    epilog="""\b
Example:
  stager cancel montage-3f2a
  stager cancel montage-3f2a --yes"""
)
@click.argument("run", type=RunName())
@click.option("--yes", is_flag=True, help="do not ask")
@where_option
def command(run: str, yes: bool, where: Where) -> int:
    """End RUN for good: kill its jobs, call off its transfers, drop what it made that is not durable. Names those bytes and asks first. To
    go on later use Ctrl-C and `stager resume`.
    """
    with reach(where) as client:
        found = find_run(client, run)
        now = found.wait(timeout_s=0)
        if now.finished and now.state in FOR_GOOD:
            raise Refused(f"run {found.name} has ended already: it is {now.state}", code="run_over", subject=found.name)
        losses = found.losses()
        if losses.files:
            click.echo(
                f"{format_size(losses.size_bytes)} in {len(losses.files)} files would be lost, made and not durable anywhere:", err=True
            )
            for lfn in losses.files[:FILES_SHOWN]:
                click.echo(f"  {lfn}", err=True)
            if len(losses.files) > FILES_SHOWN:
                click.echo(f"  and {len(losses.files) - FILES_SHOWN} more", err=True)
        if losses.jobs_running:
            click.echo(f"{losses.jobs_running} running jobs would be killed", err=True)
        if not yes and not click.confirm(f"cancel run {found.name}?", err=True):
            return Exit.REFUSED
        found.cancel()
        answer = found.wait_finished()
        click.echo(f"run {found.name}: {answer.state}")
        return Exit.OK
