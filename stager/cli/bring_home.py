"""`stager bring-home RUN FILE`."""

from __future__ import annotations

from pathlib import Path

import click

from stager.cli.exits import Exit
from stager.cli.options import RunName, Where, settings_of, where_option


@click.command(
    epilog="""\b
Example:
  stager submit workflow.yml --server https://stager.example.org --detach
  stager bring-home montage-3f2a workflow.yml --server https://stager.example.org"""
)
@click.argument("run", type=RunName())
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@where_option
def command(run: str, file: Path, where: Where) -> int:
    """Bring the finals of RUN whose places are beside the workflow file FILE, from the service (--server) that ran it. `stager submit
    --server` does so by itself, unless it was detached. Content that is there already is not overwritten, unless the workflow says
    `on_exists: replace`.
    """
    if not where.server:
        raise click.UsageError("runs of a state directory write their finals themselves: name the service with --server")
    from stager.cli.reach import find_run, reach_service
    from stager.cli.remote import directories_of
    from stager.readers.native_params import sent_values

    with reach_service(where) as client:
        found = find_run(client, run)
        values = sent_values(found.status().params)
        brought = directories_of(file, settings_of(where.state_dir).environ, values)
        left = brought.bring_home(client, found.name, found.ledger(), click.echo) if brought is not None else 0
    return int(Exit.NOT_DURABLE if left else Exit.OK)
