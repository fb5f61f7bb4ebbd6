"""Budgets and deadlines before a run: what is taken for money and time, which way is chosen, and what a refusal says."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stager import rest, wire
from stager.model.cluster import Cluster
from stager.model.errors import InvalidInput, Refused
from stager.model.prices import ClusterPrices, InstancePrice, PriceTable, RequestPrice, Tier
from stager.model.topology import Node, Topology
from stager.model.units import parse_money
from stager.model.workflow import Bounds
from stager.planning.budget import Budget, Moved, PaidNodes, lasts_s, money_of
from stager.planning.cost import Usage, bill_of
from stager.planning.digest import workflow_digest
from stager.planning.plan import Plan
from stager.planning.way_cost import unlimited
from stager.planning.ways import Way, Within, choose
from stager.readers import native
from stager.readers.lines import WorkflowInvalid
from stager.readers.prices import packaged_prices
from stager.scheduler.snapshot import NO_PLAN
from stager.service import budgets, prepare
from stager.service.budgets import amount_of, asked_of, fitting, instant_of, told_instant, within_of
from stager.service.prepare import SubmitOptions
from stager.service.settings import Settings
from stager.service.submissions import bounds_of
from tests.sim.test_tenants import wide
from tests.unit.test_wire import PLAN, WORKFLOW

TABLE = PriceTable("USD", "2026-11-22", origin="prices of a test")
NOW = 1_795_700_000.0


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def test_money_has_a_currency_and_that_of_the_prices() -> None:
    assert parse_money("20 USD") == (20.0, "USD") and parse_money(" 0.5usd ") == (0.5, "USD")
    assert amount_of("1.25 USD", "USD", "a table") == 1.25
    for text in ("20", "USD 20", "$20", "0 USD", "-1 USD", "1e3 USD", "20 dollars", "nan USD", ""):
        with pytest.raises(InvalidInput, match="as in '20 USD'"):
            amount_of(text, "USD", "a table")
    with pytest.raises(InvalidInput, match=r"in EUR, and the prices \(a table\) are in USD; write it in USD") as caught:
        amount_of("20 EUR", "USD", "a table")
    assert caught.value.code == "other_currency"


def test_a_time_to_finish_by_is_of_today_here_or_says_its_zone(berlin: None) -> None:
    # 2026-11-26 14:33:20 in Berlin.
    assert told_instant(instant_of("18:00", NOW)) == "2026-11-26 18:00:00 CET (+0100)"
    assert instant_of("+3h", NOW) == NOW + 3 * 3600
    assert instant_of("2026-11-27T18:00:00Z", NOW) == instant_of("2026-11-27T19:00:00+01:00", NOW)
    for text in ("13:00", "2026-11-26T13:00:00+01:00", "+0s"):
        with pytest.raises(InvalidInput, match=r"is over: 2026-11-26 1[34]:.* CET \(\+0100\) was .* ago") as caught:
            instant_of(text, NOW)
        assert caught.value.code == "time_over"
    # A zone says nothing of which day is meant.
    for text in (
        "6pm",
        "25:00",
        "18:00Z",
        "18:00+01",
        "2026-11-27T18:00:00",
        "+soon",
        "tomorrow",
        "",
        "+1e400h",
        "+99999999999999d",
        "+" + "9" * 400,
    ):
        with pytest.raises(InvalidInput, match="no time to finish by"):
            instant_of(text, NOW)


def test_what_is_given_counts_more_than_what_the_workflow_says_and_none_takes_it_away(tmp_path: Path) -> None:
    said = Bounds("20 USD", "+3h", "cost")
    assert asked_of(Bounds(), said) == said and asked_of(said, Bounds()) == said
    assert asked_of(Bounds(finish_by="+1h"), said) == Bounds("20 USD", "+1h", "cost")
    assert asked_of(Bounds("none", "none", "time"), said) == Bounds("", "", "time")
    settings, sent = Settings(tmp_path, 10**9, 1), bounds_of(rest.Options(budget="5 USD"), Settings(tmp_path, 10**9, 1), said)
    assert sent is not None and (sent.amount, sent.objective) == (5.0, "cost") and sent.finish_by is not None
    assert bounds_of(rest.Options(budget="none", finish_by="none"), settings, Bounds("20 USD", "+3h")) is None
    assert bounds_of(rest.Options(), settings, Bounds()) is None
    with pytest.raises(InvalidInput, match="the service may be in another time zone") as caught:
        bounds_of(rest.Options(), settings, Bounds(finish_by="18:00"))
    assert caught.value.subject == "finish_by"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("budget: 20 USD", Bounds("20 USD")),
        ("finish_by: 18:00\nobjective: cost", Bounds("", "18:00", "cost")),
        ("params: {most: 5}\nbudget: '{most} USD'", Bounds("5 USD")),
        ("finish_by: 2026-11-27T18:00:00+01:00", Bounds("", "2026-11-27T18:00:00+01:00")),
        ("budget: 20", "2:9: budget: '20' is no amount of money"),
        ("finish_by: 6pm", "2:12: finish_by: '6pm' is no time to finish by; write as in 18:00"),
        ("finish_by: 2026-11-27T18:00:00", "is no time to finish by"),
        ("finish_by: +soon", "is no time to finish by"),
        ("objective: money", "2:12: objective: 'money' is unknown; choose time or cost"),
        (
            "engine: airflow\nbudget: 20 USD",
            "3:9: budget: airflow starts the jobs of this workflow, and stager could not pause them; leave",
        ),
    ],
)
def test_a_workflow_says_what_its_runs_may_cost(tmp_path: Path, text: str, found: Bounds | str) -> None:
    run = "" if "engine" in text else "run: [go], "
    (tmp_path / "w.yml").write_text(f"stager: 1\n{text}\njobs: {{a: {{{run}outputs: [a]}}}}\n")
    if isinstance(found, Bounds):
        bounded = native.read(tmp_path / "w.yml")
        assert bounded.bounds == found and workflow_digest(bounded) == workflow_digest(replace(bounded, bounds=Bounds()))
        return
    with pytest.raises(WorkflowInvalid) as caught:
        native.read(tmp_path / "w.yml")
    assert found in str(caught.value)


def test_options_that_go_with_a_budget_are_not_taken_without_one(tmp_path: Path) -> None:
    settings = Settings(tmp_path, 10**9, 1)
    assert within_of(None, None, None, settings, NOW) is None
    for finish_by in (None, "+1h"):
        with pytest.raises(InvalidInput, match="--budget"):
            within_of(None, finish_by, None, settings, NOW, anyway=True)
    asked = within_of("20 USD", "+1h", None, settings, NOW, anyway=True)
    assert asked is not None and (asked.amount, asked.finish_by, asked.anyway) == (20.0, NOW + 3600, True)


NODE = InstancePrice("lab", "cellar", "2026", "a test", "small", 3.6, billed_every_s=1.0, billed_at_least_s=60.0)
PAID = ClusterPrices("USD", NODE, NODE, (Tier(1 << 30, 0.0), Tier(None, 2.0)), RequestPrice("lab", "c", "2026", "t", 0.4, 5.0), 0.0, 0.1)


def budget_of(nodes: int, io_nodes: int, volume_bytes: int) -> Budget:
    return unlimited(WORKFLOW, Cluster(), PAID, nodes, io_nodes, volume_bytes)


@given(st.integers(0, 5), st.integers(0, 3), st.integers(0, 1 << 42), st.integers(0, 10**6), st.floats(0, 1e6))
def test_a_budget_reckons_as_an_estimate_does(nodes: int, io_nodes: int, moved_bytes: int, asked: int, wall_s: float) -> None:
    budget = budget_of(nodes, io_nodes, 10**12)
    usage = Usage(wall_s, nodes, io_nodes, reads=asked, writes=asked // 3, egress_bytes=moved_bytes, volume_bytes=10**12 if io_nodes else 0)
    assert money_of(budget, Moved(moved_bytes, asked, asked // 3), wall_s) == pytest.approx(bill_of(usage, PAID).total, rel=1e-9)


STEPS = st.sampled_from([0.0, 1.0, 60.0, 3600.0])


@given(st.integers(0, 3), st.integers(0, 3), st.floats(0, 1000), st.integers(0, 1 << 36), STEPS, st.sampled_from([0.0, 1.0]))
# What is billed at least is more than its time, and nothing is billed in steps: that once took hours to reckon.
@example(1, 1, 0.07, 0, 0.0, 0.0)
def test_money_lasts_until_the_bill_is_the_amount(
    nodes: int, io_nodes: int, amount: float, moved_bytes: int, every_s: float, io_every_s: float
) -> None:
    paid = (PaidNodes(nodes, 3.6, every_s, 60.0), PaidNodes(io_nodes, 1.8, io_every_s, 0.0))
    budget = Budget(currency="USD", amount=amount, nodes=paid, egress=((None, 1.0),))
    moved = Moved(egress_bytes=moved_bytes)
    lasts = lasts_s(budget, moved)
    if lasts < 0:
        assert money_of(budget, moved, 0.0) > amount
    elif nodes or io_nodes:
        assert money_of(budget, moved, lasts) <= amount * (1 + 1e-9) + 1e-9
        assert money_of(budget, moved, lasts + max(61.0, 1.01 * every_s)) > amount * (1 - 1e-9)
    else:
        assert lasts == float("inf")


def test_a_budget_travels_as_json() -> None:
    budget = msgspec.structs.replace(budget_of(2, 1, 10**9), amount=20.0, finish_by=NOW)
    body = wire.encode(wire.SubmitRequest(WORKFLOW, PLAN, budget=budget))
    assert wire.decode_submit(body).budget == budget
    assert wire.decode_submit(wire.encode(wire.SubmitRequest(WORKFLOW, PLAN))).budget is None


def way(how: str, wall_s: float, money: float, most: float = 2.0) -> Way:
    plan: Plan = replace(NO_PLAN, nodes=3)
    return Way(how, plan, Budget(currency="USD"), wall_s, most * wall_s, money, most * money)


QUICK, SLOW = way("on 3 of 3 nodes", 100.0, 9.0), way("on 1 of 3 nodes", 250.0, 4.0)


PAID_NODES = """stager-topology: 1
compute: {instance: m6i.xlarge}
io: {nodes: 4, capacity: 1 GB, instance: m3.xlarge}
links: {"*": {egress: none}}
"""


def test_each_way_is_a_plan_and_the_one_that_is_chosen_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On four nodes that are paid, or fewer: quicker and dearer, or slower and cheaper."""
    (tmp_path / "topology.yml").write_text(PAID_NODES)
    settings = Settings(tmp_path, 10**9, 4, topology_file=tmp_path / "topology.yml")
    topology = Topology(tuple([Node(f"node{number}", 10**9, 2) for number in range(4)]))
    for module in (budgets, prepare):
        monkeypatch.setattr(module, "topology_of", lambda settings, workflow: topology)
    # One long job beside many short ones: on all nodes most of them stand idle in the end.
    short, long = wide("w", 16, takes_s=20), wide("long", 1, takes_s=100)
    workflow = replace(short, jobs=short.jobs | {"long": replace(long.jobs["j0"], id="long")}, files=short.files | long.files)

    def found(**asked: Any) -> budgets.Chosen:
        options = SubmitOptions(within=Within(NOW, packaged_prices(), **asked))
        return budgets.chosen(workflow, settings, {}, options, None)

    quick, cheap = found(objective="time"), found(objective="cost")
    assert sorted({each.how for each in quick.ways}) == [f"on {number} of 4 nodes" for number in (1, 2, 3, 4)]
    assert (quick.way.how, cheap.way.how) == ("on 3 of 4 nodes", "on 2 of 4 nodes")
    for chosen in (quick, cheap):
        kept = {job.node for job in chosen.plan.jobs}
        assert chosen.plan.keeps_to == tuple(sorted(kept)) and chosen.way.front
        # What it runs under is reckoned as it was chosen: with the nodes that it keeps to.
        assert [(each.count, each.per_hour) for each in chosen.budget.nodes] == [(1, 0.192), (len(kept), 0.405)]
    assert quick.way.wall_s < cheap.way.wall_s and quick.way.money > cheap.way.money
    between = (quick.way.money_most + cheap.way.money_most) / 2
    assert found(amount=between).budget.amount == between and found(amount=between).way.how == cheap.way.how
    assert found(finish_by=NOW + 1.01 * quick.way.wall_s_most).way.how == quick.way.how


