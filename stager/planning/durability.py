"""Whether an intermediate gets a second copy, or is left to be made again: the expected cost of losing it against that of the copy.

May know: the workflow, the shape and its schedule, the topology. One rule: both costs are seconds of the run, by formulas that stand here
with their units, so that `plan --explain` can print them.

With r failures of a node per hour, t seconds from its making until it is needed no more (or another node holds it anyway), and d seconds
until it is there again:

    lost(r, t)  = 1 - exp(-r t / 3600)                      failures come at random, at a rate that does not change
    late(t)     = mean of max(0, d - slack + u) for u from 0 to t   what the run ends later: `slack` is how late the file could have been
                                                            made, and the later it is lost the less is left of that
    cost        = lost * (late + d * cores / all cores)     and what the slots could have done meanwhile
    copying     = bytes / rate / nodes / (1 - bytes / room)   what the networks could have carried meanwhile; and it may have to go for
                                                            want of room before it was of use: never worth it where there is none

d is the producer's own time, and its wait for a core, behind the slowest of its inputs that are gone by then: external and final ones are
fetched, intermediates that were released, or lie on the same node only, are made again before it. Where all k cores of a node
are taken by jobs of c seconds, the first is free after the least of k times that are all alike likely between 0 and c:

    wait        = busy ^ k * (sum of c^2 / sum of c) / (k + 1)   `busy`: the share of the time for which a core is taken
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf

from stager.model.topology import Topology
from stager.model.workflow import Workflow
from stager.planning.plan import tidy
from stager.planning.schedule import Schedule
from stager.planning.shape import Shape

REPLICATED = 2


@dataclass(frozen=True, slots=True)
class Kept:
    """Of one intermediate: on how many nodes it is to be, and the seconds of both ways (`copying_s` None: there is no room, or nobody
    asked). `must`: it cannot be left to be made again, for its producer, or one that would have to run before it, is not declared
    deterministic, or not idempotent.
    """

    safe_copies: int = 1
    losing_s: float = 0.0
    copying_s: float | None = None
    remake_s: float = 0.0
    must: bool = False


SINGLE = Kept()


def lost_share(failures_per_hour: float, needed_s: float) -> float:
    """The chance that a node fails while it is needed."""
    return 1.0 - exp(-failures_per_hour * needed_s / 3600.0)


def losing_s(failures_per_hour: float, needed_s: float, remake_s: float, slack_s: float, cores_share: float) -> float:
    """Seconds that the run is expected to lose without a second copy. `cores_share`: of all cores, what the producer takes."""
    return lost_share(failures_per_hour, needed_s) * (late_s(needed_s, remake_s, slack_s) + remake_s * cores_share)


def late_s(needed_s: float, remake_s: float, slack_s: float) -> float:
    """The delay of the run's end, over all times at which the file may be lost while it is needed."""
    first, last = remake_s - slack_s, remake_s - slack_s + needed_s
    if first >= 0:
        return (first + last) / 2
    return last * last / (2 * needed_s) if last > 0 else 0.0


def wait_s(jobs_s: Sequence[float], cores: int, span_s: float) -> float:
    """Seconds until a core of a node is free on which jobs of these lengths run within this time."""
    work_s = sum(jobs_s)
    if work_s <= 0 or span_s <= 0:
        return 0.0
    return min(1.0, work_s / (cores * span_s)) ** cores * sum(job_s * job_s for job_s in jobs_s) / work_s / (cores + 1)


def copying_s(size_bytes: float, bytes_per_s: float, nodes: int, space_bytes: float) -> float:
    """Seconds that a second copy costs; `space_bytes`: what is left beside all that is live. Infinite where it does not fit."""
    if size_bytes >= space_bytes:
        return inf if size_bytes or space_bytes < 0 else 0.0
    return size_bytes / bytes_per_s / nodes / (1.0 - size_bytes / space_bytes)


