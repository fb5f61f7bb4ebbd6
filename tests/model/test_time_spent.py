"""Where the time of simulated runs went beside their estimates: the truth of what was longer is known, and it is what is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from stager import wire
from stager.cli.report import said_of, spent_json, spent_rows
from stager.cli.run_page import page_of
from stager.model.topology import OriginLink, Topology
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.policy import Limits
from stager.ports import Batch
from stager.scheduler import events as ev
from stager.scheduler.trail import Cause
from stager.service.comparison import cluster_of, estimate_of
from stager.service.counters import Counters
from stager.service.history import history_of
from stager.service.time_spent import NAMES, TOLD, TimeSpent, shares_of, time_spent, together_s
from stager.service.views import run_summary
from stager.sim.checkers import all_checkers
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.model.test_estimate import CHAIN, LINK, topology, workflow

BAG = """
workflow w
  external in 100
  made x 100 final
  made y 100 final
  made z 100 final
  job a in -> x compute=5
  job b in -> y compute=5
  job c in -> z compute=5
"""


class Simulated:
    """A run whose plan took the world to be `planned`, in a world that is `place`."""

    def __init__(self, text: str, place: Topology, planned: Topology | None = None) -> None:
        self.workflow: Workflow = workflow(text)
        self.limits = Limits(cores=place.nodes[0].cores)
        planned = planned or place
        self.plan: Plan = make_plan(self.workflow, planned, limits=self.limits)
        self.world = SimWorld(place, limits=self.limits, keep_journal=True)

    def play(self, truth: Plan | None = None) -> TimeSpent:
        self.world.submit("w-1", self.workflow, self.plan, truth=truth)
        machine = simulate(self.world)
        batches = [Batch(seq, "sim", events, commands) for seq, (events, commands) in enumerate(self.world.journal, 1)]
        self.summary: wire.RunSummary = run_summary(machine.state, machine.state.runs["w-1"], Counters())
        self.history: wire.RunHistory = history_of(batches, "w-1")
        cluster = cluster_of(self.history, None, self.plan)
        cluster = replace(cluster, io=replace(cluster.io, disk_bytes_per_s=1e12))
        self.estimated = estimate_of(self.workflow, self.plan, self.history, cluster)
        return time_spent(self.workflow, self.plan, self.summary, self.history, self.estimated)


def with_link(place: Topology, **facts: float) -> Topology:
    return replace(place, links=(OriginLink(**({"origin": "home", "latency_s": 0.0} | dict(facts_of(LINK)) | facts)),))


def facts_of(link: OriginLink) -> list[tuple[str, float]]:
    return [("fetch_bytes_per_s", link.fetch_bytes_per_s), ("upload_bytes_per_s", link.upload_bytes_per_s)]


def longer(spent: TimeSpent) -> dict[str, float]:
    return {share.name: spent.more_s(share) or 0.0 for share in spent.shares}


def test_a_run_that_went_as_estimated_has_nothing_to_name() -> None:
    simulated = Simulated(CHAIN, topology(10**6))
    spent = simulated.play()
    told = {share.name: (share.estimated_s, share.actual_s) for share in spent.shares}
    assert told["for fetches from home"] == (pytest.approx(10, abs=0.01), pytest.approx(10, abs=0.01))
    assert told["computing"] == (pytest.approx(7), pytest.approx(7))
    assert told["for uploads to home"] == (pytest.approx(3, abs=0.01), pytest.approx(3, abs=0.01))
    assert sum(actual for _, actual in told.values()) == pytest.approx(simulated.summary.wall_s)
    assert sum(estimated or 0.0 for estimated, _ in told.values()) == pytest.approx(simulated.estimated.report.wall_s)
    assert (spent.largest, spent.words, spent.note) == (None, "", "")
    assert said_of(spent) == ["nothing took notably longer than estimated"]


def test_what_an_attempt_takes_beside_its_program_is_estimated_as_commits() -> None:
    spent = Simulated(CHAIN, topology(10**6).with_overhead(2.0, measured=False)).play()
    told = {share.name: (share.estimated_s, share.actual_s) for share in spent.shares}
    assert told["for commits"] == (pytest.approx(4), pytest.approx(4))
    assert told["computing"] == (pytest.approx(7), pytest.approx(7))


def test_what_is_less_than_a_hundredth_of_the_run_is_not_worth_a_word() -> None:
    simulated = Simulated(CHAIN, topology(10**6))
    truth = replace(simulated.plan, jobs=tuple(structs.replace(job, compute_s=job.compute_s * 1.02) for job in simulated.plan.jobs))
    spent = simulated.play(truth)
    assert longer(spent)["computing"] == pytest.approx(0.14, abs=0.01) and spent.largest is None


def test_slow_uploads_are_named_with_what_went_over_the_line() -> None:
    place = topology(10**6)
    spent = Simulated(CHAIN, with_link(place, upload_bytes_per_s=5.0), place).play()
    assert spent.largest is not None and (spent.largest.cause, spent.largest.about) == ("uploads", "home")
    assert longer(spent)["for uploads to home"] == pytest.approx(100 / 5 - 100 / 50, abs=0.01)
    assert spent.words == (
        "finals waited for uploads to home 18 s longer than estimated: 1 file, 100 B at 5 B/s where the plan took 50 B/s (assumed); "
        "later plans take what was measured"
    )
    rows = spent_rows(spent)
    assert rows[-1] == ("in total", "20 s", "38 s", "+18 s")
    assert ("for uploads to home", "3.00 s", "21 s", "+18 s") in rows


def test_slow_fetches_are_named() -> None:
    place = topology(10**6)
    spent = Simulated(CHAIN, with_link(place, fetch_bytes_per_s=10.0), place).play()
    assert spent.largest is not None and (spent.largest.cause, spent.largest.about) == ("fetches", "home")
    assert longer(spent)["for fetches from home"] == pytest.approx(90, abs=0.1)
    assert "jobs waited for fetches from home 1 min 30 s longer than estimated: 1 file, 1 kB at 10 B/s" in spent.words


def test_programs_that_run_longer_are_named_by_their_type() -> None:
    simulated = Simulated(CHAIN, topology(10**6))
    truth = replace(simulated.plan, jobs=tuple(structs.replace(job, compute_s=job.compute_s * 4) for job in simulated.plan.jobs))
    spent = simulated.play(truth)
    assert spent.largest is not None and spent.largest.cause == Cause.COMPUTING
    assert longer(spent)["computing"] == pytest.approx(21)
    assert spent.words == (
        "programs ran 21 s longer than estimated, most of it for jobs of type 'work': 28 s where the plan had 7.00 s (declared); "
        "correct what is declared"
    )


def test_cores_that_another_run_had_are_named() -> None:
    simulated = Simulated(BAG, topology(10**6))
    other = workflow("workflow w\n  made long 10\n  job l -> long compute=40\n")
    simulated.world.submit("o-1", other, make_plan(other, topology(10**6)))
    spent = simulated.play()
    assert spent.largest is not None and spent.largest.cause == Cause.CORES
    assert longer(spent)["for cores"] == pytest.approx(40, abs=1.1)
    assert "jobs waited for cores" in spent.words and "others had them, other runs maybe; --cores gives more" in spent.words


def test_where_jobs_wait_for_cores_since_those_before_them_took_longer_these_are_named() -> None:
    simulated = Simulated(BAG, topology(10**6))
    truth = replace(simulated.plan, jobs=tuple(structs.replace(job, compute_s=job.compute_s * 4) for job in simulated.plan.jobs))
    spent = simulated.play(truth)
    assert spent.largest is not None and spent.largest.cause == Cause.CORES
    assert "most of it for jobs of type 'work': 1 min 00 s where the plan had 15 s (declared)" in spent.words


def test_room_that_another_run_had_is_named() -> None:
    """Its output is set aside until it is done; there would have been a core."""
    simulated = Simulated(BAG, topology(400, cores=4))
    other = workflow("workflow w\n  made long 300\n  job l -> long compute=40\n")
    simulated.world.submit("o-1", other, make_plan(other, topology(400, cores=4)))
    spent = simulated.play()
    assert spent.largest is not None and spent.largest.cause == Cause.ROOM, longer(spent)
    assert "with 400 B of capacity; give more (" in spent.words


def test_tries_that_failed_are_named_and_nothing_was_estimated_of_them() -> None:
    simulated = Simulated(CHAIN, topology(10**6))
    for at, code in ((0.0, "origin_unreachable"), (60.0, "")):
        simulated.world.clock.at(at, lambda code=code: setattr(simulated.world.origins["sftp://lab/data"], "fault_code", code))
    spent = simulated.play()
    assert spent.largest is not None and (spent.largest.cause, spent.largest.estimated_s) == (Cause.RETRIES, None)
    assert "tries that failed, and pauses after them, took" in spent.words and "--file in" in spent.words
    assert {row[0]: row[1] for row in spent_rows(spent)}["for retries and outages"] == "—"


def test_a_run_that_did_not_succeed_stands_alone() -> None:
    simulated = Simulated(CHAIN, topology(10**6))
    simulated.world.tell_at(12.0, lambda now: ev.RunCancelled(at=now, run="w-1"))
    spent = simulated.play()
    assert simulated.summary.outcome == "cancelled"
    assert not spent.compared and spent.largest is None
    assert all(share.estimated_s is None and spent.more_s(share) is None for share in spent.shares)
    assert sum(share.actual_s for share in spent.shares) == pytest.approx(simulated.summary.wall_s)
    assert said_of(spent) == ["note: the run is cancelled, and an estimate is of one that succeeds: where its time went stands alone"]
    assert spent_rows(spent)[-1] == ("in total", "12 s")
    assert spent_json(spent)["largest"] is None


def test_a_run_that_was_interrupted_is_compared_without_that() -> None:
    simulated = Simulated(CHAIN, topology(10**6))
    simulated.world.tell_at(11.0, lambda now: ev.RunDrained(at=now, run="w-1"))
    simulated.world.tell_at(50.0, lambda now: ev.RunResumed(at=now, run="w-1"))
    spent = simulated.play()
    assert spent.note == "it was interrupted for 37 s, which is in none of these"
    assert sum(share.actual_s for share in spent.shares) == pytest.approx(simulated.summary.wall_s - simulated.summary.interrupted_s)
    assert all(abs(more_s) < 0.1 for more_s in longer(spent).values())


def test_a_run_of_an_engine_stands_alone() -> None:
    simulated = Simulated(CHAIN, topology(10**6))
    simulated.workflow = replace(simulated.workflow, engine="airflow")
    simulated.plan = make_plan(simulated.workflow, topology(10**6), limits=simulated.limits)
    # In a world that is checked engines hear of what was decided.
    simulated.world = SimWorld(topology(10**6), limits=simulated.limits, keep_journal=True, checkers=all_checkers())
    spent = simulated.play()
    assert simulated.summary.outcome == "succeeded" and not spent.compared and "airflow decides when" in spent.note
    told = {share.name: share.actual_s for share in spent.shares}
    assert sum(told.values()) == pytest.approx(simulated.summary.wall_s)
    assert told["computing"] == pytest.approx(7, abs=0.01) and "for its engine" in told


def test_what_is_measured_counts_more_than_a_hint_and_less_than_what_a_job_declares() -> None:
    simulated = Simulated(CHAIN, topology(10**6))
    jobs = {name: replace(job, compute_s=None) for name, job in simulated.workflow.jobs.items()}
    truth = replace(simulated.plan, jobs=tuple(structs.replace(job, compute_s=job.compute_s * 4) for job in simulated.plan.jobs))
    simulated.play(truth)
    hinted = replace(simulated.workflow, jobs=jobs)
    assert time_spent(hinted, simulated.plan, simulated.summary, simulated.history, simulated.estimated).words.endswith(
        "28 s where the plan had 7.00 s (declared); later plans take what was measured"
    )


def test_a_history_without_a_path_says_that_nothing_is_told() -> None:
    simulated = Simulated(CHAIN, topology(10**6))
    simulated.play()
    spent = time_spent(
        simulated.workflow, simulated.plan, simulated.summary, simulated.history.model_copy(update={"path": []}), simulated.estimated
    )
    assert spent.shares == spent_rows(spent) == [] and "is not told" in said_of(spent)[0]
    assert "Where the time went" not in page_of(simulated.summary, simulated.history, [], "USD", [], spent_rows(spent), said_of(spent))


def test_it_is_on_the_page_and_in_the_json() -> None:
    place = topology(10**6)
    simulated = Simulated(CHAIN, with_link(place, upload_bytes_per_s=5.0), place)
    spent = simulated.play()
    page = page_of(simulated.summary, simulated.history, [], "USD", [], spent_rows(spent), said_of(spent))
    assert "<h2>Where the time went</h2>" in page
    assert "<td>for uploads to home</td><td>3.00 s</td><td>21 s</td><td>+18 s</td>" in page
    assert "<p>most of what was not estimated: finals waited for uploads to home" in page
    told = spent_json(spent)
    assert told["largest"]["cause"] == "uploads" and told["compared"]
    assert {entry["cause"] for entry in told["shares"]} >= {"fetches", "computing", "uploads"}


def test_a_cause_of_a_newer_scheduler_is_told_by_its_name() -> None:
    spans = [wire.PathSpan(begun_s=0.0, ended_s=2.0, cause="weather"), wire.PathSpan(begun_s=2.0, ended_s=3.0, cause="cores")]
    assert [(share.name, share.estimated_s, share.actual_s) for share in shares_of(spans, [])] == [
        ("for cores", 0.0, 1.0),
        ("weather", 0.0, 2.0),
    ]


def test_each_cause_has_a_name_and_a_sentence() -> None:
    """Nothing is set beside what an engine does."""
    assert set(NAMES) == set(TOLD) | {Cause.ENGINE} == set(Cause) - {Cause.INTERRUPTED}


def test_what_overlaps_counts_once() -> None:
    assert together_s([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0)]) == 4.0
