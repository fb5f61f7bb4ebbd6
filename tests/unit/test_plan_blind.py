"""Plans that are made without profiles, and worlds that are not as the plan believes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stager.cli import local_submit
from stager.cli.main import stager
from stager.estimate import estimate
from stager.model.cluster import Cluster, ComputeNodes
from stager.model.errors import Refused
from stager.model.profile import FileProfile, Profile, Quantity
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Workflow, graph_of
from stager.planning.make_plan import IGNORED, make_plan
from stager.planning.plan import Basis, Plan
from stager.planning.plan_json import diff, from_json, to_json
from stager.scheduler.commands import RunOutcome
from stager.sim.direct import run_direct
from stager.sim.sampling import Spread
from stager.whatif import Question, Subject
from tests.unit.test_plan import external, job, made, workflow_of

MB = 1_000_000
# Beside compute-bound jobs the links and the disk take no time.
QUICK = Topology((Node("node0", 10**12, 1, disk_bytes_per_s=1e15),), (OriginLink("home", 1e15, 1e15, 0.0),))


def typed(job_type: str, wall_s: float, made_bytes: int) -> Profile:
    sizes = {"*.out": FileProfile("*.out", Quantity(1, 1), Quantity(made_bytes, made_bytes))}
    return Profile(job_type, wall_s=Quantity(wall_s, wall_s), outputs=sizes)


PROFILES = {"short": typed("short", 10.0, 2 * MB), "long": typed("long", 500.0, 3 * MB)}


def two_ways() -> Workflow:
    """Which of the two begins makes no difference to one who does not know what they take."""
    files = [external("in", MB), made("1.out", final=True), made("2.out", final=True), made("3.out", 7, final=True)]
    jobs = [
        job("a", "in", "1.out", job_type="short"),
        job("b", "in", "2.out", job_type="long"),
        job("c", "in", "3.out", job_type="long", compute_s=4.0),
    ]
    return workflow_of(files, jobs)


def test_a_blind_plan_guesses_what_is_not_declared_and_says_that_it_is_blind() -> None:
    driven, blind = make_plan(two_ways(), QUICK, PROFILES), make_plan(two_ways(), QUICK, PROFILES, ignore_profiles=True)
    assert {entry.job: entry.compute_basis for entry in blind.jobs} == {"a": Basis.DEFAULT, "b": Basis.DEFAULT, "c": Basis.DECLARED}
    assert {entry.lfn: entry.size_basis for entry in blind.files} == {
        "in": Basis.MEASURED,
        "1.out": Basis.DEFAULT,
        "2.out": Basis.DEFAULT,
        "3.out": Basis.DECLARED,
    }
    assert (blind.profiles_ignored, IGNORED in blind.notes) == (True, True)
    assert (driven.profiles_ignored, IGNORED in driven.notes) == (False, False)
    assert [entry.job for entry in driven.jobs] == ["b", "a", "c"]
    assert [entry.job for entry in blind.jobs] == ["c", "a", "b"]


def test_whether_a_plan_is_blind_goes_through_json_and_is_told_as_a_difference() -> None:
    blind, driven = make_plan(two_ways(), QUICK, ignore_profiles=True), make_plan(two_ways(), QUICK)
    assert from_json(to_json(blind)) == blind
    assert diff(blind, driven) == [
        "the plan was made without the profiles of job types, this is made with the profiles of job types (--ignore-profiles)"
    ]
    older = json.loads(to_json(driven))
    del older["profiles_ignored"]
    assert from_json(json.dumps(older)) == driven


def test_the_world_is_as_the_truth_says_and_the_order_as_the_plan() -> None:
    driven, blind = make_plan(two_ways(), QUICK, PROFILES), make_plan(two_ways(), QUICK, ignore_profiles=True)
    report = estimate(two_ways(), QUICK, plan=blind, truth=driven)
    assert report.outcome is RunOutcome.SUCCEEDED
    assert report.uploaded_bytes == 5 * MB + 7
    assert report.wall_s == pytest.approx(514.0, abs=0.1)
    assert (report.plan, report.truth) == (blind, driven)
    assert estimate(two_ways(), QUICK, plan=blind).wall_s == pytest.approx(6.0, abs=0.1), "without a truth the plan is believed"
    assert estimate(two_ways(), QUICK, plan=blind).truth == blind


def test_what_grew_beyond_its_reservation_waits_for_room_and_ends_well() -> None:
    tight = replace(QUICK, nodes=(replace(QUICK.nodes[0], capacity_bytes=4 * MB + MB // 2),))
    truth = make_plan(two_ways(), tight, PROFILES)
    blind = make_plan(two_ways(), tight, ignore_profiles=True)
    assert max(entry.reserve_bytes for entry in blind.jobs) < 2 * MB
    report = estimate(two_ways(), tight, plan=blind, truth=truth)
    assert (report.outcome, report.uploaded_bytes) == (RunOutcome.SUCCEEDED, 5 * MB + 7)


def test_without_io_nodes_too_the_truth_counts() -> None:
    workflow = two_ways()
    driven, blind = make_plan(workflow, QUICK, PROFILES), make_plan(workflow, QUICK, ignore_profiles=True)
    cluster = Cluster(ComputeNodes(1, 1))
    simulated = run_direct(workflow, graph_of(workflow), cluster, blind, "r", Spread(), driven)
    assert simulated.wall_s > 514
    assert [access.lfn for access in simulated.accesses if not access.is_read] == ["3.out", "1.out", "2.out"]
    assert {access.lfn: access.size_bytes for access in simulated.accesses}["2.out"] == 3 * MB


def test_what_if_the_profiles_were_ignored_lives_in_the_world_that_they_tell_of() -> None:
    two = replace(QUICK, nodes=(replace(QUICK.nodes[0], cores=2),))
    driven = Subject(two_ways(), PROFILES).answer(Question(two))
    blind = Subject(two_ways(), PROFILES, ignore_profiles=True).answer(Question(two))
    assert driven.wall_s == pytest.approx(500.0, abs=0.1)
    assert blind.wall_s == pytest.approx(504.0, abs=0.1), "the longest job waited for the one whose time was declared"
    assert blind.judged is not None and driven.judged is not None
    assert blind.judged.bound == driven.judged.bound


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One job type whose 40 seconds and 3 MB were measured of another run."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.dat").write_bytes(b"x" * 1000)
    step = "{run: cat in.dat > a.dat, inputs: [in.dat], outputs: {a.dat: {to: here:out/a.dat}}}"
    (tmp_path / "w.yml").write_text(f"stager: 1\nname: w\nfiles:\n  in.dat: here:data/in.dat\njobs:\n  a: {step}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STAGER_STATE_DIR", str(tmp_path / "state"))
    sample = {"store": "s", "attempt": "1", "run": "r", "kind": "run", "at": 1.0, "wall_s": 40.0, "output_bytes": 3 * MB}
    (tmp_path / "profiles.json").write_text(json.dumps({"format": "stager-profiles", "version": 1, "job_types": {"w/a": [sample]}}))
    assert called("profile", "import", "profiles.json").exit_code == 0
    return tmp_path


def called(*words: str) -> Result:
    return CliRunner().invoke(stager, words)


def test_every_command_that_plans_can_be_told_to_ignore_profiles(place: Path) -> None:
    driven, blind = called("plan", "w.yml", "--json"), called("plan", "w.yml", "--json", "--ignore-profiles")
    assert [json.loads(shown.output)["jobs"][0]["compute_s"] for shown in (driven, blind)] == [40.0, 1.0], blind.output
    assert "note: made without the profiles of job types" in " ".join(called("plan", "w.yml", "--ignore-profiles").output.split())
    for command in (("simulate", "w.yml"), ("cost-estimate", "w.yml", "--io-nodes", "0,1")):
        both = [json.loads(called(*command, "--json", *more).output) for more in ((), ("--ignore-profiles",))]
        assert [said["profiles_ignored"] for said in both] == [False, True]
        rows = [said.get("rows") or said["choices"] for said in both]
        assert all(row["makespan_s"] > 40 for side in rows for row in side), "a world without profiles would be over in a second"
        assert "without the profiles" in " ".join(called(*command, "--ignore-profiles").output.split())
    simulated = called("plan", "w.yml", "--ignore-profiles", "--simulate").output
    assert "simulated: succeeded after 40 s" in simulated, simulated


def test_a_blind_plan_is_submitted_as_a_blind_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert called("plan", "w.yml", "--ignore-profiles", "--output", "plan.json").exit_code == 0
    refused = called("submit", "w.yml", "--plan", "plan.json")
    assert isinstance(refused.exception, Refused)
    assert "the plan was made without the profiles of job types" in str(refused.exception)
    submitted: list[Plan] = []
    monkeypatch.setattr(local_submit, "run_to_end", lambda settings, workflow, plan, *_, **__: submitted.append(plan))
    for more in (("--plan", "plan.json"), ()):
        assert called("submit", "w.yml", "--ignore-profiles", *more).exit_code == 0
    assert [(plan.profiles_ignored, plan.jobs[0].compute_s) for plan in submitted] == [(True, 1.0)] * 2


def test_what_running_jobs_make_beyond_their_reservations_is_told_at_its_most() -> None:
    """Two cores: 1.out and 3.out, then 2.out; blind, each is taken for 1 MB as is its input, and 3.out is known."""
    two = replace(QUICK, nodes=(replace(QUICK.nodes[0], cores=2),))
    truth, blind = make_plan(two_ways(), two, PROFILES), make_plan(two_ways(), two, ignore_profiles=True)
    assert [entry.reserve_bytes for entry in sorted(blind.jobs, key=lambda entry: entry.job)] == [MB, MB, 7]
    assert estimate(two_ways(), two, plan=blind, truth=truth).unreserved_bytes_max == (2 - 1) * MB + (3 - 1) * MB
    alone = estimate(two_ways(), QUICK, plan=blind, truth=truth)
    assert alone.unreserved_bytes_max == 2 * MB, "one after the other"
    assert estimate(two_ways(), two, plan=truth).unreserved_bytes_max == 0
