"""`stager gc`."""

from __future__ import annotations

from pathlib import Path

import click

from stager.cli.options import RunName, json_option, print_json, settings_of, state_dir_option
from stager.cli.reach import find_run, reach_here
from stager.model.units import counted, format_size
from stager.service.state_dir import StateDir, results_of
from stager.wire import GcOnHost, GcRequest


@click.command(
    epilog="""\b
Example:
  stager gc --dry-run
  stager gc --cache
  stager gc --runs
  stager gc --results
  stager gc montage-3f2a"""
)
@click.argument("runs", nargs=-1, type=RunName())
@click.option(
    "--cache", is_flag=True, help="also drop cached inputs, finals, kept results, images and packages that no unfinished run needs"
)
@click.option("--runs", "records", is_flag=True, help="also forget all runs that are over for good: their ledgers, reports and timelines")
@click.option("--results", is_flag=True, help="also forget what jobs made, and drop kept results: the next submits make it again")
@click.option("--dry-run", is_flag=True, help="say what would go, remove nothing")
@state_dir_option
@json_option
def command(runs: tuple[str, ...], cache: bool, records: bool, results: bool, dry_run: bool, state_dir: Path | None, as_json: bool) -> None:
    """Give space back: what jobs of runs that are over for good have printed, kept sandboxes of failed jobs (`stager shell`), and
    environments of packages (`venv:`, `conda:`) that were changed or not made to their end, here and on the hosts of a pool; with --cache
    all that no unfinished run needs. Ledgers and reports of runs stay, unless --runs is said or RUNS are named: those go wholly. Never
    touches an origin, nor a byte that is not durable.
    """
    with reach_here(state_dir) as client:
        names = [find_run(client, run).name for run in runs]
        if results and names and not dry_run:
            # A run that cannot be removed is told before anything is forgotten.
            client.gc(GcRequest(runs=names, dry_run=True))
        forgotten = forget_results(settings_of(state_dir).state_dir, dry_run=dry_run) if results else 0
        report = client.gc(GcRequest(runs=names, cache=cache, dry_run=dry_run, records=records, results=results))
    if as_json:
        print_json({**report.model_dump(mode="json"), "results": forgotten})
        return
    parts = [f"the logs of jobs of {counted(report.logs, 'run')}"]
    parts += [f"{report.sandboxes} sandbox{'' if report.sandboxes == 1 else 'es'} of failed jobs"] if report.sandboxes else []
    parts += [counted(report.replicas, "replica")] if cache or report.replicas else []
    parts += [counted(report.images, "image")] if report.images else []
    parts += [f"{counted(len(report.runs), 'run')} with ledgers and reports"] if records or runs else []
    parts += [f"{counted(forgotten, 'result')} of jobs"] if results else []
    parts += [f"{counted(report.environments, 'environment')} of packages"] if report.environments else []
    done = "would remove" if dry_run else "removed"
    click.echo(f"{done} {', '.join(parts)}: {format_size(report.freed_bytes)}")
    if report.made_bytes:
        click.echo(f"unpacked images and environments of packages that stay take {format_size(report.made_bytes)} here")
    for host in report.hosts:
        click.echo(line_of(host, done, dry_run=dry_run), err=bool(host.problem))


def line_of(host: GcOnHost, done: str, *, dry_run: bool) -> str:
    if host.problem:
        what = "what it would remove is not known" if dry_run else "call gc again when it answers"
        return f"nothing was heard of what host {host.host} keeps: {host.problem}; {what}"
    went = f"{counted(host.images, 'image')} and {counted(host.environments, 'environment')} of packages"
    return f"{done} on host {host.host} {went}: {format_size(host.freed_bytes)}; those that stay take {format_size(host.left_bytes)}"


def forget_results(state_dir: Path, *, dry_run: bool) -> int:
    """How many, of everybody."""
    # Few ask for it.
    from stager.adapters.results_store import ResultsStore

    path = results_of(StateDir(state_dir))
    if not path.exists():
        return 0
    store = ResultsStore(path)
    try:
        return store.count() if dry_run else store.forget(None).results
    finally:
        store.close()
