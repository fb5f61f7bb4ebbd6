"""From a journal back to a Machine: the same version decides the same again; else the record wins, and nothing is decided anew."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stager.adapters.ionode import PeerAddress
from stager.adapters.journal_sqlite import Codec
from stager.model.files import Destination, File, Location, Source
from stager.model.ids import produced_file_id
from stager.model.topology import Node, OriginLink, Topology, embedded
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.ports import Batch, Snapshot
from stager.runtime.allowances import Allowances
from stager.runtime.credentials import CredentialBook
from stager.runtime.node_calls import NodeCalls, transfer_body
from stager.runtime.outstanding import Outstanding
from stager.runtime.peering import Peering
from stager.runtime.recovery import recover
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.scheduler.states import JobState
from stager.sim.checkers import all_checkers
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from stager.wire.node import TransferAnswer

LIMITS = Limits(cores=2)
NOBODY: Any = None
FILES = {
    "raw": File("raw", sources=(Source(Location("lab", "raw"), 10, "m=1;s=10"),), size_bytes=10),
    "mid": File("mid", size_bytes=10),
    "end": File("end", size_bytes=10, destination=Destination(Location("lab", "end"))),
}
JOBS = {
    "first": Job("first", "first", shell="x", inputs=(JobInput("raw", "raw"),), outputs=(JobOutput("mid", "mid"),)),
    "last": Job("last", "last", shell="x", inputs=(JobInput("mid", "mid"),), outputs=(JobOutput("end", "end"),)),
}
WORKFLOW = Workflow("w", FILES, JOBS, {"lab": Origin("lab", OriginKind.FILE, "file:///lab")})


class Recorded:
    """A journal in memory."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.kept: list[Batch] = []

    def append(self, events: Sequence[Any], commands: Sequence[Any]) -> int:
        self.kept.append(Batch(len(self.kept) + 1, self.version, list(events), list(commands)))
        return len(self.kept)

    def batches(self, after: int = 0) -> Iterable[Batch]:
        return list(self.kept[after:])

    def batch(self, number: int) -> Batch:
        return self.kept[number - 1]

    def snapshot(self, parts: Mapping[str, Any]) -> None:
        raise AssertionError("nothing here is worth a snapshot")

    def newest_snapshot(self, kinds: Mapping[str, type]) -> Snapshot | None:
        return None

    def close(self) -> None: ...


def make() -> Machine:
    return Machine(Policy(), LIMITS)


def simulated(version: str = "1") -> tuple[Machine, Recorded]:
    """A run up to the middle of its second job."""
    machine, journal, at = make(), Recorded(version), 0.0

    def happen(event: Any) -> list[Any]:
        nonlocal at
        at += 1.0
        event = replace(event, at=at)
        commands = machine.step(event)
        journal.append([event], commands)
        return commands

    plan = make_plan(WORKFLOW, embedded(1_000_000_000, cores=2), limits=LIMITS)
    happen(ev.SchedulerStarted(at=0.0, epoch=1, version=version))
    happen(ev.PolicySet(at=0.0, policy=Policy(), limits=LIMITS))
    happen(ev.NodeReported(at=0.0, node="node0", incarnation="i", capacity_bytes=1_000_000_000, can_link=True, replicas=(), transfers=()))
    [fetch] = [
        command for command in happen(ev.RunSubmitted(at=0.0, run="w-1", workflow=WORKFLOW, plan=plan)) if isinstance(command, cmd.Fetch)
    ]
    commands = happen(ev.TransferDone(at=0.0, node="node0", transfer=fetch.transfer, size_bytes=10, blake3="b"))
    [start] = [command for command in commands if isinstance(command, cmd.StartAttempt)]
    made = ev.OutputMade("mid", produced_file_id("w-1", "mid"), start.attempt, 10, "c")
    happen(ev.AttemptEnded(at=0.0, run="w-1", job="first", attempt=start.attempt, outcome=ev.Outcome.OK, exit_code=0, outputs=(made,)))
    assert machine.state.runs["w-1"].jobs["last"].state is JobState.RUNNING
    return machine, journal


@dataclass
class Sizes:
    """A watch."""

    seen: list[int] = field(default_factory=list)


