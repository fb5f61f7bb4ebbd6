"""The summary of a run, for people. One rule: every figure is the summary's; nothing is computed here that a program could not
read there.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from stager import wire
from stager.cli.exits import Exit, exit_of
from stager.cli.money import budget_line
from stager.cli.options import params_text, print_json
from stager.client import RunClient
from stager.model.errors import AWAY_CODE, StagerError
from stager.model.units import counted, format_duration, format_size

if TYPE_CHECKING:
    from stager.client import RestRun

METHODS = {
    "readback": "read back and compared",
    "remote_checksum": "checksummed by the origin's host",
    "origin_checksum": "checksummed by the origin",
    "adopted": "there already with the same content, read and compared",
    "size": "size only: written, not durable",
}
MISSING_SHOWN, JOBS_TOLD = 5, 3
NO_ROOM = "no_space_node"
# Its message says how to go on.
BUDGET_CODE = "budget_used_up"


def print_summary(run: RunClient | RestRun, *, as_json: bool = False) -> Exit:
    """Prints, and says how to exit."""
    summary = run.summary()
    if as_json:
        print_json(summary.model_dump(mode="json", by_alias=True))
    else:
        tell_figures(summary)
    tell_trouble(run, summary)
    return exit_of(summary.outcome, summary.fault)


def tell_figures(summary: wire.RunSummary) -> None:
    took = f"{format_duration(summary.wall_s)}{interrupted(summary)}{predicted(summary)}"
    click.echo(f"run {summary.run}: {summary.outcome} after {took}")
    if summary.params:
        click.echo(f"  params   {params_text(summary.params)}")
    not_run = summary.jobs_total - summary.jobs_done - summary.jobs_failed
    failed = f"{summary.jobs_failed} failed" + (f", {not_run} not run" if not_run else "")
    attempts = counted(summary.attempts, "attempt")
    click.echo(f"  jobs     {summary.jobs_done} of {summary.jobs_total} done, {reused(summary)}{failed}, {attempts}")
    if summary.fetched_bytes or summary.staged_bytes:
        staged = format_size(summary.staged_bytes)
        click.echo(f"  fetched  {format_size(summary.fetched_bytes)} for {staged} staged to jobs{ratio(summary)}")
    if summary.direct_read_bytes:
        click.echo(f"  direct   {format_size(summary.direct_read_bytes)} read at origins, as the plan predicted")
    if summary.read_bytes is not None:
        click.echo(f"  read     {format_size(summary.read_bytes)} by the jobs' programs (as far as it could be seen)")
    there = f", {format_size(summary.adopted_bytes)} already there" if summary.adopted_bytes else ""
    sent = f"{format_size(summary.uploaded_bytes)} uploaded{there}"
    click.echo(f"  durable  {summary.finals_durable} of {counted(summary.finals_total, 'final')}, {sent}")
    for method, count in sorted(summary.finals.items()):
        click.echo(f"           {count} {METHODS.get(method, method)}")
    if summary.budget is not None:
        click.echo(f"  {budget_line(summary.budget, goes_on=False)}")
    for told in summary.finals_superseded[:MISSING_SHOWN]:
        click.echo(f"stager: warning: {told}", err=True)
    for lfn in summary.finals_missing[:MISSING_SHOWN]:
        click.echo(f"  missing  {lfn}", err=True)
    if len(summary.finals_missing) > MISSING_SHOWN:
        click.echo(f"  missing  and {len(summary.finals_missing) - MISSING_SHOWN} more (stager ledger {summary.run})", err=True)


def reused(summary: wire.RunSummary) -> str:
    return f"{summary.jobs_reused} of them reused, " if summary.jobs_reused else ""


def interrupted(summary: wire.RunSummary) -> str:
    return f", {format_duration(summary.interrupted_s)} of it interrupted" if summary.interrupted_s >= 1 else ""


def predicted(summary: wire.RunSummary) -> str:
    return f" (predicted {format_duration(summary.predicted_wall_s)})" if summary.predicted_wall_s is not None else ""


def ratio(summary: wire.RunSummary) -> str:
    return f", hit rate {summary.hit_rate:.0%}" if summary.hit_rate is not None else ""


def tell_trouble(run: RunClient | RestRun, summary: wire.RunSummary) -> None:
    failed = run.jobs(state="failed", limit=JOBS_TOLD) if summary.outcome == "failed" else []
    told = [job.fault.message for job in failed if job.fault is not None and job.fault.code != AWAY_CODE]
    if summary.fault is not None and summary.fault.message not in told:
        click.echo(f"stager: {summary.fault.message}", err=True)
    for job in failed:
        if job.fault is None or job.fault.code != AWAY_CODE:
            tell_job(run, job)
    if summary.outcome in ("failed", "not_durable", "refused", "interrupted"):
        faults = [summary.fault, *(job.fault for job in failed)]
        if any(fault is not None and fault.code == NO_ROOM for fault in faults):
            click.echo(f"go on with more capacity: stager resume {summary.run} --capacity SIZE", err=True)
        elif summary.fault is None or summary.fault.code != BUDGET_CODE:
            click.echo(f"go on with: stager resume {summary.run}", err=True)


def tell_job(run: RunClient | RestRun, job: wire.JobView) -> None:
    message = job.fault.message if job.fault is not None else f"exit {job.exit_code}"
    tries = f" (after {job.attempts} attempts)" if job.attempts > 1 else ""
    name = "" if repr(job.job) in message else f"job {job.job!r}: "
    click.echo(f"stager: {name}{message}{tries}", err=True)
    try:
        logs = run.logs(job.job, tail_bytes=2000).logs
    except StagerError:
        return
    last = [log for log in logs if log.stream == "stderr" and log.text.strip()][-1:]
    for log in last:
        click.echo(f"  last words on stderr{f' ({log.path})' if log.path else ''}:", err=True)
        for line in log.text.strip().splitlines()[-10:]:
            click.echo(f"    {line}", err=True)
    if job.sandbox_kept:
        click.echo(f"  what it left: stager shell {shlex.quote(run.name)} {shlex.quote(job.job)}", err=True)
