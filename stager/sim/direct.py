"""A run without I/O nodes: every job reads its inputs from their origins and writes its outputs there, over mounts of its compute node.

May know: the model, the plan's order and sizes, links. One rule: nothing is kept: what is read twice crosses the WAN twice, and what a
later job reads of an earlier one goes home and comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from stager.model.cluster import Cluster
from stager.model.errors import Refused
from stager.model.ids import attempt_id
from stager.model.workflow import Graph, OriginKind, Workflow
from stager.planning.plan import Plan
from stager.sim.clock import Clock
from stager.sim.links import Links


class Sampling(Protocol):
    """Spread or Doubts."""

    def size_bytes(self, expected: int, run: str, lfn: str, own: float = 1.0) -> int: ...
    def duration_s(self, expected_s: float, attempt: str, own: float = 1.0) -> float: ...


@dataclass(frozen=True, slots=True)
class FileUse:
    """One file read or written by one job."""

    origin: str
    lfn: str
    size_bytes: int
    is_read: bool


@dataclass(frozen=True, slots=True)
class DirectRun:
    """`home`: the origin that intermediates go to, empty where there are none."""

    wall_s: float
    accesses: tuple[FileUse, ...]
    home: str
    intermediate_bytes: int


@dataclass(slots=True)
class Working:
    """A job on a compute node, with the steps it still has to do: latencies and flows of one origin each, then computing, then the same
    out.
    """

    job: str
    node: int
    cores: int
    memory_bytes: int
    steps: Iterator[Step]


@dataclass(frozen=True, slots=True)
class Step:
    """`wait_s` first, then so many bytes over the links of the path; an empty path: nothing but the wait."""

    wait_s: float
    path: tuple[str, ...] = ()
    size_bytes: int = 0


def home_of(workflow: Workflow) -> str:
    """Where intermediates go that nobody named a place for: the spill origin, else where finals go, else where inputs come from. Raises
    Refused where nothing can be written.
    """
    finals = [file.destination.location.origin for file in workflow.files.values() if file.destination is not None]
    sources = [source.location.origin for file in workflow.files.values() for source in file.sources]
    for origin in (*([workflow.spill_origin] if workflow.spill_origin else []), *finals, *sources):
        if workflow.origins[origin].kind is not OriginKind.HTTP:
            return origin
    raise Refused(
        f"workflow {workflow.name!r} names no origin that can be written: without I/O nodes intermediates have nowhere to go; "
        "name a spill_origin",
        code="no_spill_origin",
    )


def run_direct(
    workflow: Workflow, graph: Graph, cluster: Cluster, plan: Plan, run: str, draws: Sampling, truth: Plan | None = None
) -> DirectRun:
    """Jobs start in the plan's order as soon as their inputs are made and a compute node has cores and memory for them. They take as
    long and make as much as `truth` expects; None: as the plan does.
    """
    return DirectWorld(workflow, graph, cluster, plan, run, draws, truth or plan).live()


class DirectWorld:
    def __init__(self, workflow: Workflow, graph: Graph, cluster: Cluster, plan: Plan, run: str, draws: Sampling, truth: Plan) -> None:
        self.workflow, self.graph, self.cluster, self.run, self.draws = workflow, graph, cluster, run, draws
        made = any(not file.is_external and not file.is_final for file in workflow.files.values())
        self.home = home_of(workflow) if made else ""
        self.order = {entry.job: place for place, entry in enumerate(plan.jobs)}
        self.compute_s = {entry.job: (entry.compute_s, entry.compute_spread or 1.0) for entry in truth.jobs}
        self.sizes = {entry.lfn: entry.expected_bytes for entry in truth.files}
        spreads = {entry.lfn: entry.size_spread or 1.0 for entry in truth.files}
        for lfn, file in workflow.files.items():
            if not file.is_external:
                self.sizes[lfn] = draws.size_bytes(self.sizes[lfn], run, lfn, spreads[lfn])
        self.clock, self.links = Clock(), Links(rates(workflow, cluster))
        compute = cluster.compute
        self.free_cores = [compute.cores] * compute.nodes
        self.free_memory = [compute.memory_bytes] * compute.nodes
        self.waiting = {job: len(above) for job, above in graph.parents.items()}
        self.ready: list[tuple[int, str]] = []
        self.accesses: list[FileUse] = []

    def live(self) -> DirectRun:
        for job, above in self.waiting.items():
            if not above:
                heappush(self.ready, (self.order[job], job))
        self._start_ready()
        while self._move_on():
            pass
        intermediates = [lfn for lfn, file in self.workflow.files.items() if not file.is_external and not file.is_final]
        kept = sum(self.sizes[lfn] for lfn in intermediates)
        return DirectRun(self.clock.now, tuple(self.accesses), self.home, kept)

    def _move_on(self) -> bool:
        at = min(self.clock.next_at(), self.links.next_at())
        if at == inf:
            return False
        self.clock.now = max(at, self.clock.now)
        if self.links.next_at() <= self.clock.now:
            for working in self.links.take_ended(self.clock.now):
                self._next_step(working)
        self.clock.run_due()
        return True

    def _start_ready(self) -> None:
        """The first in order is never superseded, so a job that wants a whole node gets one."""
        while self.ready:
            job = self.workflow.jobs[self.ready[0][1]]
            cores = min(job.cores, self.cluster.compute.cores)
            memory = min(job.memory_bytes or 0, self.cluster.compute.memory_bytes or 0)
            node = max(range(len(self.free_cores)), key=lambda index: (self._fits(index, cores, memory), self.free_cores[index], -index))
            if not self._fits(node, cores, memory):
                return
            heappop(self.ready)
            self.free_cores[node] -= cores
            self._give_memory(node, -memory)
            working = Working(job.id, node, cores, memory, iter(()))
            working.steps = self._steps(working)
            self._next_step(working)

    def _fits(self, node: int, cores: int, memory_bytes: int) -> bool:
        free = self.free_memory[node]
        return self.free_cores[node] >= cores and (free is None or free >= memory_bytes)

    def _give_memory(self, node: int, memory_bytes: int) -> None:
        free = self.free_memory[node]
        self.free_memory[node] = None if free is None else free + memory_bytes

    def _steps(self, working: Working) -> Iterator[Step]:
        job = self.workflow.jobs[working.job]
        yield from self._moves(working.node, [self._access(lfn, True) for lfn in dict.fromkeys(entry.lfn for entry in job.inputs)])
        compute_s, spread = self.compute_s[job.id]
        yield Step(self.draws.duration_s(compute_s, attempt_id(self.run, job.id, 1), spread))
        yield from self._moves(working.node, [self._access(entry.lfn, False) for entry in job.outputs])

    def _access(self, lfn: str, is_read: bool) -> FileUse:
        file = self.workflow.files[lfn]
        if file.is_external:
            origin = file.sources[0].location.origin
        else:
            origin = file.destination.location.origin if file.destination is not None else self.home
        return FileUse(origin, lfn, self.sizes[lfn], is_read)

    def _moves(self, node: int, accesses: list[FileUse]) -> Iterator[Step]:
        """One file after the other, as programs read and write; each costs a round trip of its own."""
        self.accesses += accesses
        for origin in dict.fromkeys(access.origin for access in accesses):
            here = [access for access in accesses if access.origin == origin]
            direction = "fetch" if here[0].is_read else "upload"
            path = (f"{direction}:{origin}", f"{direction}:{origin}:{node}", f"network:{node}")
            link = self.cluster.wan(origin).link
            wait_s = len(here) * (link.latency_s if here[0].is_read else link.before_upload_s)
            yield Step(wait_s, path, sum(access.size_bytes for access in here))

    def _next_step(self, working: Working) -> None:
        step = next(working.steps, None)
        if step is None:
            self._end(working)
        else:
            self.clock.after(step.wait_s, self._waited, working, step)

    def _waited(self, working: Working, step: Step) -> None:
        if step.path and step.size_bytes:
            self.links.start(self.clock.now, step.path, step.size_bytes, working)
        else:
            self._next_step(working)

    def _end(self, working: Working) -> None:
        self.free_cores[working.node] += working.cores
        self._give_memory(working.node, working.memory_bytes)
        for child in self.graph.children[working.job]:
            self.waiting[child] -= 1
            if not self.waiting[child]:
                heappush(self.ready, (self.order[child], child))
        self._start_ready()


def rates(workflow: Workflow, cluster: Cluster) -> dict[str, float]:
    """Of every link: an origin's, of all together and of one compute node; a compute node's network."""
    found = {f"network:{node}": cluster.compute.network_bytes_per_s for node in range(cluster.compute.nodes)}
    for name, origin in workflow.origins.items():
        wan, most = cluster.wan(name), origin.bytes_per_s_max or inf
        found[f"fetch:{name}"] = min(wan.link.fetch_bytes_per_s, most)
        found[f"upload:{name}"] = min(wan.link.upload_bytes_per_s, most)
        for node in range(cluster.compute.nodes):
            for direction, rate in (("fetch", wan.direct_fetch_bytes_per_s), ("upload", wan.direct_upload_bytes_per_s)):
                if rate is not None:
                    found[f"{direction}:{name}:{node}"] = rate
    return found
