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
  stager runs --parts
  stager runs --json | jq '.[0].run'"""
)
@where_option
@click.option("--parts", is_flag=True, help="each run in a line of its own, also those that an engine calls parts of one thing")
@json_option
def command(where: Where, parts: bool, as_json: bool) -> None:
    """List the runs of this state directory, the newest first. Runs of a workflow engine that are parts of one thing (as those of one
    DagRun of Airflow) are one line: it names the first of them, and says what goes on, else the worst.
    """
    with reach(where) as client:
        runs = newest_first(client.runs(parts=parts))
    if as_json:
        print_json([info.model_dump(mode="json") for info in runs])
        return
    counted, named = any(info.parts > 1 for info in runs), parts and any(info.part_of for info in runs)
    columns = [("run", "left"), ("workflow", "left"), ("state", "left"), ("jobs", "right"), ("submitted", "left"), ("took", "right")]
    columns += [("runs", "right")] * counted + [("part of", "left")] * named
    rows = []
    for info in runs:
        when = datetime.fromtimestamp(info.submitted_at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        took = format_duration(info.finished_at - info.submitted_at) if info.finished_at is not None else ""
        what = info.part_of if info.parts > 1 else info.workflow
        row = (info.run, what, info.state, f"{info.jobs_done}/{info.jobs_total}", when, took)
        rows.append((*row, *[str(info.parts)] * counted, *[info.part_of] * named))
    print_table(columns, rows)
