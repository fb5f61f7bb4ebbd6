"""Attempts in the virtual world: stage in, compute, stage out; sizes and durations as drawn.

May know: nodes, links, origins' contents. One rule: an attempt is told of exactly once; what it made is committed all or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from stager.model.errors import SANDBOX_FULL_CODE, ErrorClass, Fault
from stager.model.scatter import Rows
from stager.model.workflow import Job, Workflow
from stager.planning.plan import Access
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.clock import Clock
from stager.sim.direct_access import OriginOf, ReaderLinks, Reading, Reads, fault_of_direct, mount_fault, readings_of
from stager.sim.faults import JOB_FAULT, Faults
from stager.sim.host import SimHost, as_lost
from stager.sim.links import Flow, Links
from stager.sim.node import Full, Replica, SandboxFull, SimNode
from stager.sim.origin import made_content
from stager.sim.sampling import Spread, Uncertainties

UNREACHABLE_AFTER_S = 0.1
LEASE_LINGERS_S = 0.5
OK: Final = ev.Outcome.OK


@dataclass(slots=True)
class Expected:
    """The executor's knowledge of a run: its jobs, the ids of their files, the sizes of those and the computing times to expect, each with
    its spread; the inputs that are read directly; by origin, whether a file that is written there comes back to be verified.
    """

    workflow: Workflow
    file_ids: dict[str, str]
    sizes: dict[str, tuple[int, float]]
    compute_s: dict[str, tuple[float, float]]
    direct_access: Reads = field(default_factory=dict)
    comes_back: dict[str, bool] = field(default_factory=dict)


class Trying(Struct):
    """`state`: direct (reading at an origin), reading, computing, waiting (for space), stranded (its node does not answer), ended;
    of an engine's, staged: it computes there. `program_at`: since when its program runs, `made_at`: when that ended; None: it has not.
    """

    command: cmd.StartAttempt
    job: Job
    node: SimNode
    contents: list[str]
    leases: list[Replica]
    outputs: list[tuple[str, str, int, str]]
    duration_s: float
    fails: bool
    begun_at: float
    program_at: float | None = None
    made_at: float | None = None
    state: str = "reading"
    flow: Flow | None = None
    readings: list[Reading] = []
    path: tuple[str, ...] = ()
    reads_direct: bool = False
    host: SimHost | None = None
    # Of its inputs that are on the node, and of its outputs.
    held_bytes: int = 0
    made_bytes: int = 0


class Executor:
    def __init__(
        self,
        clock: Clock,
        links: Links,
        faults: Faults,
        spread: Spread | Uncertainties,
        tell: Callable[[SimNode | None, Any], None],
        overfull: Callable[[str], None],
        origin_of: OriginOf,
        hosts: Mapping[str, SimHost],
    ) -> None:
        """`hosts`: those that are known now, by name."""
        self._clock, self._links, self._faults, self._spread = clock, links, faults, spread
        self._tell, self._overfull, self._origin_of, self.hosts = tell, overfull, origin_of, hosts
        self._readers = ReaderLinks(links)
        self.runs: dict[str, Expected] = {}
        self.open: dict[str, Trying] = {}
        self.results: dict[str, ev.AttemptEnded] = {}
        self.remembers = False
        self.begun: set[str] = set()
        self.read_bytes = 0
        # By (run, its name for the origin).
        self.direct_bytes: dict[tuple[str, str], int] = {}
        self.answers_due = 0
        self.traces = True
        # By run and job, what its outputs name over which others scatter.
        self.members: dict[tuple[str, str], dict[str, Rows]] = {}
        self.on_staged: Callable[[Trying], None] | None = None
        self.lineage: dict[str, tuple[str, tuple[str, ...]]] = {}

    def start(self, command: cmd.StartAttempt, node: SimNode) -> None:
        """The same id again changes nothing."""
        host = self.hosts[command.host] if command.host else None
        if command.attempt in self.begun:
            return
        if host is not None and not host.heard:
            host.starts[command.attempt] = command
            return
        if host is not None and host.gone:
            self.refuse(command, None, ev.Outcome.LOST)
            return
        self.begun.add(command.attempt)
        run = self.runs[command.run]
        job = run.workflow.jobs[command.job]
        if not node.answers:
            self.refuse(command, Fault(ErrorClass.TRANSIENT, "connection_lost", f"node {node.id} does not answer", command.job))
            return
        replicas: list[Replica] = []
        for entry in command.inputs:
            # Of what is read directly there is none.
            replica = node.sound(entry.file, entry.generation) if entry.generation else None
            if replica is not None:
                replicas.append(replica)
            elif entry.access is not Access.DIRECT:
                gone = f"input {entry.lfn} is not on the node"
                self.refuse(command, Fault(ErrorClass.INVALID_INPUT, "replica_unknown", gone, entry.lfn))
                return
        if len(replicas) < len(command.inputs):
            fault = fault_of_direct(command, self._origin_of) or mount_fault(command, self._faults, self._clock.now)
            if fault is not None:
                self.refuse(command, fault)
                return
        try:
            node.reserve(command.attempt, command.reserve_bytes)
        except Full as full:
            self._overfull(str(full))
            self.refuse(command, Fault(ErrorClass.REFUSED, "no_space_node", str(full), command.job))
            return
        self._begin(command, node, run, job, replicas)

    def _begin(self, command: cmd.StartAttempt, node: SimNode, run: Expected, job: Job, replicas: list[Replica]) -> None:
        contents = [replica.content for replica in replicas]
        if len(replicas) < len(command.inputs):
            contents = contents_read(command, replicas, self._origin_of)
        outputs, made_bytes, variant = [], 0, command.attempt if self._spread.contents_vary else ""
        for entry in job.outputs:
            likely_bytes, spread = run.sizes[entry.lfn]
            size = self._spread.size_bytes(likely_bytes, command.run, entry.lfn, spread)
            content = made_content(job, entry.lfn, contents, variant) if self.traces else entry.lfn
            outputs.append((entry.lfn, run.file_ids[entry.lfn], size, content))
            made_bytes += size
            if variant:
                self.lineage[content] = (entry.lfn, tuple(contents))
        fails = self._faults.strikes(self._clock.now, self._faults.attempt_share, "attempt", command.attempt)
        compute_s, spread = run.compute_s[job.id]
        duration_s = self._spread.duration_s(compute_s, command.attempt, spread) * (0.5 if fails else 1.0)
        trying = Trying(command, job, node, contents, replicas, outputs, duration_s, fails, self._clock.now)
        trying.host = self.hosts[command.host] if command.host else None
        trying.made_bytes = made_bytes
        self.open[command.attempt] = trying
        if run.workflow.engine and any(entry.access is Access.HELD for entry in command.inputs):
            # Nothing but the pins of the Machine holds them.
            trying.leases = []
        for replica in trying.leases:
            replica.leases += 1
            trying.held_bytes += replica.size_bytes
        self.read_bytes += trying.held_bytes
        if len(replicas) < len(command.inputs):
            trying.reads_direct = True
            trying.readings = readings_of(command, job.job_type, run.direct_access, self._origin_of)
        self._read_on(trying)

    def _read_on(self, trying: Trying) -> None:
        """One origin after the other, then what is on the node."""
        now = self._clock.now
        if trying.readings:
            trying.state, trying.path = "direct", self._readers.take(now, trying.node, trying.readings[0])
            trying.flow = self._links.start(now, trying.path, trying.readings[0].size_bytes, trying)
        else:
            trying.state = "reading"
            trying.flow = self._links.start(now, (f"disk:{trying.node.id}",), trying.held_bytes + trying.made_bytes, trying)

    def _read_directly(self, trying: Trying) -> None:
        """A job whose input ends in an error fails; nobody can say more of it where its origin is away."""
        reading, trying.flow = trying.readings.pop(0), None
        self._readers.give_back(trying.path)
        place = (trying.command.run, reading.name)
        self.direct_bytes[place] = self.direct_bytes.get(place, 0) + reading.size_bytes
        self.read_bytes += reading.size_bytes
        fault = fault_of_direct(trying.command, self._origin_of)
        if fault is not None:
            self._end(trying, ev.Outcome.FAILED, fault, exit_code=1)
        else:
            self._read_on(trying)

    def flow_ended(self, trying: Trying) -> None:
        """Its bytes have passed the disk; what remains is computing, and what any attempt takes of its slot."""
        if trying.state == "direct":
            self._read_directly(trying)
        elif trying.state == "reading" and self.runs[trying.command.run].workflow.engine:
            trying.state, trying.flow = "staged", None
            if self.on_staged is not None:
                self.on_staged(trying)
        elif trying.state == "reading":
            trying.state, trying.flow, trying.program_at = "computing", None, self._clock.now
            takes_s = trying.duration_s + trying.node.overhead_s + trying.node.overhead_file_s * len(trying.outputs)
            if trying.node.sandbox_bytes is None:
                self._clock.after(takes_s, self._computed, trying)
            else:
                self._clock.after(takes_s / 2, self._half_done, trying, takes_s / 2)

    def _half_done(self, trying: Trying, rest_s: float) -> None:
        """Programs write all along: what they make counts as written from the middle of their time on, and there they meet a full disk."""
        if trying.state != "computing":
            return
        command = trying.command
        try:
            trying.node.write(command.attempt, trying.made_bytes)
        except SandboxFull as full:
            fault = Fault(ErrorClass.TRANSIENT, SANDBOX_FULL_CODE, f"job {command.job!r} found its sandbox full", command.job)
            self._end(trying, ev.Outcome.FAILED, fault, exit_code=1, fitted_bytes=full.fitted_bytes)
            return
        self._clock.after(rest_s, self._computed, trying)

    def _computed(self, trying: Trying) -> None:
        if trying.state != "computing":
            return
        if trying.made_at is None:
            # What an attempt takes beside its program comes after it.
            beside_s = trying.node.overhead_s if trying.program_at is not None else 0.0
            trying.made_at = self._clock.now - beside_s
        if trying.fails:
            self._end(trying, ev.Outcome.FAILED, JOB_FAULT, exit_code=1)
        elif not trying.node.answers:
            trying.state = "stranded"
        else:
            self._stage_out(trying)

    def _stage_out(self, trying: Trying) -> None:
        made = trying.made_bytes
        if made > trying.node.reservations.get(trying.command.attempt, 0):
            trying.state = "waiting"
            waits = ev.AttemptWaits(at=self._clock.now, attempt=trying.command.attempt, needed_bytes=made)
            if trying.host is None or not trying.host.keeps(trying.node.id, waits):
                self._tell(None, waits)
            return
        fault = fault_of_direct(trying.command, self._origin_of) if trying.reads_direct else None
        if fault is not None:
            self._end(trying, ev.Outcome.FAILED, fault, exit_code=0)
            return
        trying.node.free(trying.command.attempt)
        for _, file, size, content in trying.outputs:
            trying.node.commit(file, trying.command.attempt, content, size)
        self._end(trying, OK, None, exit_code=0)

    def finish(self, trying: Trying) -> None:
        """Its engine says that it ended well, and wants what it made taken."""
        if trying.state == "staged":
            trying.state, trying.fails = "computing", False
            self._computed(trying)

    def grant(self, command: cmd.GrantSpace) -> None:
        trying = self.open.get(command.attempt)
        if trying is None or trying.state != "waiting":
            return
        if trying.host is not None and not trying.host.heard:
            trying.host.grants.append(command)
            return
        try:
            trying.node.reserve(command.attempt, command.reserve_bytes)
        except Full as full:
            self._overfull(str(full))
            return
        trying.node.write(command.attempt, trying.made_bytes)
        trying.state = "computing"
        self._computed(trying)

    def kill(self, attempt: str) -> None:
        """On a host that cannot be reached once it can."""
        trying = self.open.get(attempt)
        host = next((host for host in self.hosts.values() if attempt in host.starts), None) if trying is None else trying.host
        if host is not None and not host.heard:
            host.kills.append(attempt)
        elif trying is not None:
            self._end(trying, ev.Outcome.KILLED, None)

    def lose(self, trying: Trying) -> None:
        """Its host forgot it: no result, no outputs."""
        self._end(trying, ev.Outcome.LOST, None)

    def node_answers(self, node: SimNode) -> None:
        """Those that could not stage out go on."""
        for trying in [trying for trying in self.open.values() if trying.node is node and trying.state == "stranded"]:
            trying.state = "computing"
            self._computed(trying)

    def still_waiting(self) -> list[ev.AttemptWaits]:
        """The events that an executor sends again to a scheduler that has come back."""
        waiting = [trying for trying in self.open.values() if trying.state == "waiting" and (trying.host is None or trying.host.heard)]
        return [ev.AttemptWaits(at=self._clock.now, attempt=trying.command.attempt, needed_bytes=trying.made_bytes) for trying in waiting]

    def refuse(self, command: cmd.StartAttempt, fault: Fault | None, outcome: ev.Outcome = ev.Outcome.FAILED) -> None:
        """It has not begun, and will not."""
        self.begun.add(command.attempt)
        event = ev.AttemptEnded(at=self._clock.now, run=command.run, job=command.job, attempt=command.attempt, outcome=outcome, fault=fault)
        self._remember(event)
        self.answers_due += 1
        self._clock.after(UNREACHABLE_AFTER_S, self._say_again, event)

    def _say_again(self, event: ev.AttemptEnded) -> None:
        self.answers_due -= 1
        self._tell(None, replace(event, at=self._clock.now))

    def _end(
        self, trying: Trying, outcome: ev.Outcome, fault: Fault | None, exit_code: int | None = None, fitted_bytes: int | None = None
    ) -> None:
        command, now = trying.command, self._clock.now
        made_at = now if trying.made_at is None else trying.made_at
        if trying.flow is not None:
            self._links.stop(now, trying.flow)
            if trying.state == "direct":
                self._readers.give_back(trying.path)
        trying.state = "ended"
        self.open.pop(command.attempt)
        trying.node.free(command.attempt)
        self._end_leases(trying)
        outputs: tuple[ev.OutputMade, ...] = ()
        members: dict[str, Rows] = {}
        if outcome is OK:
            outputs = tuple([ev.OutputMade(lfn, file, command.attempt, size, content) for lfn, file, size, content in trying.outputs])
            members = self.members.get((command.run, command.job), members)
        event = ev.AttemptEnded(
            at=now,
            run=command.run,
            job=command.job,
            attempt=command.attempt,
            outcome=outcome,
            fault=fault,
            exit_code=exit_code,
            outputs=outputs,
            measures=ev.Measures(wall_s=made_at - (trying.begun_at if trying.program_at is None else trying.program_at)),
            fitted_bytes=fitted_bytes,
            made_at=made_at,
            members=members,
        )
        if trying.host is not None and trying.host.gone and outcome is not OK:
            event = as_lost(event)
        self._remember(event)
        if trying.host is None or not trying.host.keeps(trying.node.id, event):
            self._tell(None, event)

    def _remember(self, event: ev.AttemptEnded) -> None:
        """Only for a scheduler that may die and ask again: a long run has many."""
        if self.remembers:
            self.results[event.attempt] = event

    def _end_leases(self, trying: Trying) -> None:
        if self._faults.strikes(self._clock.now, self._faults.busy_share, "lease", trying.command.attempt):
            self._clock.after(LEASE_LINGERS_S, release, trying.leases)
        else:
            release(trying.leases)


def contents_read(command: cmd.StartAttempt, replicas: list[Replica], origin_of: OriginOf) -> list[str]:
    """Of all inputs, where some are read directly."""
    there = iter(replicas)
    return [
        next(there).content if entry.access is not Access.DIRECT else origin_of(command.run, entry.origin).files[entry.origin_path].content
        for entry in command.inputs
    ]


def release(leases: list[Replica]) -> None:
    for replica in leases:
        replica.leases -= 1
