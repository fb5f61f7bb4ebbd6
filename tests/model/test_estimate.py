"""Estimates against what can be worked out by hand, and against each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stager.estimate import estimate
from stager.model.topology import Node, OriginLink, Topology
from stager.scheduler.commands import RunOutcome
from tests.scenarios.stage import read
from tests.sim.cases import plain_case
from tests.unit.test_plan import HOME, Workflow

LINK = OriginLink("home", 100.0, 50.0, 0.0)

CHAIN = """
workflow w
  external in 1000
  made mid 500
  made end 100 final
  job a in -> mid compute=3
  job b mid in -> end compute=4
"""
SQUEEZED = """
workflow w
  external in 400
  made keep 450
  made go 10
  made other 300
  made end 10 final
  job a -> keep go
  job b go in -> other
  job c keep other -> end
"""


def workflow(text: str) -> Workflow:
    files, jobs = read(text).workflows["w"]
    return Workflow("w", files, jobs, {"home": HOME})


def topology(capacity: int, cores: int = 1) -> Topology:
    return Topology((Node("node0", capacity, cores, disk_bytes_per_s=1e12),), (LINK,))


def test_a_chain_takes_fetch_compute_and_upload() -> None:
    report = estimate(workflow(CHAIN), topology(10**6))
    assert report.outcome is RunOutcome.SUCCEEDED
    assert report.wall_s == pytest.approx(1000 / 100 + 3 + 4 + 100 / 50 + 100 / 100, abs=0.01)
    assert report.readback_bytes == 100
    assert (report.fetched_bytes, report.uploaded_bytes, report.read_bytes) == (1000, 100, 2500)
    assert (report.refetched_bytes, report.spilled_bytes, report.attempts) == (0, 0, 2)
    assert report.hit_rate == pytest.approx(1 - 1000 / 2500)


@pytest.mark.parametrize("options", [(), (("shell_checksum", "false"),)])
def test_a_final_is_read_back_where_its_host_may_not_be_asked_for_a_checksum(options: tuple[tuple[str, str], ...]) -> None:
    """Plan and simulation agree on when it is home; `in` waits behind nothing, so each link has its bytes alone."""
    home = replace(HOME, options=options)
    asked = replace(workflow(CHAIN), origins={"home": home})
    report = estimate(asked, topology(10**6))
    back_bytes = 100 if options else 0
    assert (report.readback_bytes, report.plan.readback_bytes) == (back_bytes, back_bytes)
    assert report.wall_s == pytest.approx(19 + back_bytes / 100, abs=0.01)
    assert report.plan.makespan_s == pytest.approx(report.wall_s, abs=0.01)
    assert report.busy_s[f"fetch:{home.url}"] == pytest.approx((1000 + back_bytes) / 100)


def test_each_attempt_takes_its_slot_for_longer_than_its_program_runs() -> None:
    """Two jobs one after the other; then two beside each other that have one core, where the second waits for the first's slot."""
    slow = topology(10**6).with_overhead(2.0, measured=False)
    report = estimate(workflow(CHAIN), slow)
    assert report.wall_s == pytest.approx(20 + 2 * 2, abs=0.01)
    assert report.plan.makespan_s == pytest.approx(report.wall_s, abs=0.01)
    bag = workflow("workflow w\n  made x 0 final\n  made y 0 final\n  job a -> x compute=3\n  job b -> y compute=4")
    report = estimate(bag, slow)
    assert report.wall_s == pytest.approx(3 + 2 + 4 + 2, abs=0.01)
    assert report.plan.makespan_s == pytest.approx(report.wall_s, abs=0.01)


def test_less_room_means_spilling_and_more_time() -> None:
    roomy, tight = (estimate(workflow(SQUEEZED), topology(capacity), spill_origin="home") for capacity in (10**6, 1000))
    assert (roomy.spilled_bytes, roomy.refetched_bytes) == (0, 0)
    assert (tight.spilled_bytes, tight.refetched_bytes) == (450, 450)
    assert tight.wall_s > roomy.wall_s
    assert roomy.uploaded_bytes == tight.uploaded_bytes - 450


def test_hits_are_shown_beside_what_could_be_hit() -> None:
    """The chain reads `in` twice and `mid`, made before it, once: 1,500 of 2,500 bytes can be hit, and are."""
    report = estimate(workflow(CHAIN), topology(10**6))
    assert report.hit_rate == report.min_hits.rate == report.best_hit_rate == pytest.approx(1500 / 2500)
    tight = estimate(workflow(SQUEEZED), topology(1000), spill_origin="home")
    assert tight.hit_rate <= tight.best_hit_rate < 1
    assert tight.min_hits.rate <= tight.best_hit_rate


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_no_run_hits_more_than_the_bound(seed: int) -> None:
    case = plain_case(seed)
    report = estimate(case.workflows[0], case.topology, plan=case.plans[0], spread=case.spread)
    for hits in (report.min_hits, report.lru_hits):
        assert (hits.taken_bytes, hits.overfull_bytes) == (report.read_bytes, 0)
    rates = (report.hit_rate, report.min_hits.rate, report.lru_hits.rate, report.best_hit_rate)
    if not report.read_bytes:
        assert rates == (None,) * 4
    else:
        assert max(rates[:3]) <= rates[3] + 1e-9


def test_what_cannot_end_says_why() -> None:
    report = estimate(workflow(SQUEEZED), topology(1000))
    assert report.outcome is RunOutcome.REFUSED
    assert report.fault is not None
    assert "needs" in report.fault.message


def test_the_same_question_has_the_same_answer() -> None:
    assert estimate(workflow(CHAIN), topology(2000)) == estimate(workflow(CHAIN), topology(2000))
