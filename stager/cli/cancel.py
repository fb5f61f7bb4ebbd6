"""`stager cancel RUN...`."""

from __future__ import annotations

import click

from stager import wire
from stager.cli.exits import Exit
from stager.cli.options import RunName, Where, where_option
from stager.cli.reach import find_run, reach
from stager.model.errors import Refused
from stager.model.units import counted, format_size

FILES_SHOWN = 20
FOR_GOOD = ("succeeded", "cancelled")


@click.command(
    epilog="""\b
Example:
  stager cancel montage-3f2a
  stager cancel montage-3f2a montage-3f2b --yes"""
)
@click.argument("runs", nargs=-1, required=True, type=RunName())
@click.option("--yes", is_flag=True, help="do not ask")
@where_option
def command(runs: tuple[str, ...], yes: bool, where: Where) -> int:
    """End RUNS for good: kill their jobs, call off their transfers, drop what they made that is not durable. Names those bytes and asks
    first, once for all; where one of them is over already, none is ended. To go on later use Ctrl-C and `stager resume`.
    """
    with reach(where) as client:
        found = list({run.name: run for run in (find_run(client, name) for name in runs)}.values())
        for run in found:
            now = run.wait(timeout_s=0)
            if now.finished and now.state in FOR_GOOD:
                raise Refused(f"run {run.name} has ended already: it is {now.state}", code="run_over", subject=run.name)
        for run in found:
            tell_losses(run.losses(), of=f" of run {run.name}" if len(found) > 1 else "")
        asked = f"run {found[0].name}" if len(found) == 1 else f"{len(found)} runs ({', '.join(run.name for run in found)})"
        if not yes and not click.confirm(f"cancel {asked}?", err=True):
            return Exit.REFUSED
        # All are told first: they end side by side.
        for run in found:
            run.cancel()
        for run in found:
            click.echo(f"run {run.name}: {run.wait_finished().state}")
        return Exit.OK


def tell_losses(losses: wire.Losses, of: str) -> None:
    if losses.files:
        what = f"{format_size(losses.size_bytes)} in {counted(len(losses.files), 'file')}{of}"
        click.echo(f"{what} would be lost, made and not durable anywhere:", err=True)
        for lfn in losses.files[:FILES_SHOWN]:
            click.echo(f"  {lfn}", err=True)
        if len(losses.files) > FILES_SHOWN:
            click.echo(f"  and {len(losses.files) - FILES_SHOWN} more", err=True)
    if losses.jobs_running:
        click.echo(f"{losses.jobs_running} running jobs{of} would be killed", err=True)
