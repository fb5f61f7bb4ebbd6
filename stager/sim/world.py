"""SimWorld: the World that a Machine lives in when nothing is real.

May know: the ports' contract, scheduler's events and commands, the rest of the sim. One rule: every effect happens through the clock; the
same arguments give the same history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Protocol

from msgspec.structs import replace

from stager.model.ids import produced_file_id
from stager.model.topology import DEFAULT_WAN_BYTES_PER_S, Node, Topology
from stager.model.workflow import Graph, Workflow, graph_of
from stager.planning.budget import Budget
from stager.planning.links import is_read_back
from stager.planning.plan import Plan, ReusedJob, Sharing
from stager.planning.policy import Limits, Policy, TenantShare
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.assembly import Hop
from stager.sim.attempts import Executor, Expected
from stager.sim.clock import Clock
from stager.sim.direct_access import reads_of
from stager.sim.doing import DOERS
from stager.sim.engine import Habits, SimEngine
from stager.sim.faults import NO_FAULTS, Faults
from stager.sim.host import SimHost, is_to_begin
from stager.sim.links import Links
from stager.sim.node import SimNode, known_nodes
from stager.sim.origin import SimOrigin, Stored, external_content
from stager.sim.read_back import ComingBack
from stager.sim.sampling import Spread, Uncertainties, fraction
from stager.sim.transfers import Moving, TransferTable
from stager.sim.troubles import Troubles

VERSION = "sim"
# Of the attempts that read their inputs when the scheduler dies.
NOT_BEGUN_SHARE = 0.5
FOR_GOOD = (cmd.RunOutcome.SUCCEEDED, cmd.RunOutcome.CANCELLED)
FROM_OUTSIDE = (
    ev.TenantsSet,
    ev.RunSubmitted,
    ev.RunResumed,
    ev.RunScattered,
    ev.RunDrained,
    ev.RunStopped,
    ev.RunCancelled,
    ev.CapacityChanged,
    ev.NodeGone,
    ev.NodeDraining,
    ev.JobCalled,
    ev.CallFailed,
    ev.EngineRunEnded,
)
REPEATED = (ev.TransferDone, ev.TransferFailed, ev.AttemptEnded, ev.ReplicaDeleted)


class Checker(Protocol):
    """Watches a world and raises Violation. Called in this order around every batch."""

    def heard(self, world: SimWorld, events: Sequence[Any]) -> None: ...
    def about_to(self, world: SimWorld, command: Any) -> None: ...
    def after(self, world: SimWorld) -> None: ...
    def at_end(self, world: SimWorld) -> None: ...


class Violation(AssertionError):
    """The Machine did what it must never do, or did not do what it promised."""


@dataclass(slots=True)
class Submitted:
    """`outcome` None: not over yet."""

    run: str
    workflow: Workflow
    plan: Plan
    at: float
    outcome: cmd.RunOutcome | None = None
    fault: Any = None
    finished_at: float = inf
    resumes: int = 0
    ended_by: str = ""
    derived: Graph | None = None

    @property
    def graph(self) -> Graph:
        """Only checkers ask for it."""
        if self.derived is None:
            self.derived = graph_of(self.workflow)
        return self.derived


@dataclass(frozen=True, slots=True)
class ReportDue:
    """Stands in the queue of words for a node's report that is still to be taken."""

    node: str
    at: float = 0.0


