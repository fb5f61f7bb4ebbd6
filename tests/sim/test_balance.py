"""Jobs whose node is full go to one that has cores to spare; what it would cost too much to bring stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from stager.estimate import estimate
from stager.model.errors import ErrorClass, Fault
from stager.model.files import File
from stager.model.ids import produced_file_id
from stager.model.topology import Node, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.plan_json import from_json, to_json
from stager.scheduler import balance
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import State
from stager.sim.checkers import all_checkers
from stager.sim.faults import Faults, Trouble
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import KINDS, check
from tests.sim.test_several_nodes import LINKS, Jobs, Stage, workflow

EIGHT: Jobs = {f"j{number}": ("", f"f{number}", 10.0) for number in range(8)}


def began(stage: Stage) -> dict[str, str]:
    """By job, where."""
    return {command.job: command.node for command in stage.made(cmd.StartAttempt)}


def test_what_waits_for_a_core_goes_where_one_is_idle() -> None:
    """All eight are planned for one node of four cores."""
    stage = Stage(workflow({}, EIGHT), {})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert sorted(began(stage).values()) == ["node0"] * 4 + ["node1"] * 4
    assert stage.world.runs["r"].finished_at < 10.5
    assert len(stage.made(cmd.StartAttempt)) == 8


def test_a_job_takes_along_what_is_copied_in_a_quarter_of_its_time_and_no_more() -> None:
    """100 bytes take 0.1 s from node to node."""
    for takes_s, moved in ((0.41, 1), (0.39, 0)):
        jobs = {"first": ("", "seed", 1.0)} | {f"j{number}": ("seed", f"f{number}", takes_s) for number in range(5)}
        stage = Stage(workflow({}, jobs), {})
        assert stage.play() is RunOutcome.SUCCEEDED
        assert sum(node == "node1" for node in began(stage).values()) == moved
        assert len(stage.made(cmd.CopyReplica)) == moved


def test_nothing_goes_for_a_guest() -> None:
    """The other node holds what will be read there, and all of its room is taken by that."""
    jobs = {f"j{number}": ("big", f"f{number}", 10.0) for number in range(5)} | {"last": ("keep", "end", 1.0)}
    what = workflow({"big": 100, "keep": 9_850}, jobs)
    stage = Stage(what, {"last": "node1"})
    assert stage.play() is RunOutcome.SUCCEEDED
    assert {node for job, node in began(stage).items() if job != "last"} == {"node0"}


def test_jobs_of_a_node_that_is_away_run_elsewhere() -> None:
    away = Faults(troubles=(Trouble(1.0, "outage", 500.0, 0.0),), until_s=501.0)
    stage = Stage(workflow({}, {f"j{number}": ("", f"f{number}", 10.0) for number in range(12)}), {}, away)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert len(began(stage)) == 12
    assert sum(node == "node1" for node in began(stage).values()) == 8


def test_a_plan_says_how_fast_copies_are_and_older_ones_are_read() -> None:
    plan: Plan = Stage(workflow({}, EIGHT), {}).world.runs["r"].plan
    assert plan.copying_bytes_per_s == 1000.0
    assert from_json(to_json(plan)) == plan
    older = to_json(plan).replace('"copying_bytes_per_s": 1000.0,\n', "")
    assert from_json(older).copying_bytes_per_s == 500e6


def test_nobody_is_sent_to_a_node_that_is_away() -> None:
    """It was idle when it was last heard of."""
    away = Faults(troubles=(Trouble(1.0, "outage", 500.0, 0.0),), until_s=501.0)
    jobs: Jobs = {"first": ("", "seed", 5.0)} | {name: ("seed", makes, takes_s) for name, (_, makes, takes_s) in EIGHT.items()}
    stage = Stage(workflow({}, jobs), dict.fromkeys(jobs, "node1"), away)
    assert stage.play() is RunOutcome.SUCCEEDED
    assert set(began(stage).values()) == {"node1"} and stage.world.runs["r"].finished_at < 30


def test_a_queue_for_cores_takes_no_room_from_what_will_be_read() -> None:
    """On one core of a node of 310 bytes one of the jobs in the middle runs and one waits, beside what the last one reads."""
    jobs: Jobs = {
        "first": ("", "kept", 1.0),
        **{f"j{number}": ("", f"f{number}", 1.0) for number in range(6)},
        "last": ("kept", "end", 1.0),
    }
    what = workflow({}, jobs)
    there = Topology((Node("node0", 310, 1),), LINKS)
    plan = make_plan(what, there, spill_origin="lab")
    by_order = [*jobs]
    reordered = [structs.replace(job, order=by_order.index(job.job)) for job in plan.jobs]
    plan = replace(plan, jobs=tuple(sorted(reordered, key=lambda job: job.order)))
    report = estimate(what, there, plan=plan)
    assert (report.outcome, report.spilled_bytes) == (RunOutcome.SUCCEEDED, 0)


def test_a_job_whose_parent_has_to_run_again_stays_where_it_was_admitted() -> None:
    """Its own input is there, and another output of that parent is lost while the second node is away."""
    files = {lfn: File(lfn, size_bytes=10) for lfn in ("mine", "lost", "x", "y", "one", "two")}
    jobs = {
        "make": Job("make", "t", ("m",), outputs=(JobOutput("mine", "mine"), JobOutput("lost", "lost")), compute_s=1.0),
        "x": Job("x", "t", ("x",), after=("make",), outputs=(JobOutput("x", "x"),), compute_s=20.0),
        "y": Job("y", "t", ("y",), after=("make",), outputs=(JobOutput("y", "y"),), compute_s=20.0),
        "one": Job("one", "t", ("o",), inputs=(JobInput("mine", "mine"),), outputs=(JobOutput("one", "one"),), compute_s=10.0),
        "two": Job("two", "t", ("t",), inputs=(JobInput("lost", "lost"),), outputs=(JobOutput("two", "two"),), compute_s=10.0),
    }
    there = Topology((Node("node0", 10_000, 2), Node("node1", 10_000, 2)), LINKS)
    what = Workflow("w", files, jobs, {})
    plan = make_plan(what, there)
    order = {name: at for at, name in enumerate(jobs)}
    placed = [structs.replace(job, order=order[job.job], node="node0") for job in plan.jobs]
    plan = replace(plan, jobs=tuple(sorted(placed, key=lambda job: job.order)))
    away = Faults(troubles=(Trouble(0.1, "outage", 4.9, 0.99),), until_s=5.0)
    world = SimWorld(there, faults=away, checkers=all_checkers())
    world.submit("r", what, plan)
    lost = produced_file_id("r", "lost")

    def damaged(now: float) -> ev.ReplicaCorrupt:
        generation = next(generation for file, generation in world.nodes["node0"].replicas if file == lost)
        world.nodes["node0"].replicas[lost, generation].quarantined = True
        return ev.ReplicaCorrupt(at=now, node="node0", file=lost, generation=generation, fault=Fault(ErrorClass.CORRUPT, "bit", "a bit"))

    world.tell_at(3.0, damaged)
    state = simulate(world).state
    assert state.runs["r"].outcome is RunOutcome.SUCCEEDED and state.runs["r"].jobs["make"].attempts == 2


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [60, pytest.param(100, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("kind", ["nodes", "pooled", "node_faults", "node_losses", "direct_faults"])
def test_what_holds_for_all_nodes_alike_is_found_out_once_and_is_what_each_would_be_told(
    kind: str, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, left_out = [], {}
    take, only = balance.may_take, balance.only_for

    def asked_alone(state: State, node: NodeEntry, offer: balance.Offer) -> bool:
        answer = take(state, node, offer)
        assert answer == balance.may_come(state, node, offer.run, offer.job)
        _, served = left_out.get(id(offer), (offer, None))
        assert served is None or node.id in served or not answer
        answers.append((answer, node.id in offer.known_at, served is not None and node.id not in served))
        return answer

    def for_each(offers: balance.Offers) -> None:
        """Leaves no node out, so that those are asked too that would have been."""
        left_out.update({id(offer): (offer, only(offers)) for queue in offers.values() for offer in queue})

    monkeypatch.setattr(balance, "may_take", asked_alone)
    monkeypatch.setattr(balance, "only_for", for_each)
    for seed in range(seeds):
        check(KINDS[kind](seed))
    assert any(answer for answer, known, _ in answers if not known), "nothing went to a node that knew nothing of it"
    assert any(answer for answer, known, _ in answers if known), "nothing went to a node that knew something of it"
    assert any(out for _, _, out in answers), "no node would have been left out"
