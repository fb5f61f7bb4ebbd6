"""`stager logs RUN JOB`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from stager import wire
from stager.cli.options import RunName, Where, json_option, print_json, where_option
from stager.cli.reach import find_run, reach
from stager.client import RunClient
from stager.scheduler.states import JobState

if TYPE_CHECKING:
    from stager.client import RestRun

POLL_S = 0.5
PIECE_BYTES = 1 << 20
OVER = (JobState.DONE.value, JobState.FAILED.value, JobState.SKIPPED.value)


@click.command(
    epilog="""\b
Example:
  stager logs montage-3f2a project_07
  stager logs montage-3f2a project_07 --follow
  stager logs montage-3f2a project_07 --json"""
)
@click.argument("run", type=RunName())
@click.argument("job")
@click.option("--bytes", "tail_bytes", default=65_536, show_default=True, help="of the end of each stream")
@click.option("--follow", "-f", is_flag=True, help="go on printing as it writes, until it needs no more tries; Ctrl-C ends only that")
@where_option
@json_option
def command(run: str, job: str, tail_bytes: int, follow: bool, where: Where, as_json: bool) -> None:
    """Print what every attempt of JOB wrote to stdout and stderr."""
    if follow and as_json:
        raise click.UsageError("--follow prints text as it comes; leave out --json")
    with reach(where) as client:
        found = find_run(client, run)
        if follow:
            follow_job(found, job, tail_bytes)
            return
        logs = found.logs(job, tail_bytes=tail_bytes)
    if as_json:
        print_json(logs.model_dump(mode="json"))
        return
    for log in logs.logs:
        where_it_is = f"{log.path}, " if log.path else ""
        click.echo(f"==> {log.attempt} {log.stream} ({where_it_is}{log.size_bytes} bytes)")
        if log.text:
            click.echo(log.text, nl=not log.text.endswith("\n"))


def follow_job(run: RunClient | RestRun, job: str, tail_bytes: int) -> None:
    """Each stream of each attempt from where it was left. An attempt that is over is read once more: it may have printed in between."""
    shown: dict[tuple[str, str], int] = {}
    last: tuple[str, str] | None = None
    at_line = True
    while True:
        is_over, is_first = over(run, job), not shown
        for log in run.logs(job, tail_bytes=tail_bytes if is_first else 0).logs:
            key = (log.attempt, log.stream)
            for text in new_texts(run, job, log, shown, is_first):
                if key != last:
                    click.echo(("" if at_line else "\n") + f"==> {log.attempt} {log.stream}")
                last, at_line = key, text.endswith("\n")
                click.echo(text, nl=False)
        if is_over:
            click.echo("" if at_line else "\n", nl=False)
            return
        time.sleep(POLL_S)


def new_texts(run: RunClient | RestRun, job: str, log: wire.AttemptLog, shown: dict[tuple[str, str], int], is_first: bool) -> Iterator[str]:
    """`is_first`: what is there now came with it, as much of it as is wanted."""
    key = (log.attempt, log.stream)
    if is_first and log.text:
        yield log.text
    shown.setdefault(key, log.next_byte if is_first else 0)
    while shown[key] < log.size_bytes:
        more = run.logs(job, tail_bytes=PIECE_BYTES, attempt=log.attempt, stream=log.stream, after=shown[key]).logs
        if not more or not more[0].text:
            return
        shown[key] = more[0].next_byte
        yield more[0].text


def over(run: RunClient | RestRun, job: str) -> bool:
    """No more tries of it: by its own state, or by the end of its run, of which perhaps nothing but the logs is kept."""
    if run.wait(timeout_s=0).finished:
        return True
    return any(found.state in OVER for found in run.jobs(job=job))
