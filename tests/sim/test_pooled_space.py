"""What several nodes can hold together is known before a run begins: what would come to a standstill is refused, with what would do."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.cluster import Cluster, ComputeNodes, IoNodes
from stager.model.errors import Refused
from stager.model.topology import Node, Topology
from stager.model.workflow import Workflow
from stager.planning.make_plan import check_capacity, make_plan
from stager.planning.plan import Plan
from stager.planning.plan_json import from_json, to_json
from stager.planning.space import pooled_bytes, share_bytes
from stager.scheduler.commands import RunOutcome
from stager.service.choices import Question as Asked
from stager.service.choices import answer
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from stager.whatif import Question, Subject
from tests.model.test_choices import PRICES
from tests.sim.test_several_nodes import LINKS, Jobs, workflow

# Each file has 100 bytes. Each two of five are read together, so the last is made while the other four are there.
FIVE: Jobs = {f"k{number}": ("", f"f{number}", 1.0) for number in range(5)} | {
    f"r{one}{two}": (f"f{one} f{two}", "", 1.0) for one, two in combinations(range(5), 2)
}
# Two files on one node, five on two of them: half of the third is always empty.
HALF = 250


def nodes(count: int, each_bytes: int) -> Topology:
    return Topology(tuple(Node(f"node{number}", each_bytes, 1, network_bytes_per_s=1000.0) for number in range(count)), LINKS)


def planned(what: Workflow, count: int, each_bytes: int, spill: str | None = None) -> Plan:
    return make_plan(what, nodes(count, each_bytes), spill_origin=spill)


def simulated(what: Workflow, topology: Topology, plan: Plan) -> RunOutcome | None:
    world = SimWorld(topology)
    world.submit("r", what, plan)
    simulate(world)
    return world.runs["r"].outcome


def test_what_fits_into_the_sum_and_would_stand_still_is_refused_before_it_begins() -> None:
    five = workflow({}, FIVE)
    plan = planned(five, 2, HALF)
    assert plan.capacity_bytes == plan.smallest_capacity_bytes == 500
    assert simulated(five, nodes(2, HALF), plan) is RunOutcome.REFUSED
    # All five, two of them twice, and one that does not fit on the other.
    with pytest.raises(Refused, match="400 bytes .* on each of 2 nodes, one has 250 bytes .* give that much to each of them or"):
        check_capacity(plan)


def test_with_what_the_refusal_asks_for_it_runs() -> None:
    five = workflow({}, FIVE)
    for count in (2, 3, 4):
        each = planned(five, count, 1).smallest_node_bytes
        assert each < 500
        plan = planned(five, count, each)
        check_capacity(plan)
        assert simulated(five, nodes(count, each), plan) is RunOutcome.SUCCEEDED


def test_what_one_node_holds_needs_no_more_on_several() -> None:
    large = workflow({}, {"a": ("", "x y z", 1.0), "b": ("x y z", "", 1.0)})
    assert {planned(large, count, 1).smallest_node_bytes for count in (1, 2, 3)} == {300}


def test_a_job_must_fit_on_one_node_also_where_it_can_be_spilled() -> None:
    large = workflow({}, {"a": ("", "x y z", 1.0)})
    plan = planned(large, 2, 200, "lab")
    assert plan.capacity_bytes > plan.smallest_capacity_bytes
    assert simulated(large, nodes(2, 200), plan) is not RunOutcome.SUCCEEDED
    with pytest.raises(Refused, match="300 bytes .* on each of 2 nodes, one has 200 .* 'x', 'y', 'z' at once; give that much to each"):
        check_capacity(plan)


def test_what_is_simulated_or_priced_is_refused_alike() -> None:
    five = workflow({}, FIVE)
    told = Subject(five, {}).answer(Question(nodes(2, HALF)))
    assert told.outcome is RunOutcome.REFUSED and told.attempts == 0
    assert told.fault is not None and "400 bytes" in told.fault.message
    choice = answer(Asked(five, Cluster(ComputeNodes(2, 1), IoNodes(2, HALF)), PRICES), 2)
    assert (choice.outcome, choice.message) == ("refused", told.fault.message)


def test_a_plan_tells_it_and_an_older_one_is_of_one_node() -> None:
    plan = planned(workflow({}, FIVE), 2, HALF)
    assert (plan.nodes, plan.node_bytes, plan.smallest_node_bytes) == (2, HALF, 400)
    assert from_json(to_json(plan)) == plan
    lines = to_json(plan).splitlines()
    older = from_json("\n".join(line for line in lines if not line.startswith(('"node_bytes"', '"nodes"', '"smallest_node_bytes"'))))
    assert (older.nodes, older.node_bytes, older.smallest_node_bytes) == (1, 500, 500)


@given(st.integers(1, 6), st.integers(1, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_what_each_must_have_is_the_least_at_which_it_is_safe(count: int, held: int, largest: int, twice: int) -> None:
    each = share_bytes(count, held, largest, twice)
    assert pooled_bytes([each] * count, largest, twice) >= held
    assert pooled_bytes([each - 1] * count, largest, twice) < held
