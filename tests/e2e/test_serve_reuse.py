"""Reuse at a service: what a run of the tenant made is not made again, nothing of another tenant's stands for anything, and what lies
beside a workflow is known by its content.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stager.service.reusing import SETTLED_S
from tests.e2e.serve_rig import Service, problem
from tests.testbed.waiting import wait_until

TENANTS = '[tenants.{name}]\nnative_jobs = {runs}\nfile_roots = ["{data}"]\n'
WORKFLOW = """stager: 1
name: twice
on_exists: replace
origins: {ORIGINS}
jobs:
  up:
    run: tr a-z A-Z < a > b
    inputs: {a: "data:in/a"}
    outputs: {b: "data:out/b"}
  count:
    run: wc -c < b > c
    inputs: [b]
    outputs: {c: "data:out/c"}
"""


class Lab:
    """A service for two tenants that may use the same directory."""

    def __init__(self, place: Path) -> None:
        self.place, self.data = place, place / "data"
        (self.data / "in").mkdir(parents=True)
        (self.data / "in" / "a").write_text("hello\n")
        self.service = Service(place / "service", self.tenants("alice"), env={"STAGER_REUSE": "on"})
        self.text = WORKFLOW.replace("{ORIGINS}", f'{{data: "file:{self.data}"}}')

    def tenants(self, runs: str) -> str:
        """Both may use the directory; only one may have its jobs run here."""
        said = [TENANTS.format(name=name, data=self.data, runs="true" if name == runs else "false") for name in ("alice", "bob")]
        return "".join(said)

    def body(self, **options: Any) -> dict[str, Any]:
        return {"workflow": self.text, "options": options}

    def run(self, client: httpx.Client, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """(what was answered, the summary)."""
        said = client.post("/runs", json=self.body(**options))
        assert said.status_code == 201, said.text
        run = said.json()["run"]
        waited = client.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()
        assert waited["state"] == "succeeded", waited
        return said.json(), client.get(f"/runs/{run}/summary").json()


@pytest.fixture(scope="module")
def lab(session_dir: Path) -> Iterator[Lab]:
    made = Lab(session_dir / "reuse")
    try:
        made.service.start()
        yield made
    finally:
        made.service.end()


def test_a_tenant_reuses_its_own_results_and_nobody_elses(lab: Lab) -> None:
    # A change that is younger than the time that is told of it may not show.
    wait_until(lambda: time.time() > (lab.data / "in" / "a").stat().st_ctime + SETTLED_S + 0.5, "the input to have settled")
    alice, bob = (lab.service.client(lab.service.token(name, "submit")) for name in ("alice", "bob"))
    said, summary = lab.run(alice)
    assert (said["jobs_reused"], said["reuse"], summary["attempts"]) == (0, [], 2)
    all_of_it = "2 of 2 jobs reused, 0 B over the WAN"
    planned = alice.post("/plan", json=lab.body()).json()
    assert (planned["jobs_reused"], planned["reuse"], planned["fault"]) == (2, [all_of_it], None)
    said, summary = lab.run(alice)
    assert (said["jobs_reused"], said["reuse"], summary["attempts"], summary["jobs_reused"]) == (2, [all_of_it], 0, 2)
    status, jobs = alice.get(f"/runs/{said['run']}").json(), alice.get(f"/runs/{said['run']}/jobs").json()["jobs"]
    assert status["info"]["jobs_reused"] == 2 and {job["reused_from"] for job in jobs} == {"twice-1"}

    assert bob.post("/plan", json=lab.body(reuse=True)).json()["jobs_reused"] == 0
    lab.service.write_tenants(lab.tenants("bob"))
    said, summary = lab.run(bob)
    assert (said["jobs_reused"], said["reuse"], summary["attempts"]) == (0, [], 2), "the same workflow of another tenant"
    lab.service.write_tenants(lab.tenants("alice"))

    assert lab.run(alice, rerun=["count"])[1]["attempts"] == 1 and lab.run(alice, begin=["all"])[1]["attempts"] == 2
    assert lab.run(alice, reuse=False)[1]["attempts"] == 2
    said, summary = lab.run(alice, until=["b"], rerun=["up"])
    assert (said["jobs"], summary["attempts"]) == (1, 1)
    problem(alice.post("/runs", json=lab.body(rerun=["cuont"])), 422, "invalid_input")
    problem(alice.post("/runs", json=lab.body(reuse=False, rerun=["count"])), 422, "bad_parameter")


def test_what_came_along_is_known_by_its_content_and_finals_are_where_they_belong(lab: Lab) -> None:
    token = lab.place / "token"
    token.write_text(lab.service.token("alice", "submit"))
    place = lab.place / "mine"
    (place / "in").mkdir(parents=True)
    # What the tenant's other runs made of their input would be sent from the node.
    (place / "in" / "a").write_text("greet\n")
    (place / "w.yml").write_text(WORKFLOW.replace("{ORIGINS}", "{data: file:.}"))

    def submitted(*words: str) -> tuple[str, str]:
        done = lab.service.stager.run("submit", "w.yml", "--server", lab.service.url, "--token-file", token, "--quiet", *words, cwd=place)
        return done.stderr, done.stdout

    assert "2 attempts" in submitted()[1] and (place / "out" / "c").read_text() == "6\n"
    (place / "out" / "b").unlink()
    (place / "in" / "a").touch()
    err, out = submitted()
    assert "2 of 2 jobs reused" in err and "0 attempts" in out, "sent into another directory, and the same"
    assert (place / "out" / "b").read_text() == "GREET\n", "brought home all the same"
    assert "1 attempt" in submitted("--rerun", "count")[1]
    (place / "in" / "a").write_text("greet you\n")
    assert "2 attempts" in submitted()[1] and (place / "out" / "c").read_text() == "10\n"


SCATTER = """stager: 1
name: parts
on_exists: replace
origins: {ORIGINS}
jobs:
  split: {run: tr ' ' '\\n' < a > names, inputs: {a: "data:in/names"}, outputs: {names: "data:parts/names"}}
  part:
    scatter: {over: names, as: name}
    run: echo {name} > {name}.part
    inputs: [names]
    outputs: {"{name}.part": "data:parts/"}
  gather: {run: cat *.part > all, inputs: ["*.part"], outputs: {all: "data:parts/all"}}
"""


def test_jobs_of_a_tenant_are_made_of_members_and_reused_with_them(lab: Lab) -> None:
    (lab.data / "in" / "names").write_text("x y z")
    wait_until(lambda: time.time() > (lab.data / "in" / "names").stat().st_ctime + SETTLED_S + 0.5, "the input to have settled")
    alice = lab.service.client(lab.service.token("alice", "submit"))
    body = {"workflow": SCATTER.replace("{ORIGINS}", f'{{data: "file:{lab.data}"}}'), "options": {}}
    runs = []
    for _ in range(2):
        runs.append(alice.post("/runs", json=body).json())
        assert alice.get(f"/runs/{runs[-1]['run']}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"
    assert (lab.data / "parts" / "all").read_text().split() == ["x", "y", "z"]
    assert [(run["jobs"], run["jobs_reused"]) for run in runs] == [(3, 0), (5, 5)]
    jobs = alice.get(f"/runs/{runs[0]['run']}/jobs").json()["jobs"]
    assert [job["job"] for job in jobs] == ["split", "part[x]", "part[y]", "part[z]", "gather"] and not any(job["assumed"] for job in jobs)
