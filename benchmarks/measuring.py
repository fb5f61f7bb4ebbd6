"""What the benchmarks share: how busy the machine was, rounds of rows with their medians and spread, goals.

May know: /proc. The one rule: a figure stands beside how busy the machine was meanwhile, and a goal beside what it is held against.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Above it the processors are what was measured.
CPU_BOUND = 0.85


def machine_time() -> tuple[float, float]:
    """Ticks: busy, all."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


@dataclass
class Watch:
    """Seconds, and the share of the machine that was busy; filled when the work ends."""

    took_s: float = 0.0
    busy: float = 0.0


@contextmanager
def watched() -> Iterator[Watch]:
    watch, before, started = Watch(), machine_time(), time.monotonic()
    yield watch
    watch.took_s, after = time.monotonic() - started, machine_time()
    watch.busy = (after[0] - before[0]) / max(after[1] - before[1], 1)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and the share of the machine that was busy."""
    with watched() as watch:
        work()
    return watch.took_s, watch.busy


def written_bytes(pid: int | str) -> int:
    """That a process gave to disks so far, as it was charged for them."""
    return next(int(line.split()[1]) for line in Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("write_bytes"))


def verdict(good: bool) -> str:
    return "met" if good else "MISSED"


@dataclass
class Row:
    """One side of one case, over all rounds. `values` are in the table's unit."""

    case: str
    side: str
    values: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def cpu_bound(self) -> bool:
        return statistics.median(self.busy) > CPU_BOUND


def short(value: float) -> str:
    """Three or four figures that can be told apart, whatever the size."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Table:
    """Rows in the order in which they came first."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.rows: dict[tuple[str, str], Row] = {}

    def add(self, case: str, side: str, value: float, busy: float, note: str = "") -> None:
        row = self.rows.setdefault((case, side), Row(case, side))
        row.values.append(value)
        row.busy.append(busy)
        if note:
            row.notes.append(note)

    def median(self, case: str, side: str) -> float:
        return self.rows[case, side].median

    def best(self, case: str, sides: list[str]) -> Row:
        return max((self.rows[case, side] for side in sides if (case, side) in self.rows), key=lambda row: row.median)

    def text(self) -> str:
        """Cases together, each with the spread over the rounds, how busy the machine was, and the last note."""
        case_width = max(len(row.case) for row in self.rows.values())
        side_width = max(len(row.side) for row in self.rows.values())
        lines = [f"{'':{case_width}}  {'':{side_width}}  {self.unit:>12}  {'lowest to highest':>21}  busy"]
        for case in dict.fromkeys(row.case for row in self.rows.values()):
            for row in (row for row in self.rows.values() if row.case == case):
                spread = f"{short(min(row.values))} - {short(max(row.values))}"
                words = (["CPU-bound"] if row.cpu_bound else []) + row.notes[-1:]
                line = f"{row.case:{case_width}}  {row.side:{side_width}}  {short(row.median):>12}  {spread:>21}"
                lines.append(f"{line}  {statistics.median(row.busy):4.0%}  {', '.join(words)}".rstrip())
        return "\n".join(lines)


def goal(what: str, found: float, wanted: float, *rows: Row) -> str:
    """What was wanted and whether it is so. A miss with busy processors says so: it is theirs."""
    bound = " (CPU-bound)" if any(row.cpu_bound for row in rows) else ""
    return f"goal: {what} {short(found)}, wanted >= {short(wanted)}: {verdict(found >= wanted)}{bound}"


def slice_of(names: list[Any], which: str) -> list[Any]:
    """Of "1/3" the second of three: every third, so that each has small and large ones."""
    number, slices = (int(word) for word in which.split("/"))
    return names[number::slices]
