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
from rich.console import Group
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stager import wire
from stager.cli.tables import console
from stager.client import RunClient
from stager.model.errors import Refused, Transient
from stager.model.units import format_duration, format_size

if TYPE_CHECKING:
    from stager.client import RestRun

REFRESH_S = 0.4
LINE_EVERY_S = 5.0
TRANSFERS_SHOWN = 6
PROBLEMS_SHOWN = 3
GIVES_UP = 3
ECHO = "^C^C"
FILLED, EMPTY = "━", "╌"
NAME_WIDTH, BAR_WIDTH_MAX = 8, 32
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
    out = console()
    if quiet:
        return run.wait_finished()
    if not out.is_terminal:
        return watch_lines(run)
    with Live(console=out, refresh_per_second=4, transient=True) as live:
        while True:
            live.update(live_panel(run.status(), time.monotonic() - begun, out.width))
            answer = run.wait(timeout_s=REFRESH_S)
            if answer.finished:
                return answer


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


def live_panel(status: wire.RunStatus, spent_s: float, width: int) -> Constrain:
    """With room for what the terminal echoes of Ctrl-C behind the last line: an echo that wraps moves the cursor where we do not know of
    it.
    """
    inside = max(1, width - len(ECHO))
    return Constrain(panel(status, spent_s, inside), inside)


def panel(status: wire.RunStatus, spent_s: float, width: int) -> Group:
    """At most one terminal line for each thing, however long names are."""
    grid = Table.grid(padding=(0, 1))
    bar_width = min(BAR_WIDTH_MAX, width // 4)
    for column_width in (NAME_WIDTH, bar_width, max(1, width - NAME_WIDTH - bar_width - 3)):
        grid.add_column(width=column_width, no_wrap=True, overflow="ellipsis")
    for name, done, total, text in rows_of(status):
        grid.add_row(name, bar(done, total, bar_width), Text(text))
    words = [f"run {status.info.run}", status.info.workflow, status.info.state, whole_duration(spent_s)]
    words += [eta_of(status)] if status.eta_s is not None else []
    lines: list[Table | Text] = [one_row(" · ".join(words), "bold"), grid]
    lines += [one_row(transfer_line(entry), "dim") for entry in status.transfers[:TRANSFERS_SHOWN]]
    if len(status.transfers) > TRANSFERS_SHOWN:
        lines.append(one_row(f"  and {len(status.transfers) - TRANSFERS_SHOWN} more transfers", "dim"))
    lines += [one_row(f"  {each.message}", "yellow") for each in status.waiting[:PROBLEMS_SHOWN]]
    lines += [Text(f"  ! {problem.message}", style="red") for problem in status.problems[:PROBLEMS_SHOWN]]
    if len(status.problems) > PROBLEMS_SHOWN:
        lines.append(one_row(f"  and {len(status.problems) - PROBLEMS_SHOWN} more problems (stager status {status.info.run})", "red"))
    return Group(*lines)


def rows_of(status: wire.RunStatus) -> list[tuple[str, int, int, str]]:
    """Name, done, of how much, and in words; bytes only where any are to move."""
    rows = [("jobs", status.jobs.get("done", 0), sum(status.jobs.values()), jobs_of(status) + named(status))]
    moving = {entry.direction for entry in status.transfers}
    guessed = status.upload_bytes_guessed > 0
    for name, direction, done, total, per_s, guess in (
        ("fetched", "fetch", status.fetched_bytes, status.fetch_bytes_planned, status.fetch_bytes_per_s, False),
        ("uploaded", "upload", status.uploaded_bytes, status.upload_bytes_planned, status.upload_bytes_per_s, guessed),
    ):
        if total or done:
            rate = f", {format_size(per_s)}/s" if per_s and direction in moving else ""
            rows.append((name, done, total, moved(done, total, guessed=guess) + rate))
    if status.finals_total:
        rows.append(("durable", status.finals_durable, status.finals_total, f"{status.finals_durable}/{status.finals_total} finals"))
    for node in status.nodes:
        taken = node.used_bytes + node.reserved_bytes
        text = f"{format_size(taken)} of {format_size(node.capacity_bytes)} taken" if node.connected else "the I/O node does not answer"
        rows.append(("space", taken, node.capacity_bytes, text))
    return rows


def bar(done: float, total: float, width: int) -> Text:
    """Two signs, not two colours of one: not every terminal, and not everybody, tells colours apart. Of nothing, all is done."""
    filled = int(width * min(1.0, done / total)) if total else width
    return Text.assemble((FILLED * filled, "bar.finished" if filled == width else "bar.complete"), (EMPTY * (width - filled), "bar.back"))


def one_row(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def jobs_of(status: wire.RunStatus) -> str:
    total = sum(status.jobs.values())
    counts = [f"{status.jobs.get('done', 0)}/{total}", f"{len(status.running)} running"]
    counts += [f"{status.jobs[state]} {state}" for state in ("failed", "skipped") if status.jobs.get(state)]
    return ", ".join(counts)


def named(status: wire.RunStatus) -> str:
    names = ", ".join(job.job for job in status.running[:2])
    return f": {names}" + (", …" if len(status.running) > 2 else "") if names else ""


def transfer_line(entry: wire.TransferView) -> str:
    arrow = "↓" if entry.direction == "fetch" else "↑"
    return f"  {arrow} {entry.lfn}  {moved(entry.bytes_done, entry.bytes_total)}  {entry.origin}, {entry.purpose}"


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
