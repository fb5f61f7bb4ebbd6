"""A plan as boxes and arrows: a box for each job type, or each job, and for each origin; an arrow for the files that go between two boxes.

One rule: it only sums up; all figures are the plan's, and each file counts once for an arrow, however many jobs of a type read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stager.model.scatter import standing_jobs
from stager.model.units import counted, format_duration, format_size
from stager.model.workflow import Workflow, graph_of
from stager.planning.plan import Access, Basis, Plan

# More jobs than these are drawn by type, and more types than those by what their names have in common.
JOBS_MAX, TYPES_MAX = 24, 48


class Kind(StrEnum):
    """A box: jobs, an origin that files come from, what earlier runs made, or an origin that finals go to."""

    JOBS = "jobs"
    SOURCE = "source"
    KEPT = "kept"
    DESTINATION = "destination"


class Way(StrEnum):
    """An arrow: files that are on I/O nodes, files that jobs read at their origin, or a job that waits for another without a file."""

    FILES = "files"
    DIRECT = "direct"
    WAITS = "waits"


@dataclass(slots=True)
class Amount:
    files: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        self.files += 1
        self.size_bytes += size_bytes

    def __str__(self) -> str:
        return f"{counted(self.files, 'file')}, {format_size(self.size_bytes)}"


@dataclass(slots=True)
class Box:
    """`reads`, `makes`: of jobs, each file once; of an origin, what it gives and what it gets. `within`: what its jobs make for each other.
    `is_job`: of one job, by its name. `assumed`: how many of its jobs are only there since members of a scatter are not known yet.
    `compute_from`, `sizes_from`: how many of its jobs have such an estimate of their time, and of their outputs.
    """

    name: str
    kind: Kind = Kind.JOBS
    is_job: bool = False
    jobs: int = 0
    assumed: int = 0
    compute_s: float = 0.0
    reads: Amount = field(default_factory=Amount)
    makes: Amount = field(default_factory=Amount)
    within: Amount = field(default_factory=Amount)
    compute_from: dict[Basis, int] = field(default_factory=dict)
    sizes_from: dict[Basis, int] = field(default_factory=dict)

    def lines(self) -> tuple[str, str]:
        """The two lines below its name."""
        if self.kind is Kind.KEPT:
            return "reused", str(self.makes)
        if self.kind is Kind.SOURCE:
            return "origin: inputs", str(self.makes)
        if self.kind is Kind.DESTINATION:
            return "origin: finals", str(self.reads)
        assumed = ", assumed" if self.is_assumed else f", {self.assumed} assumed" if self.assumed else ""
        own = f", {format_size(self.within.size_bytes)} among them" if self.within.files else ""
        return self.time_text + assumed, f"{format_size(self.reads.size_bytes)} in, {format_size(self.makes.size_bytes)} out{own}"

    @property
    def time_text(self) -> str:
        return format_duration(self.compute_s) if self.is_job else f"{counted(self.jobs, 'job')}, {format_duration(self.compute_s)}"

    @property
    def is_assumed(self) -> bool:
        """All of it."""
        return 0 < self.jobs == self.assumed

    def details(self) -> str:
        """All of it in a sentence, with what it rests on."""
        if self.kind is not Kind.JOBS:
            return f"{self.name}: {', '.join(self.lines())}"
        within = f"; {self.within} from one of them to another" if self.within.files else ""
        rests = f"time: {bases_text(self.compute_from)}; sizes: {bases_text(self.sizes_from)}"
        assumed = (
            "; assumed: how many there are is not known yet" if self.is_assumed else f"; {self.assumed} assumed" if self.assumed else ""
        )
        return f"{self.name}: {self.time_text} of computing{assumed}; reads {self.reads}; makes {self.makes}{within}; {rests}"


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one box to another, by their places."""

    start: int
    end: int
    way: Way
    amount: Amount

    def label(self) -> str:
        return "waits" if self.way is Way.WAITS else f"{self.amount}, read directly" if self.way is Way.DIRECT else str(self.amount)


@dataclass(frozen=True, slots=True)
class PlanPicture:
    """`title` and `facts`: of the whole plan. Boxes stand in the order in which their first jobs begin, origins around them."""

    title: str
    facts: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    by_type: bool

    def types(self) -> Iterator[Box]:
        return (box for box in self.boxes if box.kind is Kind.JOBS)


def bases_text(found: Mapping[Basis, int]) -> str:
    """`profile`, or `profile 18, default 2`."""
    if len(found) == 1:
        return next(iter(found)).value
    return ", ".join(f"{basis.value} {count}" for basis, count in sorted(found.items(), key=lambda entry: -entry[1]))


