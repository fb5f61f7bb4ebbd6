"""`stager results`: what jobs made, as it is remembered over runs. Read from the state directory; no scheduler need live."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from stager.adapters.results_store import ResultsStore, open_to_read
from stager.cli.options import Duration, json_option, print_json, settings_of, state_dir_option
from stager.cli.reach import reach_here
from stager.cli.tables import print_table
from stager.model.errors import InvalidInput
from stager.model.results import Result
from stager.model.units import counted, format_duration, format_size
from stager.service.state_dir import StateDir, results_of
from stager.wire import GcRequest

SHOWN = 40
OWN = ""


@click.group(
    epilog="""\b
Example:
  stager results list
  stager results show 'count[texts/a.txt]'
  stager results forget --job 'count[texts/a.txt]'
  stager results forget --unused-for 90d"""
)
def command() -> None:
    """Tell what jobs made in earlier runs. `stager submit` does not make it again while it is still where it is wanted.

    A result is remembered by all that bears on it: the command, declared variables, and the content of each input. What a job is called
    and what it may take of the machine is no part of that.
    """


@contextmanager
def remembered(state_dir: Path | None) -> Iterator[ResultsStore | None]:
    store = open_to_read(results_of(StateDir(settings_of(state_dir).state_dir)))
    try:
        yield store
    finally:
        if store is not None:
            store.close()


@command.command(
    "list",
    epilog="""\b
Example:
  stager results list
  stager results list --run montage-3f2a
  stager results list --json | jq -r '.[].job'""",
)
@click.option("--run", "run", default="", metavar="RUN", help="only what this run made")
@state_dir_option
@json_option
def list_command(run: str, state_dir: Path | None, as_json: bool) -> None:
    """All results of your own runs, the newest first: the job, the run that made it, when, how long it took, how large it is."""
    with remembered(state_dir) as store:
        found = store.results(OWN, run=run) if store is not None else []
    if as_json:
        print_json([as_dict(result) for result in found])
        return
    columns = [("job", "left"), ("run", "left"), ("made", "left"), ("took", "right"), ("size", "right"), ("key", "left")]
    print_table(columns, [row_of(result) for result in found[:SHOWN]])
    if len(found) > SHOWN:
        click.echo(f"… and {len(found) - SHOWN} more (--json prints all)")


def row_of(result: Result) -> tuple[str, ...]:
    took = format_duration(result.compute_s) if result.compute_s is not None else ""
    return result.job, result.run, time_text(result.made_at), took, format_size(result.size_bytes), result.key[:12]


def time_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def as_dict(result: Result) -> dict[str, object]:
    return asdict(result)


@command.command(
    "show",
    epilog="""\b
Example:
  stager results show 'count[texts/a.txt]'
  stager results show 'count[texts/a.txt]' --json""",
)
@click.argument("job")
@state_dir_option
@json_option
def show_command(job: str, state_dir: Path | None, as_json: bool) -> None:
    """The newest result of JOB: each part of its key, and what it made. The value of a variable of env_pass is not kept, only a digest
    that nobody else can make.
    """
    with remembered(state_dir) as store:
        found = store.results(OWN, job=job, limit=1) if store is not None else []
    if not found:
        raise InvalidInput(f"no result of a job {job!r} is remembered; `stager results list` has all", subject=job)
    result = found[0]
    if as_json:
        print_json(as_dict(result))
        return
    click.echo(f"job {result.job} of {result.workflow}, made by run {result.run} at {time_text(result.made_at)}")
    click.echo(f"key {result.key}, last used {time_text(result.last_used_at)}")
    for name, value in result.parts.items():
        click.echo(f"  {name}: {value}")
    for made in result.outputs:
        click.echo(f"  made {made.path}: {format_size(made.size_bytes)}, BLAKE3 {made.blake3}")


@command.command(
    "forget",
    epilog="""\b
Example:
  stager results forget --job 'count[texts/a.txt]'
  stager results forget --run montage-3f2a
  stager results forget --unused-for 90d
  stager results forget --all""",
)
@click.option("--job", "job", default="", metavar="JOB", help="of the jobs of this name")
@click.option("--type", "job_type", default="", metavar="TYPE", help="of jobs whose measures are kept by this type (stager profile list)")
@click.option("--run", "run", default="", metavar="RUN", help="what this run made")
@click.option("--unused-for", "unused_for_s", type=Duration(), help="what no run made or reused for so long, as in 90d")
@click.option("--all", "everything", is_flag=True, help="all there are")
@state_dir_option
def forget_command(job: str, job_type: str, run: str, unused_for_s: float | None, everything: bool, state_dir: Path | None) -> None:
    """Forget results, so that these jobs run again. Of several options all must hold. Nodes drop what they keep of them. Files at origins
    stay as they are.
    """
    if everything == bool(job or job_type or run or unused_for_s is not None):
        raise click.UsageError("say what to forget: --job, --type, --run, --unused-for, or --all by itself")
    path = results_of(StateDir(settings_of(state_dir).state_dir))
    if not path.exists():
        click.echo("0 results forgotten")
        return
    store = ResultsStore(path)
    try:
        since = None if unused_for_s is None else time.time() - unused_for_s
        gone = store.forget(OWN, run=run, job=job, job_type=job_type, unused_since=since)
    finally:
        store.close()
    if gone.kept:
        with reach_here(state_dir) as client:
            client.gc(GcRequest(results=True, logs=False))
    click.echo(f"{counted(gone.results, 'result')} forgotten")
