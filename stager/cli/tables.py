"""Plans, runs and states as tables for people. One rule: it only prints; a terminal's width is respected, a pipe gets plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stager.cli.links import link_lines
from stager.cli.plan_picture import Box, bases_text
from stager.cli.range import assumed_text, range_text
from stager.model.units import counted, format_duration, format_size
from stager.planning.plan import Access, Basis, Plan

if TYPE_CHECKING:
    # It imports the simulator, which no table needs.
    from stager.estimate import Report

PIPE_WIDTH = 160


def console(*, stderr: bool = False) -> Console:
    """A line stays one in a pipe: what reads it looks for words."""
    made = Console(highlight=False, soft_wrap=False, stderr=stderr)
    return made if made.is_terminal else Console(highlight=False, width=PIPE_WIDTH, soft_wrap=True, stderr=stderr)


def print_table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> None:
    """Columns are (name, "left" or "right"). Cells are text as it is: names of jobs hold `[…]`, which rich would take for markup."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in columns:
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table, soft_wrap=False)


def rate_text(rate: float | None, places: int = 0) -> str:
    """A share as a percentage; a dash where there was nothing to have a share of."""
    return "—" if rate is None else f"{rate:.{places}%}"


def direct_text(plan: Plan) -> str:
    count = sum(file.access is Access.DIRECT for file in plan.files)
    return f", {format_size(plan.direct_read_bytes)} read directly of {count} file{'s' if count > 1 else ''}" if count else ""


def made_text(plan: Plan) -> str:
    """The time that each output adds to its attempt."""
    return f", {plan.overhead_file_s * 1000:.3g} ms more for each output ({plan.overhead_file_basis.value})" if plan.overhead_file_s else ""


def copies_text(plan: Plan) -> str:
    """The time of a copy to another node beside its bytes."""
    return f", {plan.copy_latency_s * 1000:.0f} ms of each copy to another node ({plan.copy_latency_basis.value})" if plan.nodes > 1 else ""


def deletes_text(plan: Plan) -> str:
    """The time of a delete, where jobs wait for the room that it makes and somebody measured it."""
    if plan.capacity_bytes >= plan.peak_live_bytes or plan.delete_latency_basis is Basis.DEFAULT:
        return ""
    return f", {plan.delete_latency_s * 1000:.3g} ms until a delete has made room ({plan.delete_latency_basis.value})"


def guessed_text(finals: Collection[str], plan: Plan) -> str:
    count = sum(file.lfn in finals and file.size_basis is Basis.DEFAULT for file in plan.files)
    return f" (a guess: nobody knows the size of {count} final{'s' if count > 1 else ''})" if count else ""


def off_lines(plan: Plan) -> list[str]:
    """By how much the predicted time may be off, and why."""
    assumed = assumed_text(plan)
    why = f"; nobody measured {assumed}" if assumed else ""
    return [f"it may take         {said}{why}"] if (said := range_text(plan)) else []


