"""Compute hosts: each job has its cores and memory on one of them; what becomes of its work when a host is lost, gone, drained or joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from stager.model.errors import ErrorClass
from stager.model.topology import Host, Node, Topology
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.apply_hosts import COMING_S, PATIENCE_S
from stager.scheduler.commands import RunOutcome
from stager.scheduler.invariants import broken_invariants
from stager.scheduler.machine import Machine
from stager.scheduler.node_entry import HostEntry, NodeEntry
from stager.scheduler.state import State
from stager.sim.checkers import all_checkers
from stager.sim.faults import Faults, Trouble
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants
from tests.sim.test_several_nodes import LINKS, workflow

SMALL, LARGE = Host("small", 2), Host("large", 4)


def node(name: str, *hosts: Host, capacity: int = 10_000) -> Node:
    return Node(name, capacity, disk_bytes_per_s=1e6, network_bytes_per_s=1e6, hosts=hosts)


def asking(what: Workflow, **asked: dict[str, Any]) -> Workflow:
    """With other cores, memory and so on of some jobs, by name."""
    jobs = {name: replace(job, **asked.get(name, {})) for name, job in what.jobs.items()}
    return replace(what, jobs=jobs)


class Stage:
    """`troubles`: (at, what, lasts_s, at_share) for the simulator; `said`: events from outside, by time."""

    def __init__(
        self,
        what: Workflow,
        nodes: Sequence[Node],
        troubles: Sequence[tuple[float, str, float, float]] = (),
        where: Mapping[str, str] | None = None,
        resumes_max: int = 0,
    ) -> None:
        topology = Topology(tuple(nodes), LINKS)
        plan = make_plan(what, topology)
        homes = where or {}
        plan = replace(plan, jobs=tuple(structs.replace(job, node=homes.get(job.job, job.node)) for job in plan.jobs))
        faults = Faults(until_s=1000.0, troubles=tuple(Trouble(*trouble) for trouble in troubles))
        self.world = SimWorld(topology, faults=faults, checkers=all_checkers(), resumes_max=resumes_max, keep_journal=True)
        self.world.submit("r", what, plan)
        self.starts: list[cmd.StartAttempt] = []
        self.ends: list[ev.AttemptEnded] = []
        self.moved: list[cmd.RehomeJob] = []

    def play(self) -> RunOutcome | None:
        def watch(machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
            watch_invariants(machine, events, commands)
            self.ends += [event for event in events if type(event) is ev.AttemptEnded]
            self.starts += [command for command in commands if type(command) is cmd.StartAttempt]
            self.moved += [command for command in commands if type(command) is cmd.RehomeJob]

        check_replay(self.world, simulate(self.world, watch))
        return self.world.runs["r"].outcome

    def hosts_of(self, job: str) -> list[str]:
        return [start.host for start in self.starts if start.job == job]

    def started_at(self, job: str) -> list[float]:
        return [start.at for start in self.starts if start.job == job]

    def outcomes_of(self, job: str) -> list[str]:
        return [end.outcome.value for end in self.ends if end.job == job]


def test_a_job_has_all_its_cores_on_one_host() -> None:
    """One core free on each of two hosts is not two: it waits until there are two on one."""
    what = workflow({}, {"a": ("", "x", 5.0), "b": ("", "y", 5.0), "wide": ("", "z", 1.0)}, ("x", "y", "z"))
    stage = Stage(asking(what, a={"cores": 3}, b={"cores": 3}, wide={"cores": 2}), [node("node0", Host("h0", 4), Host("h1", 4))])
    assert stage.play() is RunOutcome.SUCCEEDED
    assert sorted([*stage.hosts_of("a"), *stage.hosts_of("b")]) == ["h0", "h1"]
    assert 5.0 <= stage.started_at("wide")[0] < 5.1


def test_the_host_is_taken_that_has_least_beside_it_and_small_jobs_do_not_wait_behind_one_that_waits_for_another_host() -> None:
    jobs = {"long": ("", "l", 9.0), "wide": ("", "w", 1.0), "slim": ("", "s", 1.0)}
    what = asking(workflow({}, jobs, ("l", "w", "s")), long={"cores": 4}, wide={"cores": 4})
    stage = Stage(what, [node("node0", LARGE, SMALL)])
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.hosts_of("slim") == ["small"]
    assert stage.started_at("slim")[0] < 1.0


def test_memory_and_scratch_space_are_those_of_a_host() -> None:
    what = workflow({}, {"a": ("", "x", 1.0), "b": ("", "y", 1.0), "c": ("", "z", 1.0)}, ("x", "y", "z"))
    what = asking(what, a={"memory_bytes": 5}, b={"memory_bytes": 5})
    hosts = (Host("poor", 8, memory_bytes=4, scratch_bytes=1000), Host("rich", 8, memory_bytes=10, scratch_bytes=100))
    stage = Stage(what, [node("node0", *hosts)])
    assert stage.play() is RunOutcome.SUCCEEDED
    # Each makes 100 bytes, so `rich` has scratch space for one at a time, and `poor` memory for neither of the first two.
    assert {name: stage.hosts_of(name) for name in "abc"} == {"a": ["rich"], "b": ["rich"], "c": ["poor"]}
    assert abs(stage.started_at("a")[0] - stage.started_at("b")[0]) >= 1.0


ONE_JOB = asking(workflow({}, {"a": ("", "x", 10.0)}, ("x",)), a={"retries": 2})


def test_what_runs_on_a_host_that_is_lost_goes_on_and_is_not_started_elsewhere() -> None:
    stage = Stage(ONE_JOB, [node("node0", Host("h0")), node("node1", Host("h1"))], [(5.0, "host_lost", 100.0, 0.07)], {"a": "node0"})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert (stage.hosts_of("a"), stage.outcomes_of("a")) == (["h0"], ["ok"])
    assert stage.ends[0].at >= 105.0


def test_what_runs_on_a_host_that_started_anew_is_lost_and_tried_again() -> None:
    stage = Stage(ONE_JOB, [node("node0", Host("h0"))], [(5.0, "host_lost", 2.0, 0.04)])
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.outcomes_of("a") == ["lost", "ok"]


def test_nothing_is_started_on_a_host_that_is_lost_and_it_goes_on_by_itself_when_that_is_back() -> None:
    what = workflow({}, {"a": ("", "x", 1.0), "b": ("x", "y", 1.0)}, ("y",))
    stage = Stage(what, [node("node0", Host("h0"))], [(0.5, "host_lost", 500.0, 0.07)])
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.started_at("b")[0] >= 500.5
    assert stage.world.runs["r"].resumes == 0


def test_jobs_of_a_host_that_is_silent_for_long_go_to_another_node() -> None:
    """Their inputs are too large to be copied for a second of computing while the host may be back any moment."""
    what = workflow({"in": 5000}, {"a": ("in", "x", 1.0), "b": ("in", "y", 1.0)}, ("x", "y"))
    nodes = [replace(each, network_bytes_per_s=1000.0) for each in (node("node0", Host("h0")), node("node1", Host("h1")))]
    stage = Stage(what, nodes, [(50.5, "host_lost", 500.0, 0.07)], {"a": "node0", "b": "node0"})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert [(start.job, start.host) for start in stage.starts] == [("a", "h0"), ("b", "h1")]
    assert 50.5 + PATIENCE_S <= stage.started_at("b")[0] < 50.5 + PATIENCE_S + 10.0


def test_jobs_of_a_host_that_is_gone_are_tried_elsewhere() -> None:
    stage = Stage(ONE_JOB, [node("node0", Host("h0")), node("node1", Host("h1"))], [(5.0, "host_gone", 300.0, 0.2)], {"a": "node0"})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert (stage.hosts_of("a"), stage.outcomes_of("a")) == (["h0", "h1"], ["lost", "ok"])
    assert [move.node for move in stage.moved] == ["node1"]
    assert stage.world.runs["r"].finished_at < 100.0


def test_a_job_that_must_not_run_twice_fails_by_name_when_its_host_is_gone() -> None:
    what = asking(ONE_JOB, a={"idempotent": False, "retries": 5})
    stage = Stage(what, [node("node0", Host("h0")), node("node1", Host("h1"))], [(5.0, "host_gone", 1.0, 0.2)], {"a": "node0"})
    assert stage.play() is RunOutcome.FAILED
    assert stage.outcomes_of("a") == ["lost"]
    assert "idempotent: false" in stage.world.runs["r"].fault.message


WIDE = asking(workflow({}, {"a": ("", "x", 10.0), "wide": ("x", "y", 1.0)}, ("y",)), wide={"cores": 4})


def test_a_job_that_no_host_is_left_for_fails_with_the_numbers_and_goes_on_once_there_is_one() -> None:
    nodes = [node("node0", LARGE, SMALL)]
    gone = (5.0, "host_gone", 30.0, 0.2)
    stage = Stage(asking(WIDE, a={"cores": 2}), nodes, [gone])
    assert stage.play() is RunOutcome.FAILED
    fault = stage.world.runs["r"].fault
    assert (fault.code, fault.error_class, fault.subject) == ("no_host", ErrorClass.REFUSED, "wide")
    assert "'wide' needs 4 cores on one host; of 1 host none has that (at most 2 cores)" in fault.message
    assert "Host 'large', which could have taken it, is gone (its machine is terminated)" in fault.message
    again = Stage(asking(WIDE, a={"cores": 2}), nodes, [gone], resumes_max=60)
    assert again.play() is RunOutcome.SUCCEEDED
    assert again.world.runs["r"].resumes > 0


def test_a_job_whose_last_host_is_beside_a_node_that_is_too_small_fails_by_name() -> None:
    """It waited for ever, and nobody said so."""
    nodes = [node("node0", LARGE, SMALL), node("node1", Host("apart", 4), capacity=150)]
    stage = Stage(asking(WIDE, a={"cores": 2}), nodes, [(5.0, "host_gone", 1000.0, 0.2)], {"a": "node0", "wide": "node0"})
    assert stage.play() is RunOutcome.FAILED
    fault = stage.world.runs["r"].fault
    assert (fault.code, fault.subject) == ("no_host", "wide")
    assert "of 1 host beside a node that can hold 200 B none has that (at most 2 cores)" in fault.message
    assert "Host 'apart' could take it, and node1 beside it holds 150 B of the 200 B that it needs at once" in fault.message


def test_where_no_node_with_room_has_a_host_left_the_fault_does_not_say_that_there_is_no_host() -> None:
    nodes = [node("node0", LARGE), node("node1", Host("apart", 4), capacity=150)]
    stage = Stage(asking(WIDE, a={"cores": 2}), nodes, [(5.0, "host_gone", 1000.0, 0.2)], {"a": "node1", "wide": "node0"})
    assert stage.play() is RunOutcome.FAILED
    message = stage.world.runs["r"].fault.message
    assert "on one host, and there is no host beside a node that can hold 200 B. Host 'large'" in message
    assert "Host 'large', which could have taken it, is gone" in message
    assert "Host 'apart' could take it, and node1 beside it holds 150 B of the 200 B that it needs at once" in message


def test_a_job_too_large_for_the_hosts_that_came_first_waits_for_those_that_come_soon() -> None:
    what = asking(workflow({}, {"a": ("", "x", 3.0), "wide": ("x", "y", 1.0)}, ("y",)), a={"cores": 2}, wide={"cores": 4})
    # 0.07: the one that joins has eight cores.
    joins_at_s = COMING_S / 2
    stage = Stage(what, [node("node0", LARGE, SMALL)], [(1.0, "host_gone", 300.0, 0.2), (joins_at_s, "host_joins", 0.0, 0.07)])
    assert stage.play() is RunOutcome.SUCCEEDED
    assert [(start.job, start.host) for start in stage.starts] == [("a", "small"), ("wide", "joined1")]


def test_nothing_is_started_on_a_host_that_drains() -> None:
    what = workflow({}, {"a": ("", "x", 5.0), "b": ("x", "y", 1.0)}, ("y",))
    stage = Stage(
        what, [node("node0", Host("h0")), node("node1", Host("h1"))], [(2.0, "host_drains", 20.0, 0.2)], {"a": "node0", "b": "node0"}
    )
    assert stage.play() is RunOutcome.SUCCEEDED
    assert (stage.hosts_of("a"), stage.hosts_of("b"), stage.outcomes_of("a")) == (["h0"], ["h1"], ["ok"])


def test_a_node_without_a_host_stores_and_runs_nothing() -> None:
    what = workflow({"in": 100}, {"a": ("in", "x", 1.0)}, ("x",))
    stage = Stage(what, [node("node0"), node("node1", Host("h1"))], where={"a": "node0"})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert (stage.hosts_of("a"), [move.node for move in stage.moved]) == (["h1"], ["node1"])


def test_a_job_too_large_for_its_node_goes_to_one_that_has_room() -> None:
    what = workflow({"in": 3000}, {"a": ("in", "x", 1.0)}, ("x",))
    nodes = [node("node0", Host("h0"), capacity=1000), node("node1", Host("h1"), capacity=5000)]
    stage = Stage(what, nodes, where={"a": "node0"})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert stage.hosts_of("a") == ["h1"]


@pytest.mark.parametrize("lasts_s", [20.0, 120.0])
def test_a_job_too_large_for_its_node_waits_for_the_host_beside_the_one_that_has_room(lasts_s: float) -> None:
    """It failed though that host would be back soon."""
    what = workflow({"in": 3000}, {"first": ("", "x", 5.0), "a": ("x in", "y", 1.0)}, ("y",))
    nodes = [node("node0", Host("h0"), capacity=1000), node("node1", Host("h1"), capacity=5000)]
    stage = Stage(what, nodes, [(2.0, "host_lost", lasts_s, 0.7)], dict.fromkeys(what.jobs, "node0"))
    assert stage.play() is RunOutcome.SUCCEEDED
    assert (stage.hosts_of("first"), stage.hosts_of("a")) == (["h0"], ["h1"])


def test_a_host_that_joins_takes_jobs_that_wait() -> None:
    jobs = {f"j{number}": ("", f"f{number}", 10.0) for number in range(6)}
    stage = Stage(
        workflow({}, jobs, tuple(f"f{number}" for number in range(6))), [node("node0", Host("h0"))], [(5.0, "host_joins", 0.0, 0.3)]
    )
    assert stage.play() is RunOutcome.SUCCEEDED
    assert {start.host for start in stage.starts} == {"h0", "joined1"}
    assert stage.world.runs["r"].finished_at < 40.0


def test_hosts_whose_sums_are_off_are_found() -> None:
    state = State(Policy(), Limits(), on_hosts=True, hosts={"h0": "node0", "h1": "elsewhere"})
    host = HostEntry("h0", "node0", Host("h0", 4), cores_used=1, memory_used_bytes=2, scratch_used_bytes=3)
    state.nodes["node0"] = NodeEntry("node0", hosts={"h0": host}, cores=4)
    state.stranded.append("node0")
    told = "; ".join(broken_invariants(state))
    for each in (
        "host h0: cores_used is 1",
        "host h0: memory_used_bytes is 2",
        "host h0: scratch_used_bytes is 3",
        "hosts are with",
        "a host less",
    ):
        assert each in told


def test_what_a_journal_of_before_started_was_on_no_host() -> None:
    start = cmd.StartAttempt(id="c", at=0.0, cause="e", node="n", run="r", job="j", attempt="a", number=1, reserve_bytes=0, inputs=())
    written = msgspec.to_builtins(start)
    del written["host"]
    assert msgspec.convert(written, cmd.StartAttempt) == start and not start.host
