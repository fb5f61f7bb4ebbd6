"""`stager runs`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from stager.cli.options import Where, json_option, print_json, where_option
from stager.cli.reach import newest_first, reach
from stager.cli.tables import print_table
from stager.model.units import format_duration


@click.command(
    epilog="""\b
Example:
  stager runs
  stager runs --json | jq '.[0].run'"""
)
@where_option
@json_option
def command(where: Where, as_json: bool) -> None:
    """List the runs of this state directory, the newest first."""
    with reach(where) as client:
        runs = newest_first(client.runs())
    if as_json:
        print_json([info.model_dump(mode="json") for info in runs])
        return
    columns = [("run", "left"), ("workflow", "left"), ("state", "left"), ("jobs", "right"), ("submitted", "left"), ("took", "right")]
    rows = []
    for info in runs:
        when = datetime.fromtimestamp(info.submitted_at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        took = format_duration(info.finished_at - info.submitted_at) if info.finished_at is not None else ""
        rows.append((info.run, info.workflow, info.state, f"{info.jobs_done}/{info.jobs_total}", when, took))
    print_table(columns, rows)