def plan_table(finals: Collection[str], plan: Plan, notes: Sequence[str], types: Iterable[Box] = (), values: str = "") -> None:
    """`notes`: of whoever read the workflow, beside those of the plan. `types`: to be told instead of each job. `values`: of its
    parameters.
    """
    spill = f"spilling to {plan.spill_origin!r}" if plan.spill_origin else "no spill origin"
    out, each = console(), f" on each of {plan.nodes} nodes" if plan.nodes > 1 else ""
    facts = [
        f"workflow {plan.workflow!r}: {counted(len(plan.jobs), 'job')}, {counted(len(plan.files), 'file')}",
        *([f"parameters          {values}"] if values else []),
        f"capacity            {format_size(plan.capacity_bytes)} ({plan.capacity_bytes} bytes), {spill}",
        f"smallest capacity   {format_size(plan.smallest_node_bytes)} ({plan.smallest_node_bytes} bytes){each}",
        f"nothing given up at {format_size(plan.peak_live_bytes)} ({plan.peak_live_bytes} bytes)",
        f"over the wide area  {format_size(plan.fetch_bytes)} fetched, {format_size(plan.upload_bytes)} uploaded"
        f"{guessed_text(finals, plan)}, "
        f"{format_size(plan.readback_bytes)} read back to verify{direct_text(plan)}",
        f"predicted time      {format_duration(plan.makespan_s)}, "
        f"{plan.overhead_s * 1000:.0f} ms of each attempt beside its program ({plan.overhead_basis.value}){made_text(plan)}, "
        f"{format_size(plan.disk_bytes_per_s)}/s of the disk ({plan.disk_basis.value}){copies_text(plan)}{deletes_text(plan)}",
    ]
    for line in [*facts, *off_lines(plan), *(f"{'links' if not at else '':<20}{line}" for at, line in enumerate(link_lines(plan.links)))]:
        out.print(line, markup=False)
    out.print()
    if rows := type_rows(types):
        print_table(TYPE_COLUMNS, rows)
    else:
        job_table(plan)
    for note in (*notes, *plan.notes):
        out.print(f"note: {note}", markup=False)


TYPE_COLUMNS = [
    (name, "left" if name in ("job type", "basis") else "right")
    for name in ("job type", "jobs", "compute", "basis", "inputs", "bytes", "outputs", "bytes", "basis")
]


def type_rows(types: Iterable[Box]) -> list[tuple[str, ...]]:
    return [
        (
            box.name,
            str(box.jobs),
            format_duration(box.compute_s),
            bases_text(box.compute_from),
            str(box.reads.files),
            format_size(box.reads.size_bytes),
            str(box.makes.files),
            format_size(box.makes.size_bytes),
            bases_text(box.sizes_from),
        )
        for box in types
    ]


def job_table(plan: Plan) -> None:
    columns = [
        ("order", "right"),
        ("job", "left"),
        ("start", "right"),
        ("end", "right"),
        ("compute", "right"),
        ("basis", "left"),
        ("inputs+outputs", "right"),
        ("outputs", "right"),
        ("basis", "left"),
    ]
    rows = [
        (
            str(p.order),
            p.job,
            format_duration(p.start_s),
            format_duration(p.finish_s),
            format_duration(p.compute_s),
            p.compute_basis.value,
            format_size(p.footprint_bytes),
            format_size(p.reserve_bytes),
            p.reserve_basis.value,
        )
        for p in plan.jobs
    ]
    print_table(columns, rows)


def simulation_report(report: Report, *, stderr: bool) -> None:
    """Links and disks at the topology's rates, measured or assumed: compare plans by it, do not promise by it."""
    out = console(stderr=stderr)
    tried = f"{counted(report.attempts, 'attempt')} of {counted(report.jobs, 'job')}"
    out.print(f"simulated: {report.outcome.value} after {format_duration(report.wall_s)}, {tried}", markup=False)
    again = f", {format_size(report.refetched_bytes)} of it again for want of space" if report.refetched_bytes else ""
    spilled = f", {format_size(report.spilled_bytes)} of it spilled" if report.spilled_bytes else ""
    direct = f"; {format_size(report.direct_read_bytes)} read directly" if report.direct_read_bytes else ""
    back = f"; {format_size(report.readback_bytes)} read back to verify" if report.readback_bytes else ""
    out.print(
        f"  fetched  {format_size(report.fetched_bytes)}{again}{direct}; uploaded {format_size(report.uploaded_bytes)}{spilled}{back}",
        markup=False,
    )
    known = f"knowing the future, {rate_text(report.min_hits.rate)} by Belady's rule and never more than {rate_text(report.best_hit_rate)}"
    hits = f", hit rate {rate_text(report.hit_rate)} ({known})" if report.hit_rate is not None else ""
    out.print(f"  staged   {format_size(report.read_bytes)} to jobs{hits}", markup=False)
    if report.fault is not None:
        out.print(f"  {report.fault.message}", markup=False)
