"""`stager jobs [RUN]`."""

from __future__ import annotations

import click

from stager.cli.options import RunName, Where, json_option, print_json, where_option
from stager.cli.reach import find_run, reach
from stager.cli.tables import print_table
from stager.scheduler.states import JobState

ALL_OF_THEM = 1_000_000


@click.command(
    epilog="""\b
Example:
  stager jobs
  stager jobs montage-3f2a --state failed
  stager jobs montage-3f2a --json | jq -r '.[].job'"""
)
@click.argument("run", required=False, type=RunName())
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="only jobs that are in this state")
@where_option
@json_option
def command(run: str | None, state: str | None, where: Where, as_json: bool) -> None:
    """The jobs of RUN (default: the newest) by their ids, which `stager logs` and `stager explain` take: state, tries, and why one
    failed.
    """
    with reach(where) as client:
        jobs = find_run(client, run).jobs(state=state, limit=ALL_OF_THEM)
    if as_json:
        print_json([job.model_dump(mode="json", by_alias=True) for job in jobs])
        return
    columns = [("job", "left"), ("state", "left"), ("tries", "right"), ("exit", "right"), ("why", "left")]
    print_table(
        columns,
        [
            (
                job.job,
                job.state,
                str(job.attempts),
                "" if job.exit_code is None else str(job.exit_code),
                job.fault.message if job.fault is not None else "",
            )
            for job in jobs
        ],
    )
