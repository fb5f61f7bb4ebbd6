"""Budgets of real runs, where a second of the node costs a dollar: refused, paused, resumed, told, and whatever is killed."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serve_rig import Service, small
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

JOBS, EACH_S = 8, 2
WORKFLOW = f"""stager: 1
name: w
origins:
  o: file:data
io_hints:
  a: {{compute: {EACH_S}s}}
jobs:
  a:
    foreach: {{n: {[str(number) for number in range(JOBS)]}}}
    run: 'echo {{n}} >> "$TRACE"; sleep {EACH_S}; echo {{n}} > {{n}}.txt'
    env: {{TRACE: "TRACE_FILE"}}
    isolate: off
    outputs: {{'{{n}}.txt': {{to: 'o:{{n}}.txt', size: 10 B}}}}
"""
PRICES = """stager-prices: 1
date: 2026-11-26
sources: {us: "a second costs a dollar"}
instances:
  - {name: m6i.xlarge, provider: lab, region: cellar, per_hour: 3600, billed_every: 0s, billed_at_least: 0s, source: us}
"""


class Bed:
    def __init__(self, place: Path) -> None:
        self.place, self.told, self.trace = place, place / "told", place / "trace"
        (place / "data").mkdir()
        (place / "w.yml").write_text(WORKFLOW.replace("TRACE_FILE", str(self.trace)))
        (place / "prices.yml").write_text(PRICES)
        self.stager = Stager(place / "s", place / "home", {"STAGER_PRICES": str(place / "prices.yml"), "TZ": "UTC"})
        self.stager.state_dir.mkdir(mode=0o700)
        rules = self.stager.state_dir / "notify.toml"
        rules.write_text(f'[targets.t]\ncommand = ["/bin/sh", "-c", "cat >>{self.told}; echo >>{self.told}"]\non = ["budget"]\n')
        rules.chmod(0o600)

    def ran(self) -> list[str]:
        """Each start of a job."""
        return sorted(self.trace.read_text().split()) if self.trace.exists() else []

    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.told.read_text().splitlines()] if self.told.exists() else []

    def all_told(self) -> bool:
        return all(row["owed"] == 0 for row in self.stager.json("notify", "list"))

    def durable(self) -> set[str]:
        return {entry["lfn"] for entry in self.stager.json("ledger", "w-1") if entry["state"] == "durable"}


@pytest.fixture
def bed(short_dir: Path) -> Iterator[Bed]:
    made = Bed(short_dir)
    yield made
    made.stager.end()


def test_a_workflow_says_what_it_may_cost_and_who_submits_it_may_say_otherwise(bed: Bed) -> None:
    stager, own = bed.stager, bed.place / "own.yml"
    own.write_text((bed.place / "w.yml").read_text().replace("stager: 1\n", "stager: 1\nbudget: 3 USD\n"))
    for command in ("submit", "plan"):
        assert "may cost more than 3.00 USD" in stager.run(command, own, code=3).stderr
    assert "may cost more than 4.00 USD" in stager.run("submit", own, "--budget", "4 USD", code=3).stderr
    assert "chosen by" not in stager.run("plan", own, "--budget", "none").stderr
    assert "chosen by time" in stager.run("plan", own, "--budget", "100000 USD").stderr
    stager.run("plan", own, "--output", bed.place / "plan.json")
    told = stager.run("submit", own, "--plan", bed.place / "plan.json", code=2).stderr
    assert "the workflow has a budget or a deadline, which chooses one: add --budget none" in told
    assert bed.ran() == []


def test_what_may_cost_more_is_refused_and_what_begins_anyway_is_paused_and_goes_on(bed: Bed) -> None:
    stager, workflow = bed.stager, bed.place / "w.yml"
    refused = stager.run("submit", workflow, "--budget", "3 USD", code=3).stderr
    assert "may cost more than 3.00 USD: on the node here," in refused and "--budget-anyway" in refused
    assert "nobody has measured the link to o" in refused
    assert "in EUR, and the prices" in stager.run("submit", workflow, "--budget", "20 EUR", code=2).stderr
    assert "may not have ended by" in stager.run("submit", workflow, "--finish-by", "+3s", code=3).stderr
    assert "is over" in stager.run("submit", workflow, "--finish-by", "2026-11-20T18:00:00Z", code=2).stderr
    assert not bed.ran() and stager.scheduler_pid() is None, "nothing has begun"

    planned = stager.run("plan", workflow, "--budget", "1000 USD").stderr
    assert "-> on the node here: 8" in planned and "chosen by time of 1" in planned

    paused = stager.run("submit", workflow, "--budget", "8 USD", "--budget-anyway", code=130)
    assert "it may cost more, and is paused before it does" in paused.stderr
    assert "run w-1 is paused before its budget of 8.00 USD is used up" in paused.stderr
    assert "stager resume w-1 --budget" in paused.stderr and "go on with: stager resume w-1\n" not in paused.stderr
    begun = bed.ran()
    status = stager.json("status", "w-1")
    assert 0 < len(begun) < JOBS and 0 < status["budget"]["spent"] <= 8.0
    # What had begun has ended, and is home.
    assert bed.durable() == {f"{number}.txt" for number in begun} and status["jobs"]["done"] == len(begun)
    assert "paused for its budget" in stager.run("status", "w-1").stdout
    wait_until(bed.all_told, "it to be told")
    assert [(each["kind"], each["run"]) for each in bed.notices() if each["facts"]["paused"]] == [("budget", "w-1")]

    assert "go on with: stager resume w-1 --budget AMOUNT" in stager.run("resume", "w-1", code=3).stderr
    assert "name more" in stager.run("resume", "w-1", "--budget", "0.5 USD", code=3).stderr
    assert "in EUR, and run w-1" in stager.run("resume", "w-1", "--budget", "90 EUR", code=2).stderr
    done = stager.run("resume", "w-1", "--budget", "900 USD")
    assert bed.ran() == sorted(str(number) for number in range(JOBS)), "each job ran once"
    assert re.search(r"  durable .*\n( {11}.*\n)+  cost: .* of 900.00 USD spent", done.stdout), "what is said of finals stands together"
    report = stager.run("report", "w-1", "--prices", bed.place / "prices.yml").stdout
    assert "of 900.00 USD spent" in report


def test_a_run_is_paused_once_and_within_its_budget_whatever_is_killed(bed: Bed) -> None:
    """The scheduler dies when the second row of jobs has begun, and again as soon as the run is paused."""
    stager = bed.stager
    stager.submit(bed.place / "w.yml", "--budget", "7 USD", "--budget-anyway")
    wait_until(lambda: len(bed.ran()) >= 3, "the second row")
    kill(stager)
    stager.run("runs")
    wait_until(lambda: stager.json("status", "w-1")["budget"]["paused"], "the pause")
    kill(stager)
    assert stager.run("wait", "w-1", code=130)
    status, begun = stager.json("status", "w-1"), bed.ran()
    # What the nodes cost while nobody looked is spent, too.
    assert status["info"]["state"] == "interrupted" and len(begun) < JOBS
    assert len(begun) == len(set(begun)) and bed.durable() == {f"{number}.txt" for number in begun}
    wait_until(bed.all_told, "it to be told")
    assert len({each["id"] for each in bed.notices() if each["facts"]["paused"]}) == 1
    stager.run("resume", "w-1", "--budget", "900 USD")
    assert bed.ran() == sorted(str(number) for number in range(JOBS))


def kill(stager: Stager) -> None:
    pid = stager.scheduler_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: stager.scheduler_pid() is None, "the scheduler to be gone")


def test_a_service_says_which_plan_runs_what_it_may_cost_and_until_when(short_dir: Path) -> None:
    """As `stager submit` here does; also that a run may be paused, which nobody sees on its screen."""
    data = short_dir / "data"
    data.mkdir()
    service = Service(short_dir, f'[tenants.alice]\nnative_jobs = true\nfile_roots = ["{data}"]\n')
    try:
        alice = service.start().client(service.token("alice", "submit"))
        asked = {"budget": "0.000000001 USD", "budget_anyway": True, "finish_by": "2036-11-27T18:00:00+01:00"}
        body = {"workflow": small(data), "options": asked}
        planned, answer = alice.post("/plan", json=body).json()["notes"], alice.post("/runs", json=body).json()["reuse"]
        may = "budget: 0.000000001 USD: it may cost more, and is paused before it does"
        for said in ("chosen by cost of ", may, "finish by: 2036-11-27 "):
            assert any(line.startswith(said) for line in planned), planned
            assert any(line.startswith(said) for line in answer), answer
    finally:
        service.end()
