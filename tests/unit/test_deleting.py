"""How long deletes take until they have made room. Figures by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from stager import wire
from stager.adapters import moves
from stager.adapters.profiles_store import ProfilesStore
from stager.cli.tables import deletes_text
from stager.model.deleting import Deleting, deleting_of
from stager.model.link import Move
from stager.model.topology import DEFAULT_DELETE_LATENCY_S, Node, Topology
from stager.planning.make_plan import make_plan
from stager.planning.plan import Basis
from stager.planning.plan_json import from_json, to_json
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.comparison import cluster_of, estimate_of
from stager.service.measuring import Measuring
from stager.service.prepare import cluster_here, topology_of
from stager.service.profiles import load_deleting
from stager.service.settings import Settings
from stager.service.state_dir import StateDir
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.unit.test_plan import external, job, made, workflow_of


def delete(number: int, took_s: float, run: str = "r1") -> Move:
    return Move(run, True, 10.0 * number, 10.0 * number + took_s, 0)


def test_the_middle_of_what_deletes_took_counts_that_of_the_newest_run_most() -> None:
    assert deleting_of([delete(number, 0.01) for number in range(4)]) == Deleting()
    older = [delete(number, 0.5, "r1") for number in range(4)]
    newer = [delete(number, took_s, "r2") for number, took_s in enumerate([0.01, 0.02, 0.02, 0.03, 0.02, 0.01, 0.02, 0.02], 8)]
    assert deleting_of([*older, *newer]).latency_s == pytest.approx(0.02)


def one_node(deleting: Deleting, capacity_bytes: int = 10**9) -> Topology:
    return deleting.of(Topology((Node("n0", capacity_bytes),)))


def test_a_plan_says_what_deletes_take_and_whether_anybody_measured_it() -> None:
    value = workflow_of([made("x", 10)], [job("a", "", "x")])
    plan = make_plan(value, one_node(Deleting(0.01)))
    assert (plan.delete_latency_s, plan.delete_latency_basis) == (0.01, Basis.MEASURED)
    assert from_json(to_json(plan)) == plan
    assert from_json(without(to_json(plan), "delete_latency_s", "delete_latency_basis")).delete_latency_s == DEFAULT_DELETE_LATENCY_S
    unmeasured = make_plan(value, one_node(Deleting()))
    assert (unmeasured.delete_latency_s, unmeasured.delete_latency_basis) == (DEFAULT_DELETE_LATENCY_S, Basis.DEFAULT)


def without(text: str, *keys: str) -> str:
    """A plan of an older stager."""
    said = json.loads(text)
    return json.dumps({key: value for key, value in said.items() if key not in keys})


def test_jobs_that_wait_for_room_wait_as_long_in_the_simulation() -> None:
    """There is room for one input at a time: the next one comes when the one before is gone."""
    names = ["e0", "e1", "e2", "e3"]
    value = workflow_of([external(name, 100) for name in names], [job(f"j{name}", name, compute_s=1.0) for name in names])

    def ends_at(deleting: Deleting) -> float:
        topology = one_node(deleting, 150)
        world = SimWorld(topology)
        world.submit("r", value, make_plan(value, topology))
        simulate(world)
        return world.runs["r"].finished_at

    assert ends_at(Deleting(0.251)) - ends_at(Deleting()) == pytest.approx(3 * 0.25, abs=0.002)


def test_a_delete_counts_from_the_command_to_the_word_of_its_end(tmp_path: Path) -> None:
    """One that nobody commanded, or that was told of in the same instant, does not."""
    store = ProfilesStore(StateDir(tmp_path).profiles)
    measuring = Measuring(store, SimpleNamespace(state=SimpleNamespace(runs={}, files={"f": SimpleNamespace(run="r1")})))  # type: ignore[arg-type]
    facts = {"cause": "", "node": "n0", "file": "f", "size_bytes": 9, "why": ""}
    measuring.saw([], [cmd.DeleteReplica(id=f"c{n}", at=float(n), generation=f"g{n}", **facts) for n in range(6)])
    measuring.saw([ev.ReplicaDeleted(at=n + 0.25 * (n < 5), node="n0", file="f", generation=f"g{n}") for n in range(8)], [])
    store.close()
    seen = moves.read(StateDir(tmp_path).profiles)[moves.DELETES]
    assert seen == [Move("r1", True, float(n), n + 0.25, 0) for n in range(5)]
    assert load_deleting(Settings(tmp_path, 10**9, 1)) == Deleting(0.25)


def test_plans_and_estimates_take_what_was_measured_here(tmp_path: Path) -> None:
    settings, value = Settings(tmp_path, 10**9, 1), workflow_of([made("x", 10)], [job("a", "", "x")])
    assert not any(node.delete_measured for node in topology_of(settings, value).nodes)
    store = ProfilesStore(StateDir(tmp_path).profiles)
    store.add_moves([(f"d{number}", moves.DELETES, delete(number, 0.25)) for number in range(5)])
    store.close()
    for there in (topology_of(settings, value), cluster_here(settings, value).topology(value, 1)):
        assert [(node.delete_latency_s, node.delete_measured) for node in there.nodes] == [(0.25, True)]


def test_a_report_estimates_with_what_its_plan_took_deletes_for() -> None:
    """There is room for one input at a time."""
    names = ["e0", "e1", "e2", "e3"]
    value = workflow_of([external(name, 100) for name in names], [job(f"j{name}", name, compute_s=1.0) for name in names])
    parts = {"attempts": [], "moves": [], "occupancy": [], "belady_hit_rate": None, "best_hit_rate": None}
    history = wire.RunHistory(run="r", nodes=["n0"], cores=1, memory_bytes=None, capacity_bytes=150, **parts)

    def wall_s(deleting: Deleting) -> float:
        plan = make_plan(value, one_node(deleting, 150))
        return estimate_of(value, plan, history, cluster_of(history, None, plan)).report.wall_s

    assert wall_s(Deleting(0.251)) - wall_s(Deleting()) == pytest.approx(3 * 0.25, abs=0.002)


def test_a_table_tells_of_deletes_where_jobs_wait_for_their_room() -> None:
    names = ["e0", "e1", "e2", "e3"]
    value = workflow_of([external(name, 100) for name in names], [job(f"j{name}", name, compute_s=1.0) for name in names])

    def told(deleting: Deleting, capacity_bytes: int) -> str:
        return deletes_text(make_plan(value, one_node(deleting, capacity_bytes)))

    tight, roomy = 50, 10**9
    plan = make_plan(value, one_node(Deleting(0.0104), roomy))
    assert plan.peak_live_bytes > tight
    assert told(Deleting(0.0104), tight) == ", 10.4 ms until a delete has made room (measured)"
    assert told(Deleting(0.0104), roomy) == told(Deleting(), tight) == ""


def test_what_no_node_answers_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stager.service.measuring.DELETING_MAX", 3)
    store = SimpleNamespace(add=list, add_overheads=list, add_moves=list)
    measuring = Measuring(store, SimpleNamespace(state=SimpleNamespace(runs={}, files={"f": SimpleNamespace(run="r1")})))  # type: ignore[arg-type]
    facts = {"cause": "", "node": "n0", "file": "f", "size_bytes": 9, "why": ""}
    for n in range(9):
        measuring.saw([], [cmd.DeleteReplica(id=f"c{n}", at=float(n), generation=f"g{n}", **facts)])
    assert len(measuring.deleting) <= 4 and ("n0", "f", "g8") in measuring.deleting
