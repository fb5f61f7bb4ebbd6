"""`stager gc`."""

from __future__ import annotations

from pathlib import Path

import click

from stager.cli.options import json_option, print_json, state_dir_option
from stager.cli.reach import reach_here
from stager.model.units import format_size
from stager.wire import GcRequest


@click.command(
    epilog="""\b
Example:
  stager gc --dry-run
  stager gc --cache
  stager gc montage-3f2a"""
)
@click.argument("runs", nargs=-1)
@click.option("--cache", is_flag=True, help="also drop cached inputs and finals that no unfinished run needs")
@click.option("--dry-run", is_flag=True, help="say what would go, remove nothing")
@state_dir_option
@json_option
def command(runs: tuple[str, ...], cache: bool, dry_run: bool, state_dir: Path | None, as_json: bool) -> None:
    """Remove logs, journal entries and left-over replicas of RUNS (default: all that finished for good). Never touches an origin, nor a
    byte that is not durable.
    """
    with reach_here(state_dir) as client:
        report = client.gc(GcRequest(runs=list(runs), cache=cache, dry_run=dry_run))
    if as_json:
        print_json(report.model_dump(mode="json"))
        return
    verb = "would remove" if dry_run else "removed"
    click.echo(f"{verb} {len(report.runs)} runs, {report.replicas} replicas, {format_size(report.freed_bytes)}")
