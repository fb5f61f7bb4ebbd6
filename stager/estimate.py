"""An estimate of a run before it runs: the Machine that production uses, driven through a simulated world.

May know: planning, the Machine, the sim. One rule: no second scheduler and no formula of its own; what comes out is what happened in the
simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stager.best_plan import best_plan
from stager.model.errors import Fault
from stager.model.files import Destination
from stager.model.profile import NO_PROFILES, Profiles
from stager.model.topology import Topology
from stager.model.workflow import Workflow, as_assumed, bandwidths_of
from stager.planning.clairvoyant import clairvoyant_bound_bytes
from stager.planning.plan import Plan
from stager.planning.policy import Limits, Policy
from stager.planning.requests import LOOKS_PER_WRITE, reads_of, writes_of
from stager.planning.rival_caches import Hits, Rule, hits_of
from stager.scheduler.commands import Fetch, RunOutcome, StartAttempt, Upload
from stager.scheduler.events import AttemptEnded, TransferDone
from stager.scheduler.machine import Machine
from stager.sim.accesses import Accesses
from stager.sim.faults import NO_FAULTS, Faults
from stager.sim.sampling import Spread, Uncertainties
from stager.sim.simulate import Watch, rare_collections, simulate
from stager.sim.world import SimWorld

RUN = "estimate"


@dataclass(frozen=True, slots=True)
class Report:
    """Bytes and virtual seconds of one simulated run. `read_bytes` is what jobs read of their inputs, `hit_rate` the share of it that did
    not cross the WAN for them.

    `readback_bytes` crossed the WAN once more, to be verified; `direct_read_bytes` crossed it for one job each. `refetched_bytes` is
    what came in more often than once, spilled intermediates included. `min_hits` and `lru_hits` are what evicting the farthest next use and
    the least recently used would have hit of the same accesses in the same order with the same pins, `best_hit_rate` what no cache of this
    size can exceed; rates are None where nothing was read.

    `busy_s`: by link (`fetch:URL`, `upload:URL`, `disk:NODE`), for how long it was used at full rate; and `cores` of all nodes together.
    `resumes`: how often somebody had to tell the run to go on. `traffic` is by origin. `truth`: what sizes and times were taken from.
    `unreserved_bytes_max`: the most that jobs under way made at one time
    beyond what was set aside for them.
    """

    outcome: RunOutcome
    fault: Fault | None
    wall_s: float
    fetched_bytes: int
    refetched_bytes: int
    uploaded_bytes: int
    readback_bytes: int
    spilled_bytes: int
    read_bytes: int
    hit_rate: float | None
    min_hits: Hits
    lru_hits: Hits
    best_hit_rate: float | None
    jobs: int
    attempts: int
    events: int
    busy_s: dict[str, float]
    resumes: int
    unreserved_bytes_max: int
    plan: Plan
    truth: Plan
    traffic: tuple[Traffic, ...] = ()
    direct_read_bytes: int = 0


@dataclass(slots=True)
class Traffic:
    """The bytes that passed between the nodes and one origin, and the requests they would take if that were a bucket."""

    origin: str
    fetched_bytes: int = 0
    uploaded_bytes: int = 0
    reads: int = 0
    writes: int = 0

    def fetched(self, size_bytes: int) -> None:
        self.fetched_bytes += size_bytes
        self.reads += reads_of(size_bytes)

    def uploaded(self, size_bytes: int) -> None:
        self.uploaded_bytes += size_bytes
        self.writes += writes_of(size_bytes)
        self.reads += LOOKS_PER_WRITE


def estimate(
    workflow: Workflow,
    topology: Topology,
    profiles: Profiles = NO_PROFILES,
    policy: Policy | None = None,
    limits: Limits | None = None,
    spill_origin: str | None = None,
    spread: Spread | Uncertainties | None = None,
    plan: Plan | None = None,
    faults: Faults = NO_FAULTS,
    resumes_max: int = 0,
    truth: Plan | None = None,
    watch: Watch | None = None,
) -> Report:
    """Simulates one run on empty nodes. With a plan given, that one is run; in a world as another one expects it, where there is a `truth`.
    A run that cannot end says so in `outcome` and `fault`; nothing is raised for it. With faults, somebody resumes a run that ended badly,
    so many times. `watch` sees each batch of the run, which is called `RUN`.
    """
    topology = topology.bounded_by(bandwidths_of(workflow))
    keep_journal = any(trouble.what == "crash" for trouble in faults.troubles)
    with rare_collections():
        plan = plan or best_plan(workflow, topology, profiles, policy, limits, spill_origin)
        world = SimWorld(topology, policy, limits, faults=faults, spread=spread, resumes_max=resumes_max, keep_journal=keep_journal)
        world.submit(RUN, as_assumed(workflow), plan, truth=truth)
        seen = Seen(Accesses(), Moves({name: Traffic(name) for name in workflow.origins}), Overdraft(made_bytes(workflow, truth or plan)))
        simulate(world, seen.watch if watch is None else both(seen.watch, watch))
        return report_of(world, workflow, plan, truth or plan, seen)


def both(first: Watch, second: Watch) -> Watch:
    def watch(machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
        first(machine, events, commands)
        second(machine, events, commands)

    return watch


def report_of(world: SimWorld, workflow: Workflow, plan: Plan, truth: Plan, seen: Seen) -> Report:
    """Of the one run that was simulated."""
    topology, accesses = world.topology, seen.accesses
    entry, transfers = world.runs[RUN], world.transfers
    final_bytes = sum(world.origin_of(RUN, where.location.origin).size_of(where.location.path) for where in destinations(workflow))
    read_bytes = world.executor.read_bytes
    for (_, origin), size_bytes in world.executor.direct_bytes.items():
        seen.moves.by_origin[origin].fetched_bytes += size_bytes
    direct_bytes = sum(world.executor.direct_bytes.values())
    capacity_bytes = sum(node.capacity_bytes for node in topology.nodes)
    cores = sum(topology.host_cores)
    once = min(plan.fetch_bytes, transfers.fetched_bytes)
    return Report(
        outcome=entry.outcome or RunOutcome.INTERRUPTED,
        fault=entry.fault,
        wall_s=entry.finished_at if entry.outcome is not None else world.clock.now,
        fetched_bytes=transfers.fetched_bytes,
        refetched_bytes=transfers.fetched_bytes - once,
        uploaded_bytes=transfers.uploaded_bytes,
        readback_bytes=transfers.read_backs.moved_bytes,
        spilled_bytes=max(0, transfers.uploaded_bytes - final_bytes),
        read_bytes=read_bytes,
        hit_rate=max(0.0, 1 - (transfers.fetched_bytes + direct_bytes) / read_bytes) if read_bytes else None,
        min_hits=hits_of(Rule.MIN, accesses.steps, capacity_bytes),
        lru_hits=hits_of(Rule.LRU, accesses.steps, capacity_bytes),
        best_hit_rate=min(1.0, clairvoyant_bound_bytes(accesses.trace, capacity_bytes) / read_bytes) if read_bytes else None,
        jobs=len(workflow.jobs),
        attempts=len(world.executor.begun),
        events=world.event_count,
        busy_s={link: busy for link, busy in world.links.busy_s().items() if not link.startswith("reader:")}
        | {"cores": accesses.core_s / cores},
        resumes=entry.resumes,
        unreserved_bytes_max=seen.overdraft.most_bytes,
        plan=plan,
        truth=truth,
        traffic=tuple(seen.moves.by_origin.values()),
        direct_read_bytes=direct_bytes,
    )


@dataclass(slots=True)
class Seen:
    """The observers of a simulated run."""

    accesses: Accesses
    moves: Moves
    overdraft: Overdraft

    def watch(self, machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
        self.accesses.watch(machine, events, commands)
        self.moves.watch(events, commands)
        self.overdraft.watch(events, commands)


@dataclass(slots=True)
class Moves:
    """Transfers that ended well, by the origin that their command named."""

    by_origin: dict[str, Traffic]
    begun: dict[str, tuple[str, bool]] = field(default_factory=dict)

    def watch(self, events: Sequence[Any], commands: Sequence[Any]) -> None:
        for event in events:
            if type(event) is TransferDone and event.transfer in self.begun:
                origin, is_fetch = self.begun.pop(event.transfer)
                traffic = self.by_origin[origin]
                (traffic.fetched if is_fetch else traffic.uploaded)(event.size_bytes)
        for command in commands:
            if type(command) in (Fetch, Upload):
                self.begun[command.transfer] = (command.origin, type(command) is Fetch)


@dataclass(slots=True)
class Overdraft:
    """The bytes that running jobs make beyond those set aside for them: they stand in sandboxes, where nobody counts them."""

    made_bytes: dict[str, int]
    by_attempt: dict[str, int] = field(default_factory=dict)
    now_bytes: int = 0
    most_bytes: int = 0

    def watch(self, events: Sequence[Any], commands: Sequence[Any]) -> None:
        for event in events:
            if type(event) is AttemptEnded:
                self.now_bytes -= self.by_attempt.pop(event.attempt, 0)
        for command in commands:
            if type(command) is StartAttempt:
                beyond = max(0, self.made_bytes[command.job] - command.reserve_bytes)
                self.by_attempt[command.attempt] = beyond
                self.now_bytes += beyond
                self.most_bytes = max(self.most_bytes, self.now_bytes)


def made_bytes(workflow: Workflow, truth: Plan) -> dict[str, int]:
    """By job."""
    sizes = {entry.lfn: entry.expected_bytes for entry in truth.files}
    return {job.id: sum(sizes[output.lfn] for output in job.outputs) for job in workflow.jobs.values()}


def destinations(workflow: Workflow) -> list[Destination]:
    return [file.destination for file in workflow.files.values() if file.destination is not None]