def kept_files(workflow: Workflow, shape: Shape, schedule: Schedule, ranks: list[float], topology: Topology, peak_bytes: int) -> list[Kept]:
    """By file index. Producers before what they make, so that an input that has two copies does not count as lost with one node."""
    kept = [SINGLE] * len(shape.files)
    rate = max(node.failures_per_hour for node in topology.nodes)
    if rate <= 0 or len(topology.nodes) < REPLICATED:
        return kept
    slots = [sum([host.cores for host in hosts]) for hosts in topology.hosts]
    cores = sum(slots)
    room = min(topology.capacity_bytes - peak_bytes, max(node.capacity_bytes for node in topology.nodes))
    network = min(min(node.network_bytes_per_s, node.disk_bytes_per_s) for node in topology.nodes)
    again = Again(workflow, shape, schedule, topology, network)
    for job in range(len(shape.jobs)):
        for file in shape.outputs[job]:
            readers = shape.readers[file]
            if shape.final[file] or not readers:
                continue
            node = topology.nodes[schedule.node[job]]
            remake, sure = again.remake(job, file, kept)
            needed = min(again.last_use_s[file], schedule.second_s[file]) - schedule.finish_s[job]
            slack = min(schedule.makespan_s - ranks[reader] for reader in readers) - schedule.finish_s[job]
            share = min(shape.cores[job], slots[schedule.node[job]]) / cores
            losing = losing_s(node.failures_per_hour, max(0.0, needed), remake, max(0.0, slack), share)
            copying = copying_s(shape.likely[file], network, len(topology.nodes), room)
            pays = copying < inf and needed > 0 and (not sure or losing > copying)
            kept[file] = Kept(REPLICATED if pays else 1, tidy(losing), tidy(copying) if copying < inf else None, tidy(remake), not sure)
    return kept


class Again:
    """How long files that are gone take to be there again, from those that are. To be asked of producers before what reads of them."""

    def __init__(self, workflow: Workflow, shape: Shape, schedule: Schedule, topology: Topology, network_bytes_per_s: float) -> None:
        self.shape, self.schedule, self.network = shape, schedule, network_bytes_per_s
        self.last_use_s = [max((schedule.finish_s[reader] for reader in readers), default=0.0) for readers in shape.readers]
        self._jobs = [workflow.jobs[job] for job in shape.jobs]
        jobs_s: list[list[float]] = [[] for _ in topology.nodes]
        for job, node in enumerate(schedule.node):
            jobs_s[node].append(schedule.finish_s[job] - schedule.start_s[job])
        slots = [sum([host.cores for host in hosts]) for hosts in topology.hosts]
        waits_s = [wait_s(jobs_s[at], cores, schedule.makespan_s) for at, cores in enumerate(slots)]
        self._beside_s = [topology.nodes[node].overhead_s + waits_s[node] for node in schedule.node]
        self._by_file: dict[int, tuple[float, bool]] = {}
        self._fetch_rate = list(shape.fetch_rate)
        for file, lfn in enumerate(shape.files):
            destination = workflow.files[lfn].destination
            if destination is not None:
                self._fetch_rate[file] = topology.link(destination.location.origin).fetch_bytes_per_s

    def remake(self, job: int, file: int, kept: list[Kept]) -> tuple[float, bool]:
        """(seconds until it is there again, if its node is lost when it is last needed; whether all that would run for it may)."""
        own = self.shape.compute_s[job] + self.shape.local_s[job] + self.shape.direct_s[job] + self._beside_s[job]
        waits_s, sure = 0.0, self._jobs[job].deterministic and self._jobs[job].idempotent
        for entry in self.shape.held[job]:
            input_s, may = self._input(entry, job, self.last_use_s[file], kept)
            waits_s, sure = max(waits_s, input_s), sure and may
        self._by_file[file] = (own + waits_s, sure)
        return self._by_file[file]

    def _input(self, file: int, job: int, at_s: float, kept: list[Kept]) -> tuple[float, bool]:
        """The same of an input of this job at a time."""
        elsewhere = any(node != self.schedule.node[job] for node in self.schedule.nodes[file]) or kept[file].safe_copies > 1
        if self.shape.final[file] or (self.shape.external[file] and not elsewhere):
            return self.shape.likely[file] / self._fetch_rate[file], True
        if not self.shape.external[file] and (self.last_use_s[file] < at_s or not elsewhere):
            return self._by_file.get(file, (0.0, True))
        return self.shape.likely[file] / self.network, True
