"""Following a run: live bars on a terminal, a line now and then in a pipe; Ctrl-C drains the run, a second one stops it at once.

One rule: it only watches and forwards the user's wish; the run does not depend on it.
"""

from __future__ import annotations

import time

import click
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stager import wire
from stager.client import RunClient
from stager.cli.tables import console
from stager.model.units import format_duration, format_size

REFRESH_S = 0.4
LINE_EVERY_S = 5.0
TRANSFERS_SHOWN = 6


def follow(run: RunClient, *, quiet: bool = False) -> wire.WaitResponse:
    """Until the run has finished. KeyboardInterrupt drains, a second one stops."""
    wishes = 0
    while True:
        try:
            return watch(run, quiet=quiet)
        except KeyboardInterrupt:
            wishes += 1
            if wishes == 1:
                click.echo("\ndraining: running jobs and uploads end, nothing new starts; Ctrl-C again stops at once. `stager resume` goes on later.", err=True)
                run.drain()
            elif wishes == 2:
                click.echo("\nstopping", err=True)
                run.stop()
            else:
                raise click.exceptions.Abort() from None


def watch(run: RunClient, *, quiet: bool) -> wire.WaitResponse:
    out = console()
    if quiet:
        return run.wait_finished()
    if not out.is_terminal:
        return watch_lines(run)
    with Live(console=out, refresh_per_second=4, transient=True) as live:
        while True:
            live.update(panel(run.status()))
            answer = run.wait(timeout_s=REFRESH_S)
            if answer.finished:
                return answer


def watch_lines(run: RunClient) -> wire.WaitResponse:
    said_at = 0.0
    while True:
        answer = run.wait(timeout_s=REFRESH_S)
        if answer.finished or time.monotonic() - said_at >= LINE_EVERY_S:
            said_at = time.monotonic()
            click.echo(one_line(run.status()))
        if answer.finished:
            return answer


def counts(status: wire.RunStatus) -> tuple[int, int]:
    total = sum(status.jobs.values())
    return status.jobs.get("done", 0), total


def one_line(status: wire.RunStatus) -> str:
    done, total = counts(status)
    eta = f", about {format_duration(status.eta_s)} left" if status.eta_s is not None and status.info.finished_at is None else ""
    return (
        f"{status.info.state}: jobs {done}/{total}, {len(status.running)} running; "
        f"fetched {format_size(status.fetched_bytes)} of {format_size(status.fetch_bytes_planned)}, "
        f"uploaded {format_size(status.uploaded_bytes)} of {format_size(status.upload_bytes_planned)}; finals durable {status.finals_durable}/{status.finals_total}{eta}"
    )


def panel(status: wire.RunStatus) -> Group:
    done, total = counts(status)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="left", width=9)
    grid.add_column(width=32)
    grid.add_column()
    grid.add_row("jobs", bar(done, total), Text(f"{done}/{total}, {len(status.running)} running" + named(status)))
    grid.add_row("fetched", bar(status.fetched_bytes, status.fetch_bytes_planned), Text(moved(status.fetched_bytes, status.fetch_bytes_planned, status.fetch_bytes_per_s)))
    grid.add_row("uploaded", bar(status.uploaded_bytes, status.upload_bytes_planned), Text(moved(status.uploaded_bytes, status.upload_bytes_planned, status.upload_bytes_per_s)))
    grid.add_row("finals", bar(status.finals_durable, status.finals_total), Text(f"{status.finals_durable}/{status.finals_total} durable"))
    lines: list[Table | Text] = [Text(f"run {status.info.run} · {status.info.workflow} · {status.info.state}{eta_of(status)}", style="bold"), grid]
    for entry in status.transfers[:TRANSFERS_SHOWN]:
        arrow = "↓" if entry.direction == "fetch" else "↑"
        lines.append(Text(f"  {arrow} {entry.lfn}  {format_size(entry.bytes_done)} of {format_size(entry.bytes_total)}  {entry.origin} {entry.purpose}", style="dim"))
    if len(status.transfers) > TRANSFERS_SHOWN:
        lines.append(Text(f"  and {len(status.transfers) - TRANSFERS_SHOWN} more transfers", style="dim"))
    lines += [Text(f"  ! {problem.message}", style="red") for problem in status.problems[:3]]
    return Group(*lines)


def bar(done: float, total: float) -> ProgressBar:
    return ProgressBar(total=max(total, 1), completed=min(done, max(total, 1)) if total else 1, width=32)


def named(status: wire.RunStatus) -> str:
    names = ", ".join(job.job for job in status.running[:2])
    return f": {names}" + (", …" if len(status.running) > 2 else "") if names else ""


def moved(done: int, total: int, per_s: float) -> str:
    speed = f"  {format_size(per_s)}/s" if per_s > 0 else ""
    return f"{format_size(done)} of {format_size(total)}{speed}"


def eta_of(status: wire.RunStatus) -> str:
    return f" · about {format_duration(status.eta_s)} left" if status.eta_s is not None else ""