def test_what_the_table_has_no_price_of_is_named_and_never_left_out_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "w.yml").write_text("stager: 1\norigins: {o: file:data}\njobs: {a: {run: [go], outputs: {a: 'o:a'}}}\n")
    workflow, settings = native.read(tmp_path / "w.yml"), Settings(tmp_path, 10**9, 4)

    def lines(table: PriceTable) -> tuple[str, ...]:
        return budgets.chosen(workflow, settings, {}, SubmitOptions(within=Within(NOW, table, 1000.0)), None).lines

    said = "the prices (of a lab) have none of egress here: that counts as nothing, whatever it costs"
    # Of requests there is nothing to pay, where no origin is a bucket.
    assert said in lines(replace(packaged_prices(), egress=(), requests=(), origin="of a lab"))
    assert not any("counts as nothing" in line for line in lines(packaged_prices()))


def within(amount: float | None = None, finish_s: float | None = None, objective: str = "", anyway: bool = False) -> Within:
    return Within(NOW, TABLE, amount, None if finish_s is None else NOW + finish_s, objective, anyway)


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (within(amount=20.0), QUICK),
        (within(amount=10.0), SLOW),
        (within(finish_s=600.0), SLOW),
        (within(finish_s=300.0), QUICK),
        (within(amount=20.0, finish_s=600.0), SLOW),
        (within(amount=20.0, finish_s=600.0, objective="time"), QUICK),
        (within(amount=20.0, objective="cost"), SLOW),
        (within(objective="cost"), SLOW),
        (within(objective="time"), QUICK),
        (within(amount=5.0, anyway=True), SLOW),
        (within(amount=9.0, anyway=True), SLOW),
        (within(amount=1.0, anyway=True), QUICK),
        (within(amount=5.0, finish_s=300.0, anyway=True), QUICK),
    ],
)
def test_the_fastest_within_the_budget_or_the_cheapest_before_the_deadline(asked: Within, chosen: Way) -> None:
    """By the upper ends: what is expected to fit and may not is not taken."""
    assert choose((QUICK, SLOW), asked) is chosen


