"""Reads a scenario and plays it: a small workflow, a tight place, something that happens, and the whole log of what was said and done.

One rule: the text file is the test; the log in it is what the Machine does today, reviewed by a person when it changes.

    # what it teaches
    node capacity=1000 cores=1 disk=1000000    one node; disk in bytes per second
    link home fetch=100 upload=50 latency=0    bytes per second and seconds; `kind=sshfs`: inputs there may be read directly
    hint work read_fraction=0.01               of all jobs
    policy fetches_ahead_max=1                 any field of Policy
    spill home
    workflow w                                 the lines below belong to it, until the next
      external in 100                          at home; `token=2`: with other content
      made mid 200                             declared size; `actual=500`: as it comes out
      made out 50 final                        `replace=true`: what is there already may be overwritten; `to=dir`: it goes there
      job a in -> mid  compute=2 cores=1       inputs -> outputs
    run r0 w at=0                              `joins=true`: it takes over what others make
    at 3 drain r0                              or stop, resume, cancel
    at 3 resume r0 w2                          it has ended, and goes on as another workflow says
    at 3 corrupt mid
    at 3 origin home denied for=5              or origin_unreachable
    at 3 capacity 500
    there out                                  its destination holds other content before the run
    fail transfer 2 connection_lost            the second one that begins to move
    fail attempt 1                             ends with exit code 1
    expect
    ...the log
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from stager.model.errors import Fault
from stager.model.files import Destination, File, Location, OnExists, Source
from stager.model.topology import Host, Node, OriginLink, Topology
from stager.model.workflow import IoHint, Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan, Sharing
from stager.planning.policy import Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.checkers import all_checkers
from stager.sim.faults import TRANSFER_FAULTS, Faults, Trouble
from stager.sim.sampling import Spread
from stager.sim.simulate import simulate
from stager.sim.troubles import DAMAGE
from stager.sim.world import SimWorld
from tests.sim.mending import resume_with

INTERRUPTS = {"drain": ev.RunDrained, "stop": ev.RunStopped, "resume": ev.RunResumed, "cancel": ev.RunCancelled}
HOME_URL = "sftp://lab/data"
# Said once at the start of each scenario, or only wakes the Machine up.
UNTOLD_EVENTS = (ev.SchedulerStarted, ev.PolicySet, ev.NodeReported, ev.Woken)
UNTOLD_FACTS = frozenset(
    "id at cause node command file run transfer generation token blake3 sha256 executable attempt measures origin path inputs".split()
)
# The same, of copies between nodes.
UNTOLD_FACTS |= {"source_generation", "passed"}
NAMED_FIRST = ("run", "job", "lfn")


@dataclass(frozen=True)
class ListedFaults(Faults):
    """Only what the scenario lists goes wrong, counted as it begins."""

    transfers: dict[int, Fault] = field(default_factory=dict)
    attempts: frozenset[int] = frozenset()
    begun: dict[str, int] = field(default_factory=dict)

    def transfer_fault(self, now: float, transfer: str) -> tuple[Fault, float] | None:
        fault = self.transfers.get(self.count("transfer"))
        return (fault, 0.5) if fault is not None else None

    def strikes(self, now: float, share: float, *names: str) -> bool:
        return names[0] == "attempt" and self.count("attempt") in self.attempts

    def count(self, what: str) -> int:
        self.begun[what] = self.begun.get(what, 0) + 1
        return self.begun[what]


@dataclass(frozen=True)
class ListedSizes(Spread):
    actual: dict[str, int] = field(default_factory=dict)

    def size_bytes(self, expected: int, run: str, lfn: str, own: float = 1.0) -> int:
        return self.actual.get(lfn, expected)


@dataclass
class Scenario:
    """What the text said."""

    capacity: int = 10**9
    cores: int = 1
    nodes: list[str] = field(default_factory=lambda: ["node0"])
    late: list[str] = field(default_factory=list)
    disk: float = 1e9
    links: list[OriginLink] = field(default_factory=list)
    kind: OriginKind = OriginKind.SFTP
    hints: dict[str, IoHint] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    spill: str | None = None
    workflows: dict[str, tuple[dict[str, File], dict[str, Job]]] = field(default_factory=dict)
    actual: dict[str, int] = field(default_factory=dict)
    runs: list[tuple[str, str, float]] = field(default_factory=list)
    joining: list[str] = field(default_factory=list)
    happenings: list[tuple[float, list[str], dict[str, str]]] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    beside: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, list[Host]] = field(default_factory=dict)
    transfer_faults: dict[int, Fault] = field(default_factory=dict)
    attempt_faults: list[int] = field(default_factory=list)


def split_text(text: str) -> tuple[str, str]:
    """(what is played, what is expected)."""
    head, _, log = text.partition("expect\n")
    return head, log


def read(head: str) -> Scenario:
    scenario = Scenario()
    for line in head.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        options = dict(word.split("=", 1) for word in words if "=" in word)
        read_line(scenario, [word for word in words if "=" not in word], options)
    return scenario


def read_line(scenario: Scenario, words: list[str], options: dict[str, str]) -> None:
    match words:
        case ["node"]:
            scenario.capacity, scenario.cores = int(options["capacity"]), int(options.get("cores", 1))
            scenario.disk = float(options.get("disk", 1e9))
        case ["node", name]:
            scenario.beside[name] = int(options["capacity"])
        case ["host", name, node]:
            memory_bytes = int(options["memory"]) if "memory" in options else None
            scenario.hosts.setdefault(node, []).append(Host(name, int(options["cores"]), memory_bytes))
        case ["nodes", *names]:
            scenario.nodes = names
        case ["late", name]:
            scenario.late.append(name)
        case ["link", origin]:
            rates = (float(options["fetch"]), float(options["upload"]), float(options.get("latency", 0)))
            scenario.links.append(OriginLink(origin, *rates))
            scenario.kind = OriginKind(options.get("kind", "sftp"))
        case ["hint", job_type]:
            scenario.hints[job_type] = IoHint(job_type, read_fraction=float(options["read_fraction"]))
        case ["policy"]:
            scenario.policy = replace(scenario.policy, **{name: typed(value) for name, value in options.items()})
        case ["spill", origin]:
            scenario.spill = origin
        case ["workflow", name]:
            scenario.workflows[name] = ({}, {})
        case ["external" | "made" | "job", *_]:
            read_part(scenario, words, options)
        case ["run", run, workflow]:
            scenario.runs.append((run, workflow, float(options.get("at", 0))))
            scenario.joining += [run] if options.get("joins") == "true" else []
        case ["at", time, *rest]:
            scenario.happenings.append((float(time), rest, options))
        case ["there", lfn]:
            scenario.there.append(lfn)
        case ["fail", "transfer", number, code]:
            scenario.transfer_faults[int(number)] = next(fault for fault in TRANSFER_FAULTS if fault.code == code)
        case ["fail", "attempt", number]:
            scenario.attempt_faults.append(int(number))
        case _:
            raise ValueError(f"a scenario has no line {' '.join(words)!r}")


def typed(value: str) -> Any:
    return value == "true" if value in ("true", "false") else float(value) if "." in value else int(value)


def read_part(scenario: Scenario, words: list[str], options: dict[str, str]) -> None:
    """A line of a workflow."""
    files, jobs = scenario.workflows[next(reversed(scenario.workflows))]
    match words:
        case ["external", lfn, size]:
            files[lfn] = File(
                lfn, size_bytes=int(size), sources=(Source(Location("home", f"in/{lfn}"), int(size), f"token-{options.get('token', lfn)}"),)
            )
        case ["made", lfn, size, *final]:
            exists = OnExists.REPLACE if options.get("replace") == "true" else OnExists.FAIL
            where = Destination(Location("home", f"{options.get('to', 'out')}/{lfn}"), exists) if final else None
            files[lfn] = File(lfn, size_bytes=int(size), destination=where)
            if "actual" in options:
                scenario.actual[lfn] = int(options["actual"])
        case ["job", name, *rest]:
            arrow = rest.index("->")
            jobs[name] = Job(
                name,
                "work",
                ("work",),
                inputs=tuple(JobInput(lfn, lfn) for lfn in rest[:arrow]),
                outputs=tuple(JobOutput(lfn, lfn) for lfn in rest[arrow + 1 :]),
                cores=int(options.get("cores", 1)),
                retries=int(options.get("retries", 2)),
                compute_s=float(options.get("compute", 1)),
            )


def play(scenario: Scenario) -> str:
    """The log."""
    nodes = [Node(name, scenario.capacity, scenario.cores, disk_bytes_per_s=scenario.disk) for name in scenario.nodes]
    nodes += [Node(name, capacity, disk_bytes_per_s=scenario.disk) for name, capacity in scenario.beside.items()]
    nodes = [replace(node, hosts=tuple(scenario.hosts.get(node.id, ()))) for node in nodes]
    topology = Topology(tuple(nodes), tuple(scenario.links))
    faults = ListedFaults(transfers=scenario.transfer_faults, attempts=frozenset(scenario.attempt_faults))
    spread = ListedSizes(actual=scenario.actual)
    world = SimWorld(topology, scenario.policy, faults=faults, spread=spread, checkers=all_checkers(), late=scenario.late)
    for run, name, at in scenario.runs:
        world.submit(run, *defined(scenario, topology, name), at, sharing=Sharing(joins=True) if run in scenario.joining else None)
    for lfn in scenario.there:
        world.origin(HOME_URL).put(f"out/{lfn}", "something else", 7)
    for time, words, options in scenario.happenings:
        if words[0] == "resume" and len(words) == 3:
            resume_with(world, words[1], *defined(scenario, topology, words[2]), time)
        else:
            happen(world, time, words, options)
    log = Log(world, tells_nodes=len(scenario.nodes) > 1)
    simulate(world, lambda machine, events, commands: log.add(events, commands))
    return "\n".join(log.lines) + "\n"


def defined(scenario: Scenario, topology: Topology, name: str) -> tuple[Workflow, Plan]:
    files, jobs = scenario.workflows[name]
    home = Origin("home", scenario.kind, HOME_URL, options=(("shell_checksum", "false"),))
    workflow = Workflow(name, files, jobs, {"home": home}, hints=scenario.hints)
    return workflow, make_plan(workflow, topology, policy=scenario.policy, spill_origin=scenario.spill)


def happen(world: SimWorld, time: float, words: list[str], options: dict[str, str]) -> None:
    match words:
        case [wish, run] if wish in INTERRUPTS:
            world.tell_at(time, lambda now: INTERRUPTS[wish](at=now, run=run))
        case ["capacity", size]:
            world.tell_at(time, lambda now: ev.CapacityChanged(at=now, node="node0", capacity_bytes=int(size)))
        case ["gone", name]:
            world.clock.at(time, leave, world, name)
        case ["drains" | "stays", name]:
            world.tell_at(time, lambda now: ev.NodeDraining(at=now, node=name, draining=words[0] == "drains"))
        case ["joins", name]:
            world.clock.at(time, join, world, name)
        case ["corrupt", lfn]:
            world.tell_at(time, lambda now: damage(world, now, lfn))
        case ["host", name, what]:
            trouble = Trouble(time, f"host_{what}", float(options.get("for", 0)), code=name)
            world.clock.at(time, getattr(world.troubles.hosts, trouble.what), trouble)
        case ["origin", _, code]:
            world.clock.at(time, set_origin, world, code)
            world.clock.at(time + float(options["for"]), set_origin, world, "")
        case _:
            raise ValueError(f"nothing happens as {' '.join(words)!r}")


def leave(world: SimWorld, name: str) -> None:
    """It dies with its disk, and somebody says so at once. Who runs jobs beside it says nothing of them."""
    world.troubles.departures.leave(world.nodes[name], with_jobs=False)
    world.say(None, ev.NodeGone(at=world.clock.now, node=name, why="its machine was terminated"))


def join(world: SimWorld, name: str) -> None:
    world.nodes[name].absent, world.nodes[name].up = False, True
    world.say_state(world.nodes[name])


def set_origin(world: SimWorld, code: str) -> None:
    for origin in world.origins.values():
        origin.fault_code = code


def damage(world: SimWorld, now: float, lfn: str) -> ev.ReplicaCorrupt:
    node = world.nodes["node0"]
    ids = {file_id for run in world.executor.runs.values() for name, file_id in run.file_ids.items() if name == lfn}
    file, generation = next(key for key in node.replicas if key[0] in ids)
    node.replicas[file, generation].quarantined = True
    return ev.ReplicaCorrupt(at=now, node=node.id, file=file, generation=generation, fault=DAMAGE)


class Log:
    """`<` what the Machine was told, `>` what it decided. Ids are left out, files have their names."""

    def __init__(self, world: SimWorld, *, tells_nodes: bool) -> None:
        self.world, self.lines = world, []
        self.names: dict[str, str] = {}
        self.tells_nodes, self.untold = tells_nodes, UNTOLD_FACTS - {"node", "source"} if tells_nodes else UNTOLD_FACTS
        self.transfers: dict[str, str] = {}
        self.attempts: dict[str, str] = {}

    def add(self, events: Any, commands: Any) -> None:
        for run in self.world.executor.runs.values():
            self.names |= {file_id: lfn for lfn, file_id in run.file_ids.items()}
        for event in events:
            if self.is_told(event):
                self.lines.append(f"{event.at:8.3f} < {type(event).__name__} {self.facts(event)}".rstrip())
        for command in commands:
            if isinstance(command, cmd.Fetch | cmd.Upload | cmd.CopyReplica):
                self.names[command.file] = command.lfn
                self.transfers[command.transfer] = command.lfn
            elif isinstance(command, cmd.StartAttempt):
                self.attempts[command.attempt] = f"{command.run} {command.job}"
            if not isinstance(command, cmd.WakeAt):
                self.lines.append(f"{command.at:8.3f} > {type(command).__name__} {self.facts(command)}".rstrip())

    def is_told(self, event: Any) -> bool:
        if isinstance(event, ev.NodeReported | ev.HostReported):
            return event.at > 0 and (self.tells_nodes or isinstance(event, ev.HostReported))
        return not isinstance(event, UNTOLD_EVENTS)

    def facts(self, value: Any) -> str:
        known = {name: getattr(value, name) for name in value.__struct_fields__}
        told = [str(known[name]) for name in NAMED_FIRST if known.get(name)]
        if not known.get("lfn"):
            told += [self.names.get(known.get("file", ""), ""), self.transfers.get(known.get("transfer", ""), "")]
        if "attempt" in known and "job" not in known:
            told.append(self.attempts[known["attempt"]])
        if isinstance(value, ev.NodeReported):
            return value.node
        if isinstance(value, ev.RunResumed) and value.workflow is not None:
            return f"{value.run} {value.workflow.name}"
        if isinstance(value, ev.RunSubmitted):
            return f"{value.run} {value.workflow.name} smallest={value.plan.smallest_capacity_bytes} peak={value.plan.peak_live_bytes}"
        if isinstance(value, cmd.RehomeJob):
            told.append(f"node={value.node}")
        told += [
            f"{name}={self.show(known[name])}"
            for name in known
            if name not in self.untold and name not in NAMED_FIRST and shown(known[name])
        ]
        return " ".join(word for word in told if word)

    def show(self, value: Any) -> str:
        if isinstance(value, Enum):
            return str(value.value)
        if isinstance(value, Fault):
            return value.code
        if isinstance(value, tuple):
            return ",".join(f"{made.lfn}:{made.size_bytes}" for made in value)
        if isinstance(value, float):
            return f"{value:.3f}"
        text = self.names.get(str(value), str(value))
        return repr(text) if re.search(r"\s", text) else text


def shown(value: Any) -> bool:
    """Facts that say nothing are left out."""
    return value is not None and value is not False and value not in ("", (), {}, 1.0)


def scenario_files() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*.txt"))
