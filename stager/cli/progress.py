"""Following a run: live bars on a terminal, a line now and then in a pipe; Ctrl-C drains the run, a second one stops it at once.

One rule: it only watches and forwards the user's wish; the run does not depend on it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from stager import wire
from stager.client import RunClient
from stager.model.errors import Refused, Transient
from stager.model.units import format_duration, format_size

if TYPE_CHECKING:
    from stager.client import RestRun

REFRESH_S = 0.4
LINE_EVERY_S = 5.0
GIVES_UP = 3
DRAINING = "draining: running jobs and uploads end, nothing new starts; Ctrl-C again stops at once. `stager resume` goes on later."


class InterruptHandler:
    """Ctrl-C, counted. It breaks into nothing but the watching, so that none is lost in between; one too many breaks into anything."""

    def __init__(self) -> None:
        self.count, self.breaks = 0, False
        self.before: signal.Handlers | int | Callable[..., Any] | None = signal.default_int_handler

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Where Ctrl-C is heard at all. After the first the program is ending: another must not kill it while it says how it went."""
        before = signal.getsignal(signal.SIGINT)
        if callable(before) and before != self.hear:
            self.before = before
            signal.signal(signal.SIGINT, self.hear)
        try:
            yield
        finally:
            self.breaks = False
            if self.count:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            elif signal.getsignal(signal.SIGINT) == self.hear:
                signal.signal(signal.SIGINT, self.before)

    def hear(self, *_: object) -> None:
        self.count += 1
        if self.breaks or self.count >= GIVES_UP:
            self.breaks = False
            raise KeyboardInterrupt


def follow(run: RunClient | RestRun, *, quiet: bool = False, interrupts: InterruptHandler | None = None) -> wire.WaitResponse:
    """Until the run has finished. Ctrl-C drains it, a second one stops it; so do those that `interrupts` has heard before."""
    begun, passed_on = time.monotonic(), 0
    interrupts = interrupts or InterruptHandler()
    with interrupts.heard():
        while True:
            try:
                interrupts.breaks = True
                if interrupts.count == passed_on:
                    return watch(run, begun, quiet=quiet)
            except KeyboardInterrupt:
                if interrupts.count >= GIVES_UP:
                    raise click.exceptions.Abort() from None
            except Transient:
                click.echo(f"\nthe scheduler is gone; go on with: stager resume {run.name}", err=True)
                raise
            finally:
                interrupts.breaks = False
            passed_on += 1
            pass_on(run, passed_on)


def pass_on(run: RunClient | RestRun, wish: int) -> None:
    click.echo(f"\n{DRAINING}" if wish == 1 else "\nstopping", err=True)
    try:
        run.drain() if wish == 1 else run.stop()
    except Refused as problem:
        # It ended in between, which is what was wished for.
        if problem.code != "run_over":
            raise


def watch(run: RunClient | RestRun, begun: float, *, quiet: bool) -> wire.WaitResponse:
    if quiet:
        return run.wait_finished()
    # What draws is imported when the run is on its way.
    from stager.cli.live_panel import watch_live
    from stager.cli.tables import console

    out = console()
    return watch_live(run, begun, out) if out.is_terminal else watch_lines(run)


def watch_lines(run: RunClient | RestRun) -> wire.WaitResponse:
    """The first line after a while: what ends at once needs none but the summary."""
    said_at = time.monotonic()
    while True:
        answer = run.wait(timeout_s=REFRESH_S)
        if answer.finished:
            return answer
        if time.monotonic() - said_at >= LINE_EVERY_S:
            said_at = time.monotonic()
            click.echo(one_line(run.status()))


def one_line(status: wire.RunStatus) -> str:
    parts = [f"{status.info.state}: jobs {jobs_of(status)}"]
    if status.fetch_bytes_planned:
        parts.append("fetched " + moved(status.fetched_bytes, status.fetch_bytes_planned))
    if status.upload_bytes_planned:
        parts.append("uploaded " + moved(status.uploaded_bytes, status.upload_bytes_planned, guessed=status.upload_bytes_guessed > 0))
    parts.append(f"finals durable {status.finals_durable}/{status.finals_total}")
    if status.problems:
        parts.append(f"! {status.problems[0].message}")
    parts += [each.message for each in status.waiting[:1]]
    eta = f", {eta_of(status)}" if status.info.finished_at is None and status.eta_s is not None else ""
    return "; ".join(parts) + eta


def jobs_of(status: wire.RunStatus) -> str:
    total = sum(status.jobs.values())
    assumed = f" ({status.jobs_assumed} of them assumed)" if status.jobs_assumed else ""
    counts = [f"{status.jobs.get('done', 0)}/{total}{assumed}", f"{len(status.running)} running"]
    counts += [f"{status.jobs[state]} {state}" for state in ("failed", "skipped") if status.jobs.get(state)]
    return ", ".join(counts)


def moved(done: int, total: int, *, guessed: bool = False) -> str:
    """A guess is no total."""
    if guessed:
        return f"{format_size(done)} so far"
    return f"{format_size(done)} of {format_size(total)}"


def eta_of(status: wire.RunStatus) -> str:
    return f"about {whole_duration(status.eta_s or 0.0)} left"


def whole_duration(seconds: float) -> str:
    """A moving figure in hundredths of a second is unrest, not news."""
    return format_duration(seconds) if seconds >= 10 else f"{max(1, round(seconds))} s"