def test_a_refusal_says_what_the_nearest_way_costs_and_what_to_change(berlin: None) -> None:
    with pytest.raises(Refused) as caught:
        fitting((QUICK, SLOW), within(amount=7.0))
    told = caught.value.message
    assert caught.value.code == "over_budget" and "more than 7.00 USD: on 1 of 3 nodes, 4.00 USD expected, 8.00 at most" in told
    # The amount that it names is enough.
    assert "--budget '8.01 USD'" in told or "--budget '8.00 USD'" in told
    named = float(told.split("--budget '")[1].split(" ")[0])
    assert choose((QUICK, SLOW), within(amount=named)) is SLOW
    with pytest.raises(Refused) as caught:
        fitting((QUICK, SLOW), within(finish_s=150.0))
    told = caught.value.message
    assert caught.value.code == "misses_deadline" and "on 3 of 3 nodes" in told and "in 1 min 40 s, 3 min 20 s at most" in told
    named_at = told.split("--finish-by ")[1].split(",")[0]
    assert choose((QUICK, SLOW), replace(within(), finish_by=instant_of(named_at, NOW))) is QUICK
    with pytest.raises(Refused, match="more than 0.00001 USD") as caught:
        fitting((way("on the node here", 10.0, 0.00002),), within(amount=0.00001))
    assert amount_of(caught.value.message.split("--budget '")[1].split("'")[0], "USD", "") >= 0.00004
    # Both at once: the deadline leaves the quick way alone, which is too dear.
    with pytest.raises(Refused, match="on 3 of 3 nodes, 9.00 USD expected, 18.00 at most"):
        fitting((QUICK, SLOW), within(amount=10.0, finish_s=300.0))
