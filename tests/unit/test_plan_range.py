"""By how much a plan says that its time may be off: wide where nobody measured, narrow where runs did, and told wherever a plan is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from stager.cli.range import assumed_text, range_text
from stager.cli.report import held_notes, range_json
from stager.cli.running import predicted
from stager.model.profile import Profile, Quantity
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.plan_json import from_json, to_json
from stager.service.comparison import ComparisonRow
from tests.unit.test_cost_estimate import called, place  # noqa: F401
from tests.unit.test_plan import diamond, external, job, made, workflow_of, workflows

MB = 10**6


def topology(link: OriginLink | None = None, overhead_s: float = 0.01) -> Topology:
    node = Node("n0", 10**12, 2, overhead_s=overhead_s, overhead_measured=True)
    return Topology((node,), (link,) if link is not None else ())


def seen(**more: float) -> OriginLink:
    """A link of which everything was measured."""
    files = {"fetch_file_measured": True, "upload_file_measured": True, "fetch_file_s": 0.0, "upload_file_s": 0.0, "login_s": 0.0}
    return OriginLink("home", 10e6, 10e6, 0.01, measured=True, upload_measured=True, latency_measured=True, **(files | more))


def ranged(workflow: Workflow, there: Topology, **more: object) -> tuple[float, float, float]:
    plan = make_plan(workflow, there, with_range=True, **more)  # type: ignore[arg-type]
    assert plan.makespan_least_s is not None and plan.makespan_most_s is not None
    return plan.makespan_least_s, plan.makespan_s, plan.makespan_most_s


def fetching() -> Workflow:
    """100 MB come in, and a job takes a moment."""
    return workflow_of([external("raw", 100 * MB), made("end", 1000, final=True)], [job("j", "raw", "end", compute_s=0.1)])


def computing() -> Workflow:
    return workflow_of([external("raw", 1000), made("end", 1000, final=True)], [job("j", "raw", "end", compute_s=100.0)])


def test_a_link_that_nobody_has_seen_makes_a_plan_unsure_where_bytes_take_its_time() -> None:
    """50 MB/s are assumed. A line of 20 Mbit/s takes 40 s for these bytes, one of 1 Gbit/s less than one."""
    least, expected, most = ranged(fetching(), topology())
    assert least < 1.0 < 2.0 < expected < 3.0 and 40.0 < most < 80.0
    least, expected, most = ranged(computing(), topology())
    assert 0.7 * expected < least and most < 1.5 * expected, "jobs take its time, and they were declared"


def test_what_was_measured_leaves_little_to_be_off() -> None:
    least, expected, most = ranged(fetching(), topology(seen()))
    assert 9.9 < expected < 10.9
    assert 0.7 * expected < least < expected < most < 1.4 * expected


def test_a_guess_of_a_job_is_believed_less_than_a_hint_and_that_less_than_a_profile() -> None:
    one = workflow_of([made("end", 1000, final=True)], [job("j", "", "end")])
    said = workflow_of([made("end", 1000, final=True)], [job("j", "", "end", compute_s=1.0)])
    profiles = {"work": Profile("work", 9, 3, wall_s=Quantity(1.0, 1.1, spread=1.1))}
    widths = [most / least for least, _, most in (ranged(one, topology(seen())), ranged(said, topology(seen())))]
    least, _, most = ranged(one, topology(seen()), profiles=profiles)
    assert widths[0] > 100 > widths[1] > most / least > 1.2


def test_files_may_cost_what_nobody_has_measured() -> None:
    """500 finals over ssh to an account that nobody has seen: its start files may take a tenth of a second each time."""
    finals = [made(f"e{number}", 10, final=True) for number in range(500)]
    many = workflow_of(finals, [job("j", "", " ".join(file.lfn for file in finals), compute_s=1.0)])
    _, expected, most = ranged(many, topology(replace(seen(), fetch_file_s=None, upload_file_s=None)))
    assert expected < 2.0 and most > 50.0
    _, _, most = ranged(many, topology(seen()))
    assert most < 3.0, "measured: they cost nothing"
    near = replace(many, origins={"home": Origin("home", OriginKind.FILE, "file:///data")})
    _, _, most = ranged(near, topology(replace(seen(), fetch_file_s=None, upload_file_s=None)))
    assert most < 3.0, "a directory has no start files"


@given(workflows())
@settings(max_examples=60, deadline=None)
def test_the_prediction_lies_between(workflow: Workflow) -> None:
    least, expected, most = ranged(workflow, topology(OriginLink("home", 10.0, 10.0, 0.1)))
    assert least <= expected <= most


def planned(**more: object) -> Plan:
    return make_plan(diamond(), topology(), with_range=True, **more)  # type: ignore[arg-type]


def test_json_keeps_it_and_a_plan_from_before_says_nothing() -> None:
    plan = planned()
    assert from_json(to_json(plan)) == plan
    lines = [line for line in to_json(plan).splitlines() if not line.startswith(('"makespan_least_s"', '"makespan_most_s"'))]
    older = from_json("\n".join(lines))
    assert older == replace(plan, makespan_least_s=None, makespan_most_s=None)
    assert range_text(older) == "" and range_json(older, [ComparisonRow("makespan", "seconds", 1.0, 1.0)]) is None
    assert make_plan(diamond(), topology()) == older, "who does not ask is spared two schedules"


def test_it_is_told_in_words_with_what_nobody_measured() -> None:
    plan = replace(planned(), makespan_s=20.0, makespan_least_s=8.123, makespan_most_s=125.0)
    assert range_text(plan) == "8.12 s to 2 min 05 s in nine of ten runs"
    assert predicted(plan) == ", predicted 20 s (8.12 s to 2 min 05 s in nine of ten runs)"
    assert assumed_text(plan) == "the times of 3 jobs, the link to home"
    sure = make_plan(computing(), topology(seen()), with_range=True)
    assert assumed_text(sure) == ""


@pytest.mark.parametrize(("took_s", "said"), [(8.2, "within that"), (125.1, "outside it"), (7.9, "outside it")])
def test_a_report_says_whether_it_held(took_s: float, said: str) -> None:
    plan = replace(planned(), makespan_least_s=8.0, makespan_most_s=125.0)
    lines = [ComparisonRow("makespan", "seconds", 20.0, took_s)]
    assert held_notes(plan, lines) == [f"the plan said 8.00 s to 2 min 05 s in nine of ten runs: this run ended {said}"]
    assert range_json(plan, lines) == {"least_s": 8.0, "most_s": 125.0, "held": said == "within that"}


def test_cost_estimate_tells_it_of_each_choice_with_io_nodes(place: Path) -> None:  # noqa: F811
    shown = called("--draws", "0")
    (line,) = [line for line in shown.output.splitlines() if line.startswith("may take, ")]
    assert line.startswith("may take, 1 I/O node: ") and line.endswith(" in nine of ten runs")