class Watching:
    KEPT = Sizes

    def __init__(self) -> None:
        self.sizes = Sizes()

    def saw(self, events: Sequence[Any], commands: Sequence[Any]) -> None:
        self.sizes.seen.append(len(events))

    def kept(self) -> Sizes:
        return self.sizes

    def take_up(self, kept: Sizes) -> None:
        self.sizes = kept


def picture(machine: Machine) -> dict[str, Any]:
    state = machine.state
    return {
        "jobs": {job.id: (job.state, job.attempts, job.failures) for job in state.runs["w-1"].jobs.values()},
        "copies": {
            file.lfn: {node: (copy.state, copy.generation, copy.pins) for node, copy in file.copies.items()}
            for file in state.files.values()
        },
        "attempts": sorted(state.attempts),
        "transfers": sorted(state.transfers),
        "space": {
            node.id: (node.present_bytes, node.fetching_bytes, node.promised_bytes, node.cores_used) for node in state.nodes.values()
        },
        "now": state.now,
        "epoch": state.epoch,
    }


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_machine_is_as_it_was(version: str, caplog: pytest.LogCaptureFixture) -> None:
    """Decided anew by the version that wrote the journal, applied by another."""
    machine, journal = simulated("1")
    found = recover(journal, version, make, Watching).machine
    assert picture(found) == picture(machine)
    assert not caplog.records


def test_a_disagreement_is_logged_loudly_and_the_record_wins(caplog: pytest.LogCaptureFixture) -> None:
    machine, journal = simulated("1")
    [place] = [
        number
        for number, batch in enumerate(journal.kept)
        if any(type(command) is cmd.StartAttempt and command.job == "last" for command in batch.commands)
    ]
    recorded = [
        replace(command, reserve_bytes=command.reserve_bytes + 1) if type(command) is cmd.StartAttempt else command
        for command in journal.kept[place].commands
    ]
    journal.kept[place] = journal.kept[place]._replace(commands=recorded)
    with caplog.at_level(logging.ERROR):
        found = recover(journal, "1", make, Watching).machine
    assert "the recorded decisions are taken" in caplog.text
    [attempt] = found.state.attempts.values()
    [decided] = machine.state.attempts.values()
    assert attempt.reserve_bytes == decided.reserve_bytes + 1


def test_every_batch_is_watched_once() -> None:
    _, journal = simulated()
    assert recover(journal, "1", make, Watching).watch.kept().seen == [len(batch.events) for batch in journal.kept]


def test_what_has_no_answer_yet_is_outstanding() -> None:
    machine, journal = simulated()
    outstanding = recover(journal, "1", make, Watching).outstanding
    assert [command.job for command in outstanding.attempts.values()] == ["last"]
    assert outstanding.transfers == {} and outstanding.epoch == 1
    assert outstanding.workflows == {"w-1": WORKFLOW}
    assert set(outstanding.attempts) == set(machine.state.attempts)


def fetch(transfer: str) -> cmd.Fetch:
    return cmd.Fetch(
        id=transfer, at=0.0, cause="", node="node0", transfer=transfer, file="f", lfn="l", run="r", origin="o", path="p",
        size_bytes=1, token="",
        purpose=cmd.Purpose.DEMAND, priority=1,
    )  # fmt: skip


def test_a_nodes_report_ends_what_it_does_not_list() -> None:
    outstanding = Outstanding()
    outstanding.gave([fetch("t1"), fetch("t2"), cmd.CancelTransfer(id="c", at=0.0, cause="", node="node0", transfer="t1")])
    outstanding.saw(
        [ev.NodeReported(at=0.0, node="node0", incarnation="i", capacity_bytes=1, can_link=True, replicas=(), transfers=("t2", "t9"))]
    )
    assert set(outstanding.transfers) == {"t2"} and outstanding.cancels == {}


def test_a_grant_and_a_kill_are_outstanding_until_their_attempt_ends() -> None:
    outstanding = Outstanding()
    grant = cmd.GrantSpace(id="c1", at=0.0, cause="", node="node0", attempt="a", reserve_bytes=5)
    kill = cmd.KillAttempt(id="c2", at=0.0, cause="", node="node0", run="r", job="j", attempt="a")
    outstanding.gave([grant, kill])
    assert outstanding.grants == {"a": grant} and outstanding.kills == {"a": kill}
    outstanding.saw([ev.AttemptEnded(at=0.0, run="r", job="j", attempt="a", outcome=ev.Outcome.KILLED)])
    assert outstanding.grants == {} and outstanding.kills == {}


