"""`stager jobs [RUN]`."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click

from stager import wire
from stager.cli.options import RunName, Where, json_option, print_json, where_option
from stager.cli.reach import find_run, reach
from stager.cli.tables import print_table
from stager.model.units import format_duration, format_size
from stager.scheduler.states import JobState

ALL_OF_THEM = 1_000_000


@click.command(
    epilog="""\b
Example:
  stager jobs
  stager jobs montage-3f2a --state failed
  stager jobs montage-3f2a --json | jq -r '.[] | [.job, .duration_s, .memory_peak_bytes] | @tsv'"""
)
@click.argument("run", required=False, type=RunName())
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="only jobs that are in this state")
@where_option
@json_option
def command(run: str | None, state: str | None, where: Where, as_json: bool) -> None:
    """The jobs of RUN (default: the newest) by their ids, which `stager logs` and `stager explain` take: state, tries, and why one
    failed; of the newest try when it began, how long its program ran (of a job under way: until now), and the most memory that one of its
    processes had.
    """
    with reach(where) as client:
        jobs = find_run(client, run).jobs(state=state, limit=ALL_OF_THEM)
    if as_json:
        print_json([job.model_dump(mode="json", by_alias=True) for job in jobs])
        return
    columns = [("job", "left"), ("state", "left"), ("tries", "right"), ("started", "left"), ("took", "right"), ("memory", "right")]
    print_table([*columns, ("exit", "right"), ("why", "left")], [row_of(job, time.time()) for job in jobs])


def row_of(job: wire.JobView, now: float) -> tuple[str, ...]:
    return (
        job.job,
        job.state,
        str(job.attempts),
        time_text(job.started_at, now) if job.started_at is not None else "",
        took(job),
        format_size(job.memory_peak_bytes) if job.memory_peak_bytes is not None else "",
        "" if job.exit_code is None else str(job.exit_code),
        why(job),
    )


def why(job: wire.JobView) -> str:
    if job.fault is not None:
        return job.fault.message
    if job.assumed:
        return "assumed: what it stands for is not known yet" if job.state == "waiting" else "assumed: nobody named what it stands for"
    return f"reused from {job.reused_from}" if job.reused_from else ""


def took(job: wire.JobView) -> str:
    if job.duration_s is not None:
        return format_duration(job.duration_s)
    return f"{format_duration(job.running_s)} so far" if job.running_s is not None else ""


def time_text(at: float, now: float) -> str:
    """With the day where it is not today's."""
    then = datetime.fromtimestamp(at, UTC).astimezone()
    return then.strftime("%H:%M:%S" if then.date() == datetime.fromtimestamp(now, UTC).astimezone().date() else "%Y-%m-%d %H:%M:%S")
