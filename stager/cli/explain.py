"""`stager explain RUN`."""

from __future__ import annotations

import click

from stager.cli.options import RunName, Where, json_option, print_json, where_option
from stager.cli.reach import find_run, reach


@click.command(
    epilog="""\b
Example:
  stager explain montage-3f2a --file mosaic.fits
  stager explain montage-3f2a --job project_07"""
)
@click.argument("run", type=RunName())
@click.option("--file", "lfn", metavar="LFN", help="a file of the workflow")
@click.option("--job", metavar="JOB", help="a job of the workflow")
@where_option
@json_option
def command(run: str, lfn: str | None, job: str | None, where: Where, as_json: bool) -> None:
    """Tell the timeline of a file or a job of RUN, in order, each step with its cause."""
    if (lfn is None) == (job is None):
        raise click.UsageError("name one thing: --file LFN or --job JOB")
    with reach(where) as client:
        told = find_run(client, run).explain(lfn=lfn, job=job)
    if as_json:
        print_json(told.model_dump(mode="json"))
    else:
        click.echo("\n".join(told.lines))
