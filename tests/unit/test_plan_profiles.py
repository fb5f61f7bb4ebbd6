"""What plans and simulations take from profiles: predictions for a job's own inputs, what is set aside, and the spread."""

from __future__ import annotations

import json
from math import log

import pytest

from stager.estimate import estimate
from stager.model.profile import FileProfile, Profile, Quantity
from stager.model.robust import FittedLine
from stager.model.topology import embedded
from stager.model.workflow import Workflow, graph_of
from stager.planning.explain import explain_file
from stager.planning.make_plan import make_plan
from stager.planning.plan import Basis, Plan
from stager.planning.plan_json import from_json, to_json
from stager.scheduler.commands import RunOutcome
from stager.sim.sampling import Spread
from tests.unit.test_plan import LARGE, external, job, made, workflow_of

ROWS = 10**6
SEEN = Quantity(60.0, 90.0, 1.5, 20, FittedLine(1.0, 1 / ROWS, 10 * ROWS, 100 * ROWS), 1.25)
DOUBLE = Quantity(9.0, 9.0, 1.1, 20, FittedLine(0.0, 2.0, 10 * ROWS, 100 * ROWS), 1.5)
SORT = Profile("sort", wall_s=SEEN, outputs={"s*.txt": FileProfile("s*.txt", Quantity(1, 1), DOUBLE)})


def chain(size_bytes: int | None) -> Workflow:
    files = [external("in", size_bytes or 0), made("s1.txt"), made("s2.txt", final=True)]
    workflow = workflow_of(files, [job("a", "in", "s1.txt", job_type="sort"), job("b", "s1.txt", "s2.txt", job_type="sort")])
    if size_bytes is None:
        entry = workflow.files["in"]
        unsized = tuple(type(source)(source.location) for source in entry.sources)
        workflow.files["in"] = type(entry)("in", sources=unsized)
    return workflow


def planned(size_bytes: int | None) -> Plan:
    return make_plan(chain(size_bytes), embedded(LARGE), {"sort": SORT})


def test_a_job_is_predicted_by_its_own_input_and_the_next_by_what_that_will_probably_make() -> None:
    plan = planned(20 * ROWS)
    files = {entry.lfn: entry for entry in plan.files}
    assert (files["s1.txt"].expected_bytes, files["s1.txt"].size_bytes, files["s1.txt"].size_spread) == (40 * ROWS, 60 * ROWS, 1.1)
    assert (files["s2.txt"].expected_bytes, files["s2.txt"].size_bytes) == (80 * ROWS, 120 * ROWS)
    assert [entry.compute_s for entry in plan.jobs] == [21.0, 41.0]
    assert {(entry.compute_basis, entry.compute_spread, entry.reserve_basis) for entry in plan.jobs} == {
        (Basis.PROFILE, 1.5, Basis.PROFILE)
    }
    assert [entry.reserve_bytes for entry in plan.jobs] == [60 * ROWS, 120 * ROWS]
    assert plan.upload_bytes == 80 * ROWS, "what moves is what is probable, not what is set aside"


def test_a_size_that_is_a_guess_is_not_read_off_a_line() -> None:
    plan = planned(None)
    assert plan.jobs[0].compute_s == 60.0
    assert next(entry for entry in plan.files if entry.lfn == "s1.txt").size_bytes == 9


def test_a_declared_number_wins_over_a_profile_and_has_no_spread() -> None:
    workflow = workflow_of([external("in", ROWS), made("s1.txt", 5)], [job("a", "in", "s1.txt", job_type="sort", compute_s=7.0)])
    plan = make_plan(workflow, embedded(LARGE), {"sort": SORT})
    assert (plan.jobs[0].compute_s, plan.jobs[0].compute_basis, plan.jobs[0].compute_spread) == (7.0, Basis.DECLARED, None)
    assert (plan.jobs[0].reserve_basis, plan.files[1].expected_bytes, plan.files[1].size_spread) == (Basis.DECLARED, 5, None)


def test_a_reservation_is_known_as_well_as_the_least_known_output() -> None:
    workflow = workflow_of([external("in", ROWS), made("x", 5), made("y")], [job("a", "in", "x y"), job("b", "in", "")])
    plan = make_plan(workflow, embedded(LARGE))
    assert {entry.job: entry.reserve_basis for entry in plan.jobs} == {"a": Basis.DEFAULT, "b": Basis.MEASURED}


def test_the_plan_explains_what_is_set_aside_and_what_is_probable() -> None:
    plan = planned(20 * ROWS)
    lines = explain_file(chain(20 * ROWS), graph_of(chain(20 * ROWS)), plan, embedded(LARGE), "s1.txt")
    assert lines[0].endswith("as earlier runs of this job type made it")
    assert lines[1] == "that is set aside; it will probably be 40 MB, about between 36.4 MB and 44 MB"
    assert "set aside" not in explain_file(chain(20 * ROWS), graph_of(chain(20 * ROWS)), plan, embedded(LARGE), "in")[1]


def test_a_plan_of_version_1_is_still_read() -> None:
    said = json.loads(to_json(planned(20 * ROWS)))
    said["version"] = 1
    for entry in said["jobs"]:
        del entry["reserve_basis"], entry["compute_spread"]
    for entry in said["files"]:
        del entry["likely_bytes"], entry["size_spread"]
    plan = from_json(json.dumps(said))
    assert [entry.expected_bytes for entry in plan.files] == [entry.size_bytes for entry in plan.files]
    assert {(entry.reserve_basis, entry.compute_spread) for entry in plan.jobs} == {(Basis.DEFAULT, None)}


def test_a_simulation_makes_the_probable_sizes_and_draws_around_them_when_asked() -> None:
    workflow, topology = chain(20 * ROWS), embedded(10**9)
    plan = make_plan(workflow, topology, {"sort": SORT})
    exact = estimate(workflow, topology, plan=plan)
    assert (exact.outcome, exact.uploaded_bytes) == (RunOutcome.SUCCEEDED, 80 * ROWS)
    drawn = [estimate(workflow, topology, plan=plan, spread=Spread(seed=seed, profiled=True)) for seed in range(20)]
    sizes = [report.uploaded_bytes / (80 * ROWS) for report in drawn]
    assert all(1 / 1.1 <= size <= 1.1 for size in sizes) and max(sizes) / min(sizes) > 1.1
    assert len({report.wall_s for report in drawn}) == 20 and min(r.wall_s for r in drawn) < exact.wall_s < max(r.wall_s for r in drawn)


def test_the_plans_spread_multiplies_the_one_that_was_asked_for() -> None:
    plain, profiled = Spread(seed=3, durations=2.0), Spread(seed=3, durations=2.0, profiled=True)
    assert plain.duration_s(10.0, "a", 4.0) == plain.duration_s(10.0, "a")
    once, all_of_it = (log(spread.duration_s(10.0, "a", 4.0) / 10) for spread in (plain, profiled))
    assert all_of_it == pytest.approx(once * log(8) / log(2))
    assert Spread(profiled=True).size_bytes(7, "r", "f") == 7