def test_wakes_that_have_come_are_forgotten() -> None:
    outstanding = Outstanding()
    outstanding.gave([cmd.WakeAt(id="c1", at=0.0, cause="", wake_at=5.0), cmd.WakeAt(id="c2", at=0.0, cause="", wake_at=9.0)])
    outstanding.saw([ev.Woken(at=6.0)])
    assert outstanding.wakes == {9.0}


def erase(run: str) -> cmd.EraseSpill:
    facts = {"node": "node0", "file": "p1", "origin": "store", "path": ".stager-spill/b-1/p1", "token": "t"}
    return cmd.EraseSpill(id="c9", at=0.0, cause="e1", run=run, **facts)


class Asked:
    """A node that does all it is asked."""

    def __init__(self) -> None:
        self.origins: dict[str, Any] = {}
        self.erased: list[tuple[str, str]] = []
        self.order: list[Any] = []

    async def put_origin(self, origin_id: str, config: Any) -> None:
        self.origins[origin_id] = config
        self.order.append(origin_id)

    async def put_peer(self, peer: str, address: PeerAddress) -> None:
        self.order.append(peer)

    async def put_transfer(self, transfer: str, body: Any, *, command_id: str) -> TransferAnswer:
        self.order.append((transfer, body))
        return TransferAnswer(state="queued")

    async def erase(self, origin_id: str, path: str, token: str | None, *, command_id: str) -> bool:
        self.erased.append((self.origins[origin_id]["url"], path))
        return True


@pytest.mark.parametrize("run", ["b-1", ""])
def test_a_spill_is_erased_at_the_origin_of_its_run_in_an_older_journal_too(run: str) -> None:
    """Two runs call different servers `store`. An older journal does not say the run; the path does."""
    outstanding, told, asked = Outstanding(), [], Asked()
    for name, url in (("a-1", "file:///a"), ("b-1", "file:///b")):
        outstanding.workflows[name] = dataclasses.replace(WORKFLOW, origins={"store": Origin("store", OriginKind.FILE, url)})
    outstanding.gave([erase(run)])
    [command] = outstanding.erases.values()
    book = CredentialBook(lambda run, origin: {"kind": "file", "url": origin.url}, lambda run, origin: False)
    alone = Allowances(lambda: 0.0).of("node0", asked)
    calls = NodeCalls(
        "node0", asked, lambda event, *_: told.append(event), outstanding, book, lambda problem: None, lambda: 0.0, NOBODY, alone
    )  # type: ignore[arg-type]
    asyncio.run(calls.erase_spill(command))
    assert asked.erased == [("file:///b", ".stager-spill/b-1/p1")]
    outstanding.saw(told)
    assert outstanding.erases == {}


def test_what_is_assembled_is_asked_for_when_the_node_knows_its_origin_and_all_who_fetch_a_part() -> None:
    asked, outstanding = Asked(), Outstanding()
    outstanding.workflows["a-1"] = dataclasses.replace(WORKFLOW, origins={"lab": Origin("lab", OriginKind.FILE, "file:///a")})
    facts: Any = {"file": "x1", "lfn": "in", "run": "a-1", "origin": "lab", "path": "in", "size_bytes": 8, "token": "t"}
    assemble = cmd.AssembleStripes(
        id="c1", at=0.0, cause="e1", node="node0", transfer="t1", purpose=cmd.Purpose.DEMAND, priority=1, **facts,
        parts=(cmd.Part("node1", "t1.0", 4), cmd.Part("node0", "t1.1", 4)),
    )  # fmt: skip
    outstanding.gave([assemble])
    assert outstanding.twin().transfers == {"t1": assemble}
    book = CredentialBook(lambda run, origin: {"kind": "file", "url": origin.url}, lambda run, origin: False)

    async def main() -> None:
        peering = Peering()
        teller = peering.teller("node0", asked)  # type: ignore[arg-type]
        peering.addresses["node1"] = PeerAddress("10.0.0.2:7000", "a-token", "i1")
        alone = Allowances(lambda: 0.0).of("node0", asked)
        calls = NodeCalls("node0", asked, lambda event, *_: None, outstanding, book, lambda problem: None, lambda: 0.0, teller, alone)  # type: ignore[arg-type]
        await calls.put_transfer(assemble)

    asyncio.run(main())
    (origin_id,) = asked.origins
    body = transfer_body(assemble, origin_id, 1)
    assert asked.order == [origin_id, "node1", ("t1", body)]
    assert [part["generation"] for part in body["parts"]["held_by"]] == ["t1.0", "t1.1"]


