"""`stager logs RUN JOB`."""

from __future__ import annotations

import click

from stager.cli.options import RunName, Where, json_option, print_json, where_option
from stager.cli.reach import find_run, reach


@click.command(
    epilog="""\b
Example:
  stager logs montage-3f2a project_07
  stager logs montage-3f2a project_07 --json"""
)
@click.argument("run", type=RunName())
@click.argument("job")
@click.option("--bytes", "tail_bytes", default=65_536, show_default=True, help="of the end of each stream")
@where_option
@json_option
def command(run: str, job: str, tail_bytes: int, where: Where, as_json: bool) -> None:
    """Print what every attempt of JOB wrote to stdout and stderr."""
    with reach(where) as client:
        logs = find_run(client, run).logs(job, tail_bytes=tail_bytes)
    if as_json:
        print_json(logs.model_dump(mode="json"))
        return
    for log in logs.logs:
        where_it_is = f"{log.path}, " if log.path else ""
        click.echo(f"==> {log.attempt} {log.stream} ({where_it_is}{log.size_bytes} bytes)")
        if log.text:
            click.echo(log.text, nl=not log.text.endswith("\n"))
