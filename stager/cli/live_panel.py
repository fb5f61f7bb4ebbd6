"""The live panel of a run on a terminal: bars, transfers, problems. One rule: it draws what a status says, and decides nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stager import wire
from stager.cli.progress import REFRESH_S, eta_of, jobs_of, moved, whole_duration
from stager.model.units import format_size

if TYPE_CHECKING:
    from stager.client import RestRun, RunClient

TRANSFERS_SHOWN = 6
PROBLEMS_SHOWN = 3
ECHO = "^C^C"
FILLED, EMPTY = "━", "╌"
NAME_WIDTH, BAR_WIDTH_MAX = 8, 32


def watch_live(run: RunClient | RestRun, begun: float, out: Console) -> wire.WaitResponse:
    with Live(console=out, refresh_per_second=4, transient=True) as live:
        while True:
            live.update(live_panel(run.status(), time.monotonic() - begun, out.width))
            answer = run.wait(timeout_s=REFRESH_S)
            if answer.finished:
                return answer


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
        rows.append(("space" if len(status.nodes) == 1 else node.node, taken, node.capacity_bytes, text))
    return rows


def bar(done: float, total: float, width: int) -> Text:
    """Two signs, not two colours of one: not every terminal, and not everybody, tells colours apart. Of nothing, all is done."""
    filled = int(width * min(1.0, done / total)) if total else width
    return Text.assemble((FILLED * filled, "bar.finished" if filled == width else "bar.complete"), (EMPTY * (width - filled), "bar.back"))


def one_row(text: str, style: str) -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def named(status: wire.RunStatus) -> str:
    names = ", ".join(job.job for job in status.running[:2])
    return f": {names}" + (", …" if len(status.running) > 2 else "") if names else ""


def transfer_line(entry: wire.TransferView) -> str:
    arrow = "↓" if entry.direction == "fetch" else "↑"
    return f"  {arrow} {entry.lfn}  {moved(entry.bytes_done, entry.bytes_total)}  {entry.origin}, {entry.purpose}"
