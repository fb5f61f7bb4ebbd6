"""Nodes that leave for good, drain, come back as strangers and come late: nothing safe is lost, and no run waits for what is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from msgspec import structs

from stager.model.topology import Node, Topology
from stager.planning.make_plan import make_plan
from stager.planning.policy import Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.apply_commands import apply_command
from stager.scheduler.commands import RunOutcome
from stager.scheduler.leaving import unsafe_on
from stager.scheduler.ledger import Standing, ledger_of
from stager.scheduler.machine import Machine
from stager.scheduler.snapshot import kept_state, restored
from stager.scheduler.state import FileEntry
from stager.service.giving_up import NEVER_GIVES_UP
from stager.service.journal_queries import absences
from stager.service.waiting import waiting_of
from stager.sim.checkers import all_checkers
from stager.sim.faults import Trouble
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants
from tests.sim.departures import DepartureWatch
from tests.sim.test_several_nodes import LINKS, Jobs, workflow

# `x` is made in 10 s, and read when `slow` has ended.
LATE: Jobs = {"make": ("", "x", 10.0), "slow": ("", "z", 100.0), "read": ("x z", "y", 1.0)}
WHY = "its machine was terminated"


class Stage:
    """Three nodes; jobs run on `io0`, those of `where` elsewhere. `late`: nodes that have not joined."""

    def __init__(
        self,
        jobs: Jobs,
        where: dict[str, str] | None = None,
        externals: dict[str, int] | None = None,
        copies: int = 1,
        late: Iterable[str] = (),
        spill: str | None = None,
        once: Iterable[str] = (),
        nodes: int = 3,
        room: int = 10_000,
        network: float = 100.0,
    ) -> None:
        what = workflow(externals or {}, jobs, ("y",))
        what = replace(what, jobs={name: replace(job, idempotent=name not in tuple(once)) for name, job in what.jobs.items()})
        rates = {"disk_bytes_per_s": 1e6, "network_bytes_per_s": network}
        topology = Topology(tuple(Node(f"io{number}", room, 4, **rates) for number in range(nodes)), LINKS)
        plan = make_plan(what, topology, spill_origin=spill)
        plan = replace(plan, jobs=tuple(structs.replace(job, node=(where or {}).get(job.job, "io0")) for job in plan.jobs))
        self.world = SimWorld(topology, Policy(copies=copies), checkers=all_checkers(), keep_journal=True, late=tuple(late))
        self.world.submit("r", what, plan)
        self.commands: list[Any] = []
        self.asked: list[tuple[float, Callable[[Machine], Any]]] = []
        self.answers: list[Any] = []
        self.machine: Machine | None = None

    def gone(self, at: float, node: str) -> Stage:
        def leave() -> None:
            self.world.troubles.departures.leave(self.world.nodes[node], with_jobs=False)
            self.world.say(None, ev.NodeGone(at=self.world.clock.now, node=node, why=WHY))

        self.world.clock.at(at, leave)
        return self

    def replaced(self, at: float, node: str) -> Stage:
        """It dies with its disk, and 5 s later another machine has its name."""
        share = list(self.world.nodes).index(node) / len(self.world.nodes)
        self.world.clock.at(at, self.world.troubles.lost, Trouble(at, "lost", lasts_s=5.0, at_share=share))
        return self

    def drains(self, at: float, node: str, draining: bool = True) -> Stage:
        self.world.tell_at(at, lambda now: ev.NodeDraining(at=now, node=node, draining=draining))
        return self

    def ask(self, at: float, question: Callable[[Machine], Any]) -> Stage:
        """Of the Machine, at the first event from then on."""
        self.asked.append((at, question))
        self.world.tell_at(at, lambda now: ev.Woken(at=now))
        return self

    def play(self) -> RunOutcome | None:
        departures = DepartureWatch(self.world)

        def watch(machine: Machine, events: list[Any], commands: list[Any]) -> None:
            watch_invariants(machine, events, commands)
            departures(machine, events, commands)
            self.commands += commands
            while self.asked and machine.state.now >= self.asked[0][0]:
                self.answers.append(self.asked.pop(0)[1](machine))

        self.machine = simulate(self.world, watch)
        check_replay(self.world, self.machine)
        return self.world.runs["r"].outcome

    def of(self, kind: type) -> list[Any]:
        return [command for command in self.commands if isinstance(command, kind)]

    def ran(self, job: str) -> list[str]:
        return [command.node for command in self.of(cmd.StartAttempt) if command.job == job]


def standing_of(lfn: str) -> Callable[[Machine], Standing]:
    return lambda machine: {row.lfn: row.standing for row in ledger_of(machine.state, "r")}[lfn]


def test_what_waiting_jobs_will_read_comes_ahead_again_to_a_machine_that_replaces_one() -> None:
    jobs: Jobs = {"slow": ("", "z", 100.0), "read": ("e z", "y", 1.0)}
    stage = Stage(jobs, {"slow": "io1"}, {"e": 1000}).replaced(50.0, "io0")
    assert stage.play() is RunOutcome.SUCCEEDED
    assert [fetch.at for fetch in stage.of(cmd.Fetch) if fetch.node == "io0"] == [0.0, 55.0]


def test_what_ran_on_a_node_that_is_gone_runs_elsewhere_and_what_only_it_held_is_made_again() -> None:
    stage = Stage(LATE).gone(50.0, "io0")
    assert stage.play() is RunOutcome.SUCCEEDED
    assert (len(stage.ran("make")), len(stage.ran("slow"))) == (2, 2)
    assert {node for job in ("make", "slow", "read") for node in stage.ran(job)[-1:]} <= {"io1", "io2"}
    assert [command.counts for command in stage.of(cmd.RequeueJob) if command.job == "slow"] == [False], "no try of its own is used up"
    assert {(command.job, command.why) for command in stage.of(cmd.RehomeJob)} >= {("read", f"io0 is gone ({WHY})")}


def waits(machine: Machine) -> list[tuple[str, str, str]]:
    state = machine.state
    return [(each.node, each.code, each.message) for each in waiting_of(state, state.runs["r"], state.now)]


def test_a_run_says_for_which_node_it_waits_and_what_is_made_again() -> None:
    stage = Stage(LATE, {"slow": "io1"}).replaced(50.0, "io0").ask(40.0, waits).ask(53.0, waits).ask(60.0, waits)
    assert stage.play() is RunOutcome.SUCCEEDED
    before, away, back = stage.answers
    assert before == []
    [(node, code, message)] = away
    assert (node, code) == ("io0", "node_away")
    assert message.startswith("node io0: no answer for 3 s; it alone holds 1 file (") and "`stager node forget io0`" in message
    assert back == [], "it is there again, with another store, and what was lost is in the making"


def explained(file: str = "", job: str = "") -> Callable[[Machine], list[str]]:
    def absent(machine: Machine) -> list[str]:
        state, run = machine.state, machine.state.runs["r"]
        lines = absences(state, run, run.file_ids[file] if file else "", job, state.now, NEVER_GIVES_UP)
        return [line.partition("  ")[2] for line in lines]

    return absent


def test_a_file_and_a_job_say_for_which_node_they_wait_and_others_do_not() -> None:
    stage = Stage(LATE, {"slow": "io1"}).replaced(50.0, "io0").ask(40.0, explained(job="read"))
    for asked in (explained(file="x"), explained(job="read"), explained(file="z"), explained(job="slow"), explained(job="make")):
        stage.ask(53.0, asked)
    assert stage.play() is RunOutcome.SUCCEEDED
    before, of_file, of_reader, *others = stage.answers
    assert before == []
    for lines in (of_file, of_reader):
        [line] = lines
        assert line.startswith("it waits: node io0: no answer for 3 s; it alone holds 1 file (") and "`stager node forget io0`" in line
    assert others == [[], [], []]


def test_a_run_says_what_is_made_again_since_a_node_is_gone() -> None:
    stage = Stage(LATE, {"slow": "io1"}).gone(50.0, "io0").ask(55.0, waits).ask(80.0, waits)
    assert stage.play() is RunOutcome.SUCCEEDED
    making, made = stage.answers
    [(node, code, message)] = making
    assert (node, code) == ("io0", "node_gone")
    assert message.startswith(f"node io0: gone ({WHY}); 1 file (") and message.endswith("that nobody else held is made again")
    assert made == []


def test_a_job_that_may_not_run_twice_fails_by_name_and_does_not() -> None:
    stage = Stage(LATE, once=("slow",)).gone(50.0, "io0")
    assert stage.play() is RunOutcome.FAILED
    assert len(stage.ran("slow")) == 1
    fault = stage.world.runs["r"].fault
    assert fault.code == "node_gone" and "'slow'" in fault.message and "stager resume" in fault.message


def test_a_copy_from_a_node_that_is_gone_goes_on_from_another_source() -> None:
    """`in` crosses from io0 to io1 in 10 s; it is fetched again."""
    stage = Stage({"a": ("in", "z", 1.0), "b": ("in z", "y", 1.0)}, {"b": "io1"}, {"in": 1000}).gone(15.0, "io0")
    stage.world.transfers.vanish = lambda node: None  # the line only goes silent
    assert stage.play() is RunOutcome.SUCCEEDED
    (copy,) = [command for command in stage.of(cmd.CopyReplica) if command.lfn == "in" and command.node == "io1"][:1]
    assert copy.transfer in [command.transfer for command in stage.of(cmd.CancelTransfer)]
    assert stage.ran("b")[-1] != "io0"


def test_with_two_copies_a_node_that_is_gone_costs_nothing_that_was_safe() -> None:
    stage = Stage(LATE, copies=2).ask(10.1, standing_of("x")).ask(20.0, standing_of("x")).gone(50.0, "io0").ask(60.0, standing_of("x"))
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.answers == [Standing.AT_RISK, Standing.SAFE, Standing.SAFE], "it is copied again after the loss"
    assert (len(stage.ran("make")), len(stage.ran("slow")), stage.of(cmd.RemakeFile)) == (1, 2, [])


def test_two_copies_are_wanted_of_a_final_that_is_not_home_yet() -> None:
    """The origin is away from 1 s to 60 s: what `make` made is copied meanwhile, and goes home from the node that is left."""
    stage = Stage({"make": ("", "y", 5.0)}, copies=2).ask(20.0, standing_of("y")).gone(30.0, "io0")
    for origin in stage.world.origins.values():
        stage.world.clock.at(1.0, setattr, origin, "fault_code", "origin_unreachable")
        stage.world.clock.at(60.0, setattr, origin, "fault_code", "")
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.answers == [Standing.SAFE] and len(stage.ran("make")) == 1
    assert stage.of(cmd.Upload)[-1].node != "io0"


def test_a_run_without_any_node_left_is_refused_by_name_and_goes_on_when_one_joins() -> None:
    stage = Stage(LATE, nodes=2, late=["io1"]).gone(50.0, "io0")
    stage.world.tell_at(70.0, lambda now: ev.RunResumed(at=now, run="r"))

    def join() -> None:
        stage.world.nodes["io1"].absent, stage.world.nodes["io1"].up = False, True
        stage.world.say_state(stage.world.nodes["io1"])

    stage.world.clock.at(60.0, join)
    assert stage.play() is RunOutcome.SUCCEEDED
    first = stage.of(cmd.FinishRun)[0]
    assert (first.outcome, first.fault.code) == (RunOutcome.REFUSED, "no_node")
    assert WHY in first.fault.message and "stager resume r" in first.fault.message
    assert stage.ran("read") == ["io1"]


def test_jobs_of_a_node_that_was_never_heard_of_run_elsewhere() -> None:
    stage = Stage(LATE, {"make": "io2", "read": "io2"}, late=["io2"])
    assert stage.play() is RunOutcome.SUCCEEDED
    assert {(command.job, command.why) for command in stage.of(cmd.RehomeJob)} == {
        ("make", "io2 was never heard of"),
        ("read", "io2 was never heard of"),
    }


def test_a_node_that_drains_gives_away_what_only_it_holds_and_says_when_nothing_is_left() -> None:
    stage = Stage(LATE).drains(20.0, "io0")
    for at in (19.0, 20.5, 25.0, 101.5, 103.0):
        stage.ask(at, lambda machine: unsafe_on(machine.state, "io0"))
    assert stage.play() is RunOutcome.SUCCEEDED
    told = [([name for _, name, _ in answer.files], len(answer.attempts)) for answer in stage.answers]
    assert told == [(["x"], 1), (["x"], 1), ([], 1), (["z"], 0), ([], 0)], "z was made there after it began to drain"
    moves = [(command.lfn, command.source) for command in stage.of(cmd.CopyReplica) if command.purpose is cmd.Purpose.MOVE]
    assert ("x", "io0") in moves
    assert (stage.ran("slow"), len(stage.ran("make"))) == (["io0"], 1), "what runs goes on to its end"
    assert "io0" not in stage.ran("read")


def test_a_node_that_is_to_stay_after_all_is_used_again() -> None:
    stage = Stage(LATE, nodes=1).drains(5.0, "io0")
    assert stage.play() is RunOutcome.REFUSED
    assert "io0 drains" in stage.world.runs["r"].fault.message
    again = Stage(LATE, nodes=1).drains(5.0, "io0").drains(8.0, "io0", draining=False)
    assert again.play() is RunOutcome.SUCCEEDED


def test_that_a_node_drains_is_kept_in_a_snapshot() -> None:
    seen: dict[str, Any] = {}

    def restore(machine: Machine) -> None:
        kept = kept_state(machine.state)
        event = next(event for events, _ in stage.world.journal for event in events if isinstance(event, ev.RunSubmitted))
        state = restored(kept, {"r": event})
        seen["draining"], seen["closed"] = state.nodes["io0"].draining, list(state.closed)

    stage = Stage(LATE).drains(20.0, "io0")
    stage.ask(30.0, restore)
    stage.play()
    assert seen == {"draining": True, "closed": ["io0"]}


def test_of_a_node_that_comes_back_after_it_was_gone_inputs_are_kept_and_products_deleted() -> None:
    machine, node = Machine(Policy(), Stage(LATE).world.limits), "io0"
    facts = {"node": node, "incarnation": "i", "capacity_bytes": 10_000, "can_link": True, "transfers": ()}
    machine.step(ev.NodeReported(at=0.0, replicas=(), **facts))
    machine.step(ev.NodeGone(at=1.0, node=node, why=WHY))
    assert not machine.state.nodes[node].is_open
    held = (ev.ReplicaSeen("xin", "t1", 100, "b1"), ev.ReplicaSeen("pmade", "a1", 50, "b2"))
    commands = machine.step(ev.NodeReported(at=2.0, replicas=held, **facts))
    assert [(command.file, command.generation) for command in commands if isinstance(command, cmd.DeleteReplica)] == [("pmade", "a1")]
    assert machine.state.nodes[node].is_open and list(machine.state.files["xin"].copies) == [node]


def test_another_store_under_the_name_of_a_node_has_nothing_of_what_that_held() -> None:
    machine = Machine(Policy(), Stage(LATE).world.limits)
    facts = {"node": "io0", "incarnation": "i", "capacity_bytes": 10_000, "can_link": True, "transfers": ()}
    held = (ev.ReplicaSeen("xin", "t1", 100, "b1"),)
    machine.step(ev.NodeReported(at=0.0, replicas=held, store_id="one", **facts))
    machine.step(ev.NodeReported(at=1.0, replicas=(), store_id="two", **facts))
    assert not machine.state.files["xin"].copies
    assert (machine.state.nodes["io0"].store_id, machine.state.nodes["io0"].present_bytes) == ("two", 0)


def test_what_a_node_that_is_gone_was_to_erase_is_erased_by_another() -> None:
    """By whoever can be asked, also where nobody could when it went."""
    machine = Machine(Policy(), Stage(LATE).world.limits)
    facts = {"incarnation": "i", "capacity_bytes": 10_000, "can_link": True, "transfers": (), "replicas": ()}
    machine.step(ev.NodeReported(at=0.0, node="io0", **facts))
    machine.state.files["p"] = FileEntry("p", "x", "r", 100)
    where = {"run": "r", "file": "p", "origin": "lab", "path": ".stager-spill/r/p", "token": "t"}
    apply_command(machine.state, cmd.EraseSpill(id="c", at=0.0, cause="e1", node="io0", **where))
    assert not machine.step(ev.NodeGone(at=1.0, node="io0", why=WHY))
    commands = machine.step(ev.NodeReported(at=2.0, node="io1", **facts))
    assert [(command.node, command.path, command.token) for command in commands] == [("io1", ".stager-spill/r/p", "t")]
    machine.step(ev.SpillErased(at=3.0, origin="lab", path=".stager-spill/r/p"))
    assert not machine.step(ev.NodeGone(at=4.0, node="io1", why=WHY)) and not machine.state.erasing