LATER_FIELDS = {"EraseSpill": "run", "GiveUpTransfer": "origin"}


def as_written_before(events: Sequence[Any], commands: Sequence[Any], met: Counter[str]) -> bytes:
    """A batch as versions wrote it that did not know some fields."""
    values = msgspec.msgpack.decode(Codec(ev.Event, cmd.Command).encode(events, commands))
    for name, value in values[1]:
        if name in LATER_FIELDS:
            del value[LATER_FIELDS[name]]
            met[name] += 1
    return msgspec.msgpack.encode(values)


def test_a_journal_from_before_commands_named_runs_and_origins_is_read_and_applied() -> None:
    """A run spills and erases it; another is denied at its only source."""
    topology = Topology((Node("node0", 1000),), (OriginLink("lab", 1000, 1000),))
    files = {lfn: File(lfn, size_bytes=size) for lfn, size in (("keep", 450), ("go", 10), ("other", 300), ("end", 10))}
    files["in"] = File("in", size_bytes=400, sources=(Source(Location("lab", "in"), 400, "t"),))
    reads = {"a": ([], ["keep", "go"]), "b": (["go", "in"], ["other"]), "c": (["keep", "other"], ["end"])}
    jobs = {
        job: Job(
            job,
            "work",
            shell="x",
            inputs=tuple(JobInput(lfn, lfn) for lfn in ins),
            outputs=tuple(JobOutput(lfn, lfn) for lfn in outs),
            compute_s=1.0,
        )
        for job, (ins, outs) in reads.items()
    }
    spilling = Workflow("s", files, jobs, {"lab": Origin("lab", OriginKind.SFTP, "sftp://lab/data")})
    denied = dataclasses.replace(WORKFLOW, origins={"lab": Origin("lab", OriginKind.SFTP, "sftp://other/data")})
    world = SimWorld(topology, checkers=all_checkers(), keep_journal=True)
    world.submit("s-1", spilling, make_plan(spilling, topology, spill_origin="lab"))
    world.submit("w-1", denied, make_plan(denied, topology))
    world.origins["sftp://other/data"].fault_code = "denied"
    machine, journal, met = simulate(world), Recorded("old"), Counter[str]()
    for events, commands in world.journal:
        journal.append(*Codec(ev.Event, cmd.Command).decode(as_written_before(events, commands, met)))
    assert set(met) == set(LATER_FIELDS)
    past = recover(journal, "new", lambda: Machine(world.policy, world.limits), Watching)
    found, outstanding = past.machine, past.outstanding
    assert picture(found) == picture(machine)
    assert {run: entry.outcome for run, entry in found.state.runs.items()} == {"s-1": "succeeded", "w-1": "failed"}
    assert list(found.state.paused_origins) == list(machine.state.paused_origins) and outstanding.erases == {}


def test_of_a_node_that_is_gone_nothing_is_asked_any_more_and_its_attempts_are_still_to_be_ended() -> None:
    outstanding = Outstanding()
    kill = cmd.KillAttempt(id="c2", at=0.0, cause="", node="node0", run="r", job="j", attempt="a")
    grant = cmd.GrantSpace(id="c1", at=0.0, cause="", node="node0", attempt="a", reserve_bytes=5)
    outstanding.gave([fetch("t1"), cmd.CancelTransfer(id="c", at=0.0, cause="", node="node0", transfer="t1"), grant, kill])
    outstanding.saw([ev.NodeGone(at=0.0, node="node0")])
    assert (outstanding.transfers, outstanding.cancels, outstanding.grants) == ({}, {}, {})
    assert outstanding.kills == {"a": kill}
