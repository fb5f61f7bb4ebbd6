"""Figures of a race, and the table and the goals that are made of them.

May know: the shared measures. One rule: sides whose finals differ are an error, whatever their figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.measuring import CPU_BOUND, verdict

PHASES = ("cold", "again", "edit")
OURS = "stager"
# What asking costs, of connections and of each file: nothing that is moved.
ASKED_BYTES, ASKED_BYTES_EACH = 200_000, 2_000
MARK = " *"


@dataclass(frozen=True)
class Figure:
    """One phase of one side in one round. `line_bytes`: both ways, headers included. `sums`: of the finals at their origin."""

    took_s: float
    line_bytes: int
    jobs: int
    busy: float
    sums: Mapping[str, str]


@dataclass(frozen=True, order=True)
class Row:
    race: str
    kind: str
    phase: str


@dataclass
class Results:
    """`files`: inputs and finals of each race. `wanted_jobs`: those that each row has to run."""

    files: dict[str, int] = field(default_factory=dict)
    wanted_jobs: dict[Row, int] = field(default_factory=dict)
    figures: dict[Row, dict[str, list[Figure]]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    # Seconds after which a side was stopped.
    stopped: dict[tuple[Row, str], float] = field(default_factory=dict)

    def add(self, row: Row, side: str, figure: Figure) -> None:
        """With the results of every round held against those of the side that came first."""
        known = self.figures.setdefault(row, {})
        first = next(((name, found[0]) for name, found in known.items()), (side, figure))
        known.setdefault(side, []).append(figure)
        absent = [path for path, said in figure.sums.items() if said == "missing"]
        other = [path for path, said in figure.sums.items() if said != first[1].sums[path]]
        if absent:
            self.wrong(row, side, f"{len(absent)} finals are missing at their origin, as {absent[0]}")
        elif other:
            self.wrong(row, side, f"{len(other)} finals are not those of {first[0]}, as {other[0]}")

    def wrong(self, row: Row, side: str, why: str) -> None:
        self.errors.append(f"{row.race}, {row.kind}, {row.phase}, {side}: {why}")
        print(f"ERROR: {self.errors[-1]}", flush=True)

    def edits_that_changed_nothing(self) -> list[str]:
        """An edit after which all finals are as before would let a side pass that did nothing."""
        found = []
        for row, sides in self.figures.items():
            before = self.figures.get(Row(row.race, row.kind, "cold"), {})
            if row.phase == "edit":
                found += [
                    f"{row.race}, {row.kind}, {side}" for side in sides if side in before and sides[side][0].sums == before[side][0].sums
                ]
        return found

    def table(self, sides: Sequence[str]) -> str:
        """Markdown: seconds, bytes over the line, jobs that ran; medians of the rounds."""
        there = list(sides)
        lines = [f"| workflow | origin | run | {' | '.join(there)} |", f"|{'---|' * (3 + len(there))}"]
        for row, found in self.figures.items():
            cells = [cell(found[side]) if side in found else self.without(row, side) for side in there]
            lines.append(f"| {row.race} | {row.kind} | {row.phase} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def without(self, row: Row, side: str) -> str:
        return f"stopped after {self.stopped[row, side]:.0f} s" if (row, side) in self.stopped else "no result"

    def goals(self) -> Iterable[str]:
        for row, found in self.figures.items():
            if OURS not in found:
                continue
            ours = found[OURS]
            name = f"{row.race}, {row.kind}, {row.phase}"
            if row.phase == "again":
                moved, asked = middle(ours, "line_bytes"), ASKED_BYTES + ASKED_BYTES_EACH * self.files[row.race]
                nothing = moved <= asked and middle(ours, "jobs") == 0
                yield f"goal: {name}: nothing moved and no job ran ({size(moved)}, {middle(ours, 'jobs'):.0f} jobs): {verdict(nothing)}"
            for side, theirs in found.items():
                if side != OURS and row.phase == "cold":
                    ratio = middle(theirs, "took_s") / middle(ours, "took_s")
                    yield f"goal: {name}: {side} took {ratio:.2f} times as long, wanted > 1: {verdict(ratio > 1)}"
            for (stopped, side), limit_s in self.stopped.items():
                if stopped == row and side != OURS and row.phase == "cold":
                    ratio = limit_s / middle(ours, "took_s")
                    yield f"goal: {name}: {side} took more than {ratio:.2f} times as long, wanted > 1: {verdict(ratio > 1)}"
            if middle(ours, "jobs") != self.wanted_jobs[row]:
                yield f"note: {name}: {middle(ours, 'jobs'):.0f} jobs ran, where {self.wanted_jobs[row]} had to"


def middle(figures: Sequence[Figure], what: str) -> float:
    return statistics.median(getattr(figure, what) for figure in figures)


def size(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def cell(figures: Sequence[Figure]) -> str:
    mark = MARK if middle(figures, "busy") > CPU_BOUND else ""
    return f"{middle(figures, 'took_s'):.1f} s{mark}, {size(middle(figures, 'line_bytes'))}, {middle(figures, 'jobs'):.0f} jobs"
