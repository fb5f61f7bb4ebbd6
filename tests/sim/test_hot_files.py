"""A file that jobs on all nodes read: it spreads from node to node, each that has it giving it to one more at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil, log2

from msgspec import structs

from stager.estimate import estimate
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.peers import peer_for
from stager.scheduler.state import Copy, FileEntry, State, TransferEntry
from stager.scheduler.states import CopyState
from stager.sim.checkers import all_checkers
from stager.sim.faults import Faults, Trouble
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants

MB = 1_000_000
HOT_BYTES, NODES, READERS = 100 * MB, 8, 64
ALL_AT_ONCE = Policy(fan_out_bytes_min=10**15)


def hot_file(readers: int = READERS, compute_s: float = 20.0, size_bytes: int = HOT_BYTES, first_s: float = 0.0) -> Workflow:
    """`first_s`: before each reader a job of its own takes so long, so that the file may come ahead."""
    files = {"hot": File("hot", size_bytes=size_bytes, sources=(Source(Location("lab", "in/hot"), size_bytes, "t"),))}
    jobs = {}
    for number in range(readers):
        end, inputs = f"end{number}", (JobInput("hot", "hot"),)
        files[end] = File(end, size_bytes=1, destination=Destination(Location("lab", f"out/{end}")))
        if first_s:
            files[f"mid{number}"] = File(f"mid{number}", size_bytes=1)
            jobs[f"a{number}"] = Job(f"a{number}", "first", ("first",), outputs=(JobOutput(f"mid{number}", "mid"),), compute_s=first_s)
            inputs = (*inputs, JobInput(f"mid{number}", "mid"))
        jobs[f"j{number}"] = Job(f"j{number}", "read", ("read",), inputs=inputs, outputs=(JobOutput(end, end),), compute_s=compute_s)
    return Workflow("hot", files, jobs, {"lab": Origin("lab", OriginKind.SFTP, "sftp://lab/data")})


def topology(count: int = NODES, cores: int = 4) -> Topology:
    """From the lab the file takes 10 s, from node to node 10 s alone."""
    nodes = tuple(
        Node(f"node{number}", 10 * HOT_BYTES, cores, disk_bytes_per_s=100 * MB, network_bytes_per_s=10 * MB) for number in range(count)
    )
    return Topology(nodes, (OriginLink("lab", 10 * MB, 10 * MB, 0.0),))


class Spread:
    """Plays it, all readers spread over all nodes, and remembers when each node has the file and who gave it."""

    def __init__(self, policy: Policy, faults: Faults | None = None, first_s: float = 0.0) -> None:
        what, where = hot_file(first_s=first_s), topology()
        plan = make_plan(what, where)
        jobs = tuple(structs.replace(job, node=f"node{int(job.job[1:]) % NODES}") for job in plan.jobs)
        self.world = SimWorld(where, policy, faults=faults or Faults(), checkers=all_checkers(), resumes_max=3, keep_journal=True)
        self.world.submit("r", what, replace(plan, jobs=jobs))
        self.copies: dict[str, cmd.CopyReplica] = {}
        self.arrived: dict[str, float] = {}
        self.most: Counter[str] = Counter()
        check_replay(self.world, simulate(self.world, self.watch))

    def watch(self, machine: Machine, events: list[ev.Event], commands: list[cmd.Command]) -> None:
        watch_invariants(machine, events, commands)
        for event in events:
            if isinstance(event, ev.TransferDone) and event.size_bytes == HOT_BYTES:
                self.arrived[event.node] = event.at
        self.copies |= {command.transfer: command for command in commands if isinstance(command, cmd.CopyReplica)}
        for node in machine.state.nodes.values():
            self.most[node.id] = max(self.most[node.id], node.sending)

    @property
    def wall_s(self) -> float:
        return self.world.runs["r"].finished_at


def test_it_spreads_in_as_many_rounds_as_doubling_takes() -> None:
    """10 s over the wide area, then 3 rounds of 10 s to 8 nodes; from one node to seven at once 70 s."""
    spread, at_once = Spread(Policy()), Spread(ALL_AT_ONCE)
    assert len(spread.arrived) == len(at_once.arrived) == NODES
    assert 10.0 + 10.0 * ceil(log2(NODES)) <= max(spread.arrived.values()) < 40.5
    assert 80.0 <= max(at_once.arrived.values()) < 80.5
    assert (max(spread.most.values()), max(at_once.most.values())) == (1, NODES - 1)
    assert len(spread.copies) == NODES - 1
    assert spread.wall_s < at_once.wall_s - 30.0
    assert spread.world.transfers.fetched_bytes == HOT_BYTES


def test_each_node_that_has_it_gives_it_on() -> None:
    """1, 2, then 4 at a time; the bytes that the busiest node sends are log2(8) files and not 7."""
    sources = Counter(command.source for command in Spread(Policy()).copies.values())
    assert max(sources.values()) <= ceil(log2(NODES))
    assert len(sources) >= NODES // 2


def test_the_planned_workflow_is_faster_with_it_and_the_plan_predicts_the_time() -> None:
    """Placement weighs what a copy takes: fewer nodes than there are may be better, and none waits for the 8th copy of one source."""
    what, where = hot_file(), topology()
    plan = make_plan(what, where)
    fast, slow = estimate(what, where, policy=Policy(), plan=plan), estimate(what, where, policy=ALL_AT_ONCE, plan=plan)
    assert fast.wall_s < 0.95 * slow.wall_s
    assert 0.8 < plan.makespan_s / fast.wall_s < 1.25


def test_it_spreads_ahead_of_its_readers_in_the_same_way() -> None:
    spread = Spread(Policy(), first_s=100.0)
    assert {command.purpose for command in spread.copies.values()} == {cmd.Purpose.PREFETCH}
    assert (max(spread.most.values()), len(spread.arrived)) == (1, NODES)
    assert max(spread.arrived.values()) < 41.0


def test_a_node_that_gives_it_to_nobody_is_asked_before_one_that_does() -> None:
    """`a` gives it to `c`; `b` is as busy, with another file."""
    state = State(Policy(), Limits())
    state.nodes = {name: NodeEntry(name, reachable=True, sending=1) for name in "abcd"}
    file = state.files["x"] = FileEntry("x", "hot", "r", HOT_BYTES)
    file.copies = {name: Copy(CopyState.PRESENT, f"g{name}", HOT_BYTES) for name in "ab"}
    assert peer_for(state, file, "d") == "a"
    file.copies["c"] = Copy(CopyState.FETCHING, "t1", HOT_BYTES)
    state.transfers["t1"] = TransferEntry("t1", "c", "x", "r", cmd.Purpose.DEMAND, "", "", HOT_BYTES, 0.0, source="a")
    assert peer_for(state, file, "d") == "b"


def test_small_files_do_not_wait_for_one_another() -> None:
    spread = Spread(Policy(fan_out_bytes_min=HOT_BYTES + 1))
    assert max(spread.most.values()) == NODES - 1


def test_whoever_waits_for_a_copy_goes_on_when_it_fails_or_its_node_is_lost() -> None:
    """The node to which the first copy goes cannot be reached half way, and comes back much later: the others do not wait for it."""
    away = Trouble(at=15.0, what="outage", lasts_s=500.0, at_share=1.5 / NODES)
    spread = Spread(Policy(), Faults(troubles=(away,)))
    others = [at for node, at in spread.arrived.items() if node != "node1"]
    assert len(others) == NODES - 1
    assert max(others) < 70.0
    died = Trouble(at=15.0, what="restart", lasts_s=500.0, at_share=1.5 / NODES)
    others = [at for node, at in Spread(Policy(), Faults(troubles=(died,))).arrived.items() if node != "node1"]
    assert len(others) == NODES - 1
    assert max(others) < 70.0
