"""What the REST API tells for pictures: graph and states, history, cost so far, what fills the nodes. With a real `stager serve`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.serve_rig import Service, small
from tests.e2e.test_serve import events_of, problem
from tests.testbed.waiting import wait_until

TENANTS = '[tenants.alice]\nnative_jobs = true\nfile_roots = ["{data}"]\n[tenants.bob]\n'
# One bed for all of them: who opens its gate is one of them.
pytestmark = pytest.mark.xdist_group("drawn")
PARTS = ("pinned", "dirty", "clean", "reserved", "free")


@dataclass
class Bed:
    service: Service
    data: Path
    alice: httpx.Client
    run: str
    gate: Path

    def get(self, path: str, **query: Any) -> Any:
        return self.alice.get(f"/runs/{self.run}{path}", params=query).raise_for_status().json()

    def states(self) -> dict[str, str]:
        return dict(zip([job["job"] for job in self.get("/graph")["jobs"]], self.get("/states")["states"], strict=True))


@pytest.fixture(scope="module")
def bed(session_dir: Path) -> Iterator[Bed]:
    """With a run whose job `up` is done, and whose job `down` waits for a gate."""
    place = session_dir / "drawn"
    data = place / "data"
    data.mkdir(parents=True)
    gate = data / "gate"
    down = f"  down: {{type: waits, run: 'until [ -e {gate} ]; do sleep 0.05; done; cat b b > c', inputs: [b], outputs: [c]}}\n"
    service = Service(place, TENANTS.format(data=data))
    try:
        service.start()
        alice = service.client(service.token("alice", "submit"))
        run = alice.post("/runs", json={"workflow": small(data, "drawn", more=down)}).raise_for_status().json()["run"]
        yield Bed(service, data, alice, run, gate)
    finally:
        # The tests that open it may have run beside another bed; a service that is asked to end waits for its jobs.
        gate.touch()
        service.end()


def test_a_run_under_way_is_told_as_a_graph_with_states_and_cost(bed: Bed) -> None:
    wait_until(lambda: bed.states() == {"up": "done", "down": "running"}, "the second job to run")
    assert bed.get("/graph")["jobs"] == [
        {"job": "up", "job_type": "up", "depth": 0, "parents": [], "assumed": False},
        {"job": "down", "job_type": "waits", "depth": 1, "parents": [0], "assumed": False},
    ]
    assert bed.get("")["hit_rate"] == 0, "what the first job read had to come"
    problem(bed.alice.get(f"/runs/{bed.run}/history"), 409, "run_active")
    first = bed.get("/cost")
    assert not first["final"] and first["total"] > 0 and first["currency"] == "USD" and first["nodes"] == 1
    assert first["total"] == pytest.approx(sum(line["amount"] for line in first["lines"]))
    wait_until(lambda: bed.get("/cost")["wall_s"] > first["wall_s"], "the time that is paid for to go on")


def test_jobs_are_chosen_by_type_and_by_name(bed: Bed) -> None:
    for query, names in (({"job_type": "waits"}, ["down"]), ({"job": "up"}, ["up"]), ({"job": "nobody"}, []), ({}, ["up", "down"])):
        assert [job["job"] for job in bed.get("/jobs", **query)["jobs"]] == names
    assert bed.get("/jobs", job="up", state="running")["jobs"] == []


def test_jobs_and_runs_are_found_by_a_part_of_their_names(bed: Bed) -> None:
    for query, names in (
        ({"contains": "OW"}, ["down"]),
        ({"contains": "aits"}, ["down"]),
        ({"contains": "p", "state": "waiting"}, []),
        ({"contains": "o%"}, []),
        ({"limit": 1}, ["up"]),
    ):
        found = bed.get("/jobs", **query)
        assert [job["job"] for job in found["jobs"]] == names
        assert found["total"] == (2 if "limit" in query else len(names))

    def runs(**query: Any) -> list[str]:
        return [run["run"] for run in bed.alice.get("/runs", params=query).raise_for_status().json()["runs"]]

    assert runs(contains="DRAW") == runs(contains=bed.run) == runs() == [bed.run] and runs(contains="drawn%") == []
    standing = bed.alice.get(f"/runs/{bed.run}").json()["info"]["state"]
    assert runs(state=standing) == [bed.run] and runs(state="failed") == [] and runs(state="failed", contains="draw") == []
    bob = bed.service.client(bed.service.token("bob", "read"))
    assert bob.get("/runs", params={"contains": "drawn"}).json()["runs"] == []
    problem(bed.alice.get("/runs", params={"state": "lost"}), 422, "bad_parameter")


def test_the_occupancy_of_a_node_adds_up_and_tells_what_is_pinned(bed: Bed) -> None:
    wait_until(lambda: bed.states()["down"] == "running", "the second job to run")
    (node,) = bed.alice.get("/nodes").json()["nodes"]
    held = node["occupancy"]
    assert held["capacity_bytes"] == node["capacity_bytes"] == sum(held[f"{part}_bytes"] for part in PARTS)
    assert held["pinned_bytes"] == 6, "the input of the job that runs"
    assert held["clean_bytes"] == 6, "the first one's input, whose only reader is done"
    assert node["pid"] is None


def test_a_run_that_is_over_has_a_history_and_a_cost_as_in_its_report(bed: Bed) -> None:
    bed.gate.touch()
    assert bed.get("/wait", timeout_s=60)["state"] == "succeeded"
    history = bed.get("/history")
    assert [span["job"] for span in history["attempts"]] == ["up", "down"]
    assert {(move["direction"], move["lfn"]) for move in history["moves"]} == {("fetch", "in/a"), ("upload", "b")}
    assert bed.get("")["hit_rate"] == bed.get("/summary")["hit_rate"] == pytest.approx(0.5), "what the second one read was made here"
    cost = bed.get("/cost")
    report = {line["name"]: line["actual"] for line in bed.service.stager.json("report", bed.run)["lines"]}
    assert cost["final"] and cost["total"] == pytest.approx(report["cost in total"])
    assert {line["name"]: line["amount"] for line in cost["lines"]}["compute nodes"] == pytest.approx(report["cost of compute nodes"])
    for path in ("/graph", "/states", "/history", "/cost"):
        answer = bed.alice.get(f"/runs/{bed.run}{path}")
        again = bed.alice.get(f"/runs/{bed.run}{path}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b""), path


def test_events_name_their_transfer_its_duration_and_an_outcome(bed: Bed) -> None:
    bed.gate.touch()
    told = [(kind, data) for _, kind, data in events_of(bed.alice, bed.run)]
    begun = {data["transfer"]: data["subject"] for kind, data in told if kind in ("fetch", "upload")}
    ended = {data["transfer"]: data["duration_s"] for kind, data in told if kind == "transfer_done"}
    assert set(begun.values()) == {"in/a", "b"} and begun.keys() == ended.keys() and min(ended.values()) >= 0
    assert [(data["subject"], data["outcome"]) for kind, data in told if kind == "attempt_ended"] == [("up", "ok"), ("down", "ok")]


def test_none_of_it_is_told_of_somebody_elses_run(bed: Bed) -> None:
    bob = bed.service.client(bed.service.token("bob", "submit"))
    for path in ("/graph", "/states", "/history", "/cost"):
        problem(bob.get(f"/runs/{bed.run}{path}"), 404, "not_found")