class SimWorld:
    """Start with `submit`, then drive it. After `events` ends, `crashed` tells whether it was the scheduler that died: then `revive` and
    drive a new Machine.
    """

    def __init__(
        self,
        topology: Topology,
        policy: Policy | None = None,
        limits: Limits | None = None,
        *,
        faults: Faults = NO_FAULTS,
        spread: Spread | Uncertainties | None = None,
        checkers: Sequence[Checker] = (),
        resumes_max: int = 0,
        keep_journal: bool = False,
        late: Sequence[str] = (),
        shares: Mapping[str, TenantShare] | None = None,
        host_tenants: Mapping[str, str] | None = None,
        apart: Sequence[str] = (),
    ) -> None:
        """`late`: nodes that have not joined yet. `host_tenants`: of hosts that are some tenant's alone, by host. `apart`: nodes that reach
        no directory beside a workflow.
        """
        self.topology, self.policy = topology, policy or Policy()
        self.limits = limits or Limits(cores=topology.nodes[0].cores, memory_bytes=topology.nodes[0].memory_bytes)
        self.faults, self.checkers, self.resumes_max, self.keep_journal = faults, tuple(checkers), resumes_max, keep_journal
        self.clock = Clock()
        self.links = Links(node_links(topology))
        self.nodes = {node.id: sim_node(node, node.id in apart) for node in topology.nodes}
        for name in late:
            self.nodes[name].absent, self.nodes[name].up = True, False
        self.origins: dict[str, SimOrigin] = {}
        self.transfers = TransferTable(self.clock, self.links, faults, self.say, self._note_overfull)
        spread = spread or Spread()
        self.contents_vary = spread.contents_vary
        self.hosts = {} if topology.is_even else sim_hosts(topology)
        self.executor = Executor(self.clock, self.links, faults, spread, self.say, self._note_overfull, self.origin_of, self.hosts)
        self.transfers.remembers = self.executor.remembers = keep_journal
        # Where nobody checks contents, a file's name will do for its content.
        self.executor.traces = bool(self.checkers)
        self.executor.on_staged = lambda trying: self.engines[trying.command.run].staged(trying)
        self.engines: dict[str, SimEngine] = {}
        self.troubles = Troubles(self)
        self.runs: dict[str, Submitted] = {}
        self.journal: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = []
        self.epoch, self.crashed, self.crash_due = 1, False, False
        self.event_count = self.command_count = 0
        self.answers_due = 0
        self.out: list[Any] = []
        self._reports_due = 0
        self.held: list[Any] = []
        self._unheard: dict[str, list[Any]] = {node: [] for node in self.nodes}
        self.attempts_open: dict[str, cmd.StartAttempt] = {}
        # What a node refused in this batch for want of space; empty when nothing.
        self.overfull = ""
        self.say(None, ev.SchedulerStarted(at=0.0, epoch=self.epoch, version=VERSION))
        self.say(None, ev.PolicySet(at=0.0, policy=self.policy, limits=self.limits))
        if shares:
            self.say(None, ev.TenantsSet(at=0.0, shares=dict(shares)))
        for host in self.hosts.values():
            host.tenant = (host_tenants or {}).get(host.id, "")
            self.say(None, host.reported(0.0))
        for node in known_nodes(self.nodes):
            self.say_state(node)

    # What happens to it from outside

    def submit(
        self,
        run: str,
        workflow: Workflow,
        plan: Plan,
        at: float = 0.0,
        truth: Plan | None = None,
        habits: Habits | None = None,
        tenant: str = "",
        priority: int = 0,
        reused: Sequence[ReusedJob] = (),
        budget: Budget | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        """Puts the workflow's inputs where it says they are and asks for the run at this time. Jobs take as long and make as much as
        `truth` expects of them, of which the Machine hears only as it happens; None: as the plan does. `habits`: of the engine that runs
        its jobs. `reused`: jobs that an earlier run made, whose finals lie at their destinations.
        """
        self.runs[run] = Submitted(run, workflow, plan, at)
        enter(self, run, workflow, plan, truth or plan)
        put_home(self, workflow, [*reused, *(each.reused for each in sharing.guessed)] if sharing is not None else reused)
        if workflow.engine:
            slots = sum(self.topology.host_cores)
            self.engines[run] = SimEngine(self, run, self.runs[run].graph, habits or Habits(slots=slots))
        facts = partial(ev.RunSubmitted, run=run, workflow=workflow, plan=plan, ids=ev.IDS, tenant=tenant, priority=priority)
        more = {"reused": tuple(reused) or None, "budget": budget, "sharing": sharing}
        facts = partial(facts, **{name: value for name, value in more.items() if value is not None})
        self.tell_at(at, lambda now: facts(at=now))

    def tell_at(self, time: float, make: Callable[[float], Any]) -> None:
        """An event from outside, made when its time has come."""
        self.answers_due += 1
        self.clock.at(time, self._tell_now, make)

    def _tell_now(self, make: Callable[[float], Any]) -> None:
        self.answers_due -= 1
        event = make(self.clock.now)
        if isinstance(event, ev.CapacityChanged):
            self.nodes[event.node].capacity_bytes = event.capacity_bytes
        if isinstance(event, ev.RunResumed) and self.runs[event.run].outcome not in FOR_GOOD:
            self.runs[event.run].outcome = None
        self.say(None, event)

    def origin(self, url: str, name: str = "") -> SimOrigin:
        known = self.origins.get(url)
        if known is None:
            known = self.origins[url] = SimOrigin(url)
            link = self.topology.link(name)
            self.links.bytes_per_s[f"fetch:{url}"] = link.fetch_bytes_per_s
            self.links.bytes_per_s[f"upload:{url}"] = link.upload_bytes_per_s
            for way, line in (("fetch", link.node_fetch_bytes_per_s), ("upload", link.node_upload_bytes_per_s)):
                if line is not None:
                    self.links.bytes_per_s |= {f"line:{way}:{url}:{node}": line for node in self.nodes}
            if link.bounded and len(self.nodes) > 1:
                self.transfers.divided.declare(url, max(link.fetch_bytes_per_s, link.upload_bytes_per_s), list(self.nodes))
            self.transfers.latency_s[url], self.transfers.upload_latency_s[url] = link.latency_s, link.before_upload_s
            self.transfers.login_s[url], self.transfers.dispatch_s[url] = link.login_s or 0.0, link.dispatch_s or 0.0
            costs = {True: link.fetch_file_s or 0.0, False: link.upload_file_s or 0.0}
            self.transfers.file_s[url] = {incoming: file_s for incoming, file_s in costs.items() if file_s}
        return known

    # The port

    def events(self) -> Iterator[list[Any]]:
        """Batches of what happens at one instant; ends when all runs are over and still, when nothing is left to wait for, or when the
        scheduler dies.

        A node's report is a batch of its own, taken when all commands given before it have been done: it can never miss what is on its way.
        """
        while not self.crashed:
            if self.out:
                said, self.out = self.out, []
                yield self._up_to_report(said) if self._reports_due else said
            elif not (self.executor.open or self.transfers.open) and self._is_over():
                return
            elif not self._move_on():
                return

    def _up_to_report(self, said: list[Any]) -> list[Any]:
        cut = next((index for index, word in enumerate(said) if type(word) is ReportDue), len(said))
        self.out = said[cut or 1 :]
        if cut:
            return said[:cut]
        self._reports_due -= 1
        return [self.report(self.nodes[said[0].node])]

    def perform(self, events: Sequence[Any], commands: Sequence[Any]) -> None:
        self.event_count += len(events)
        self.command_count += len(commands)
        if self.keep_journal:
            self._record(events, commands)
        self.overfull = ""
        if not self.checkers and not self.crash_due:
            for command in commands:
                DOERS[type(command)](self, command)
            for engine in self.engines.values():
                engine.heard(events, commands)
            return
        for checker in self.checkers:
            checker.heard(self, events)
        stop_after = len(commands)
        if self.crash_due:
            stop_after = int(fraction(self.faults.seed, "crash", str(self.event_count)) * (len(commands) + 1))
        for index, command in enumerate(commands):
            for checker in self.checkers:
                checker.about_to(self, command)
            if index < stop_after:
                DOERS[type(command)](self, command)
        if self.crash_due:
            self.crashed = True
        for engine in self.engines.values():
            engine.heard(events, commands)
        for checker in self.checkers:
            checker.after(self)

    def _record(self, events: Sequence[Any], commands: Sequence[Any]) -> None:
        """Keeps the things that a scheduler that died finds again: the journal, and in it the attempts that were begun and of whose end it
        has not heard.
        """
        self.journal.append((tuple(events), tuple(commands)))
        for event in events:
            if type(event) is ev.AttemptEnded:
                self.attempts_open.pop(event.attempt, None)
        for command in commands:
            if type(command) is cmd.StartAttempt:
                self.attempts_open[command.attempt] = command

    # Life and death of the scheduler

    def revive(self) -> None:
        """After a crash and its down time: the last recorded commands are done again (each at most once in effect), then the world says how
        things are.
        """
        down_until = self.clock.now + self.troubles.crash_lasts_s
        while min(self.clock.next_at(), self.links.next_at()) <= down_until and self._move_on():
            pass
        self.clock.now = max(self.clock.now, down_until)
        give_up_what_had_not_begun(self)
        held, self.out, self.held = self.out + self.held, [], []
        self._reports_due = 0
        self.crashed, self.crash_due = False, False
        self.epoch += 1
        self.say(None, ev.SchedulerStarted(at=self.clock.now, epoch=self.epoch, version=VERSION))
        for command in self.journal[-1][1]:
            DOERS[type(command)](self, command)
        hosts_first = fraction(self.faults.seed, "hosts first", str(self.epoch)) < 0.5
        if hosts_first:
            self.troubles.hosts.say_state()
        departures = [event for event in held if isinstance(event, ev.NodeGone | ev.NodeDraining)]
        for left in departures:
            # Before what a node says that has come back since.
            self.say(None, replace(left, at=self.clock.now))
        for node in known_nodes(self.nodes):
            self.say_state(node)
        if not hosts_first:
            self.troubles.hosts.say_state()
        for attempt, command in list(self.attempts_open.items()):
            known = self.executor.results.get(attempt)
            if known is not None:
                self.say(None, replace(known, at=self.clock.now))
            elif attempt not in self.executor.open and not is_to_begin(self.hosts.values(), attempt):
                lost = ev.AttemptEnded(at=self.clock.now, run=command.run, job=command.job, attempt=attempt, outcome=ev.Outcome.LOST)
                self.say(None, lost)
        for event in self.executor.still_waiting():
            self.say(None, event)
        gap = fraction(self.faults.seed, "gap", str(self.epoch)) < 0.5
        for event in [event for event in held if event not in departures]:
            if isinstance(event, FROM_OUTSIDE) or (not gap and isinstance(event, REPEATED)):
                self.say(None, replace(event, at=self.clock.now))

    def say_state(self, node: SimNode) -> None:
        if not node.answers:
            self.say(None, ev.NodeLost(at=self.clock.now, node=node.id))
            return
        self._reports_due += not self.crashed
        self.say(None, ReportDue(node.id))

    def report(self, node: SimNode) -> ev.NodeReported:
        """All of its state, and nothing of what it said before still counts."""
        self._unheard[node.id].clear()
        replicas = tuple(
            ev.ReplicaSeen(file, generation, replica.size_bytes, replica.content, replica.quarantined, replica.is_part)
            for (file, generation), replica in node.replicas.items()
        )
        transfers = tuple(transfer for transfer, moving in self.transfers.open.items() if moving.node is node)
        return ev.NodeReported(
            at=self.clock.now,
            node=node.id,
            incarnation=node.incarnation,
            capacity_bytes=node.capacity_bytes,
            can_link=node.can_link,
            replicas=replicas,
            transfers=transfers,
            can_assemble=True,
            store_id=f"{node.id}/{node.wiped}",
            apart=node.apart,
        )

    # Words

    def say(self, node: SimNode | None, event: Any) -> None:
        """To the scheduler: now, or when it lives again, or when the node can be heard again."""
        if self.crashed:
            self.held.append(event)
        elif node is not None and not (node.up and node.heard):
            self._unheard[node.id].append(event)
        else:
            self.out.append(event)
            share = self.faults.repeat_share
            if share and isinstance(event, REPEATED) and self.faults.strikes(self.clock.now, share, "repeat", str(self.event_count)):
                self.tell_at(self.clock.now + 0.5, lambda now: replace(event, at=now))

    def unheard(self, node: SimNode) -> list[Any]:
        said, self._unheard[node.id] = self._unheard[node.id], []
        return said

    def answer(self, asked: SimNode, make: Callable[[float], Any]) -> None:
        """A node's word that something is gone, made when its time has come."""
        self.answers_due += 1
        self.clock.after(asked.delete_latency_s, self._answered, asked, make)

    def _answered(self, asked: SimNode, make: Callable[[float], Any]) -> None:
        self.answers_due -= 1
        self.say(asked, make(self.clock.now))

    def _note_overfull(self, message: str) -> None:
        self.overfull = message

    # Time

    def _move_on(self) -> bool:
        """To the next instant at which anything happens. False: there is none."""
        clock = self.clock
        due_at, link_at = clock.next_at(), self.links.next_at()
        at = due_at if due_at < link_at else link_at
        if at == inf:
            return False
        if at > clock.now:
            clock.now = at
        if link_at <= clock.now:
            for subject in self.links.take_ended(clock.now):
                if type(subject) is Moving:
                    self.transfers.flow_ended(subject)
                elif type(subject) is Hop:
                    self.transfers.assemblies.passed(subject)
                elif type(subject) is ComingBack:
                    self.transfers.read_backs.passed(subject)
                else:
                    self.executor.flow_ended(subject)
        clock.run_due()
        return True

    def _is_over(self) -> bool:
        """Asked for where no attempt and no transfer is under way."""
        if self.answers_due or self.executor.answers_due:
            return False
        return all(entry.outcome is not None for entry in self.runs.values())

    # Reading a run's origins

    def origin_of(self, run: str, name: str) -> SimOrigin:
        return self.origins[self.runs[run].workflow.origins[name].url]


def sim_node(node: Node, apart: bool) -> SimNode:
    made = SimNode(node.id, node.capacity_bytes, node.can_link, node.overhead_s, node.sandbox_bytes, node.overhead_file_s)
    made.apart, made.copy_latency_s, made.delete_latency_s = apart, node.copy_latency_s, node.delete_latency_s
    return made


def sim_hosts(topology: Topology) -> dict[str, SimHost]:
    return {host.id: SimHost(host, node.id) for node, hosts in zip(topology.nodes, topology.hosts, strict=True) for host in hosts}


def node_links(topology: Topology) -> dict[str, float]:
    """Bytes per second of each node's disk and network. A network that is as fast as the disk behind it and as every origin, whose bytes
    pass no disk when they are read back, does not limit, so it is left out.
    """
    rates: dict[str, float] = {}
    fastest = max([DEFAULT_WAN_BYTES_PER_S, *(link.fetch_bytes_per_s for link in topology.links)])
    for node in topology.nodes:
        rates[f"disk:{node.id}"] = node.disk_bytes_per_s
        if node.network_bytes_per_s < max(node.disk_bytes_per_s, fastest):
            rates[f"in:{node.id}"] = rates[f"out:{node.id}"] = node.network_bytes_per_s
    return rates


def give_up_what_had_not_begun(world: SimWorld) -> None:
    """Their scheduler died while it was starting them. An engine's call is only staged, and goes on."""
    for attempt, trying in list(world.executor.open.items()):
        engines = world.runs[trying.command.run].workflow.engine
        if trying.state == "reading" and not engines and fraction(world.faults.seed, "not begun", attempt) < NOT_BEGUN_SHARE:
            world.executor.kill(attempt)


def enter(world: SimWorld, run: str, workflow: Workflow, plan: Plan, truth: Plan, mended: bool = False) -> None:
    """Puts the run's files at its origins (a file that was there before stays, unless it was `mended`), and notes what its jobs take and
    make.
    """
    for file in workflow.files.values():
        first = file.sources[0] if file.sources else None
        for source in file.sources:
            assert first is not None
            url = workflow.origins[source.location.origin].url
            content = external_content(workflow.origins[first.location.origin].url, first.location.path, first.token or "")
            size = source.size_bytes if source.size_bytes is not None else file.size_bytes or 0
            there, path = world.origin(url, source.location.origin).files, source.location.path
            if mended or path not in there:
                there[path] = Stored(content, size, source.token or "")
    for name, entry in workflow.origins.items():
        world.origin(entry.url, name)
    sizes = {entry.lfn: (entry.expected_bytes, entry.size_spread or 1.0) for entry in truth.files}
    ids = {lfn: str(produced_file_id(run, lfn)) for lfn, file in workflow.files.items() if not file.is_external}
    times = {entry.job: (entry.compute_s, entry.compute_spread or 1.0) for entry in truth.jobs}
    back = {name: is_read_back(origin, world.topology.link(name)) for name, origin in workflow.origins.items()}
    world.executor.runs[run] = Expected(workflow, ids, sizes, times, reads_of(plan.files) | reads_of(truth.files), back)


def put_home(world: SimWorld, workflow: Workflow, reused: Sequence[ReusedJob]) -> None:
    """Finals of jobs that an earlier run made."""
    for output in (output for job in reused for output in job.outputs):
        destination = workflow.files[output.lfn].destination
        if destination is not None:
            where = world.origin(workflow.origins[destination.location.origin].url, destination.location.origin)
            where.files[destination.location.path] = Stored(output.blake3, output.size_bytes, output.token)