def picture_of(workflow: Workflow, plan: Plan, *, by_type: bool | None = None, types_max: int = TYPES_MAX) -> PlanPicture:
    """`by_type` None: by type where there are many jobs. `types_max`: how many boxes of jobs there may be then."""
    by_type = len(plan.jobs) > JOBS_MAX if by_type is None else by_type
    groups = grouped(workflow, [entry.job for entry in plan.jobs], types_max) if by_type else {entry.job: entry.job for entry in plan.jobs}
    drawing, standing = Drawing(groups, by_type=by_type), standing_jobs(workflow.scatters)
    for entry in plan.jobs:
        box = drawing.box(groups[entry.job])
        box.jobs += 1
        box.assumed += entry.job in standing
        box.compute_s += entry.compute_s
        box.compute_from[entry.compute_basis] = box.compute_from.get(entry.compute_basis, 0) + 1
        if workflow.jobs[entry.job].outputs:
            box.sizes_from[entry.reserve_basis] = box.sizes_from.get(entry.reserve_basis, 0) + 1
    drawing.add_files(workflow, plan)
    drawing.add_waits(workflow)
    moved = f"{format_size(plan.fetch_bytes)} fetched, {format_size(plan.upload_bytes)} uploaded"
    whose = "all its jobs together" if by_type else "the job"
    facts = f"predicted {format_duration(plan.makespan_s)}; {moved}; the time in a box is the computing of {whose}"
    title = f"workflow {plan.workflow!r}: {counted(len(plan.jobs), 'job')}, {counted(len(plan.files), 'file')}"
    return PlanPicture(title, facts, tuple(drawing.boxes), tuple(drawing.arrows()), by_type)


def grouped(workflow: Workflow, jobs: list[str], types_max: int) -> dict[str, str]:
    """The box of each job: its type; with its numbers left open where there are too many types; and one for the rarest of even those."""
    names = {job: workflow.jobs[job].job_type for job in jobs}
    if len(set(names.values())) > types_max:
        names = {job: re.sub(r"[0-9]+", "#", name) for job, name in names.items()}
    count: dict[str, int] = {}
    for name in names.values():
        count[name] = count.get(name, 0) + 1
    if len(count) <= types_max:
        return names
    kept = frozenset(sorted(count, key=lambda name: -count[name])[: types_max - 1])
    others = f"{len(count) - len(kept)} other types"
    return {job: name if name in kept else others for job, name in names.items()}


class Drawing:
    """The boxes and arrows so far."""

    def __init__(self, groups: Mapping[str, str], *, by_type: bool) -> None:
        self.groups, self.by_type = groups, by_type
        self.places: dict[tuple[Kind, str], int] = {}
        self.boxes: list[Box] = []
        self.amounts: dict[tuple[int, int, Way], Amount] = {}

    def at(self, name: str, kind: Kind = Kind.JOBS) -> int:
        place = self.places.get((kind, name))
        if place is None:
            place = self.places[kind, name] = len(self.boxes)
            self.boxes.append(Box(name, kind, is_job=kind is Kind.JOBS and not self.by_type))
        return place

    def box(self, name: str) -> Box:
        return self.boxes[self.at(name)]

    def add_files(self, workflow: Workflow, plan: Plan) -> None:
        graph = graph_of(workflow)
        places = {job: self.at(name) for job, name in self.groups.items()}
        for entry in plan.files:
            file, size = workflow.files[entry.lfn], entry.expected_bytes
            # Where results are reused, a plan has only the jobs that run.
            readers = dict.fromkeys([places[job] for job in graph.readers[entry.lfn] if job in places])
            way = Way.DIRECT if entry.access is Access.DIRECT else Way.FILES
            producer = graph.producer.get(entry.lfn)
            if producer is not None and producer in places:
                start = places[producer]
            elif producer is not None:
                start = self.at("earlier runs", Kind.KEPT)
            elif file.sources and readers:
                start = self.at(file.sources[0].location.origin, Kind.SOURCE)
            else:
                continue
            self.boxes[start].makes.add(size)
            for reader in readers:
                self.boxes[reader].reads.add(size)
                self.between(start, reader, way, size)
            if file.destination is not None:
                end = self.at(file.destination.location.origin, Kind.DESTINATION)
                self.boxes[end].reads.add(size)
                self.between(start, end, Way.FILES, size)

    def between(self, start: int, end: int, way: Way, size_bytes: int) -> None:
        amount = self.boxes[start].within if start == end else self.amounts.setdefault((start, end, way), Amount())
        amount.add(size_bytes)

    def add_waits(self, workflow: Workflow) -> None:
        """Of boxes that no file goes between."""
        for job, name in self.groups.items():
            for before in workflow.jobs[job].after:
                if before not in self.groups:
                    continue
                start, end = self.at(self.groups[before]), self.at(name)
                if start != end and (start, end, Way.FILES) not in self.amounts:
                    self.amounts.setdefault((start, end, Way.WAITS), Amount())

    def arrows(self) -> Iterator[Arrow]:
        return (Arrow(start, end, way, amount) for (start, end, way), amount in self.amounts.items())
