"""How fast files go between nodes, by what copies took. Figures by hand."""

from __future__ import annotations

import pytest

from stager.adapters.moves import BETWEEN_NODES
from stager.model.copying import Copying, copying_of
from stager.model.link import Move
from stager.model.topology import Node, Topology
from stager.planning.holders import Holders
from stager.planning.make_plan import make_plan
from stager.planning.plan import Basis
from stager.planning.plan_json import from_json, to_json
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.measuring import copied_by
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.unit.test_plan import job, made, workflow_of

MB = 1_000_000


def copy(number: int, took_s: float, size_bytes: int, run: str = "r1") -> Move:
    return Move(run, True, 10.0 * number, 10.0 * number + took_s, size_bytes)


def test_small_copies_tell_what_each_takes_and_large_ones_the_rate() -> None:
    small = [copy(number, 0.03, 1000) for number in range(5)]
    assert copying_of(small) == Copying(pytest.approx(0.03), None)
    large = [copy(number, 0.03 + 2.0, 20 * MB) for number in range(5, 10)]
    found = copying_of([*small, *large])
    assert found.latency_s == pytest.approx(0.03) and found.bytes_per_s == pytest.approx(10 * MB)
    assert copying_of(large).latency_s is None


def test_few_copies_and_quick_ones_tell_nothing() -> None:
    assert copying_of([copy(number, 0.03, 1000) for number in range(4)]) == Copying()
    # Of 100 kB in the time of a small one nobody can tell the rate.
    assert copying_of([copy(number, 0.03, 1000 if number % 2 else 100_000) for number in range(20)]) == Copying(pytest.approx(0.03), None)


def test_the_newest_run_counts_most() -> None:
    older = [copy(number, 0.5, 1000, "r1") for number in range(8)]
    newer = [copy(number, 0.02, 1000, "r2") for number in range(8, 16)]
    assert copying_of([*older, *newer]).latency_s == pytest.approx(0.02)


def test_a_copy_counts_from_the_command_to_the_word_of_its_end() -> None:
    facts = {"node": "n1", "file": "f", "run": "r1", "source": "n0", "source_generation": "g", "size_bytes": 9, "priority": 0}
    command = cmd.CopyReplica(id="c1", at=5.0, cause="", transfer="t1", lfn="x", purpose=next(iter(cmd.Purpose)), **facts)
    done = ev.TransferDone(at=5.5, node="n1", transfer="t1", size_bytes=9, blake3="b", token="", bytes_moved=9, duration_s=0.1)
    assert copied_by(done, command) == [("t1", BETWEEN_NODES, Move("r1", True, 5.0, 5.5, 9))]
    # It was there already, or failed.
    assert copied_by(ev.TransferCancelled(at=5.5, node="n1", transfer="t1"), command) == []


def two_nodes(copying: Copying) -> Topology:
    return copying.of(Topology((Node("n0", 10**9), Node("n1", 10**9))))


def test_plans_wait_once_for_all_that_is_copied_at_the_same_time() -> None:
    holders = Holders([0, 0], two_nodes(Copying(0.25)))
    holders.put(0, 0, 1.0)
    holders.put(1, 0, 1.0)
    assert holders.brought([0, 1], 1)[1] == 1.25
    assert holders.brought([0, 1], 0)[1] == 1.0


def test_a_plan_says_what_it_took_copies_for() -> None:
    value = workflow_of([made("x", 10)], [job("a", "", "x")])
    plan = make_plan(value, two_nodes(Copying(0.25, 10.0 * MB)))
    assert (plan.copy_latency_s, plan.copy_latency_basis, plan.copying_bytes_per_s) == (0.25, Basis.MEASURED, 10.0 * MB)
    assert from_json(to_json(plan)) == plan
    assert make_plan(value, two_nodes(Copying())).copy_latency_basis is Basis.DEFAULT


def test_a_copy_of_the_simulation_takes_as_long() -> None:
    """Two jobs with a core each make what a third one reads: one of both is copied."""
    jobs = [job("a", "", "x", compute_s=10.0), job("b", "", "y", compute_s=10.0), job("c", "x y", "z", compute_s=1.0)]
    value = workflow_of([made("x", 10), made("y", 10), made("z", 10)], jobs)

    def ends_at(copying: Copying) -> float:
        topology = two_nodes(copying)
        world = SimWorld(topology)
        world.submit("r", value, make_plan(value, topology))
        simulate(world)
        return world.runs["r"].finished_at

    assert ends_at(Copying(0.25)) - ends_at(Copying()) == pytest.approx(0.25, abs=0.002)
