"""Quotas and budgets of a tenant at a real `stager serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.serve_rig import Service, call, problem, small
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.slow
TENANTS = "[tenants.alice]\nnative_jobs = true\n"


def test_a_tenant_waits_within_its_quotas_and_is_told_which_and_a_submit_over_them_is_refused(short_dir: Path) -> None:
    service = Service(short_dir, f"{TENANTS}quota_runs = 1\nquota_cores = 1\n").start()
    alice, gate = service.client(service.token("alice", "submit")), service.place / "gate"
    hold = f"until test -e {gate}; do sleep 0.05; done"
    workflow = f"stager: 1\nname: held\njobs:\n  one: {{run: '{hold}'}}\n  two: {{run: '{hold}'}}\n"
    try:
        run = alice.post("/runs", json={"workflow": workflow}).raise_for_status().json()["run"]
        refused = problem(alice.post("/runs", json={"workflow": workflow}), 409, "quota_runs")
        assert refused["detail"].startswith(f"the tenant alice may have 1 active at a time, and 1 run is active ({run});")
        wait_until(lambda: [view["code"] for view in alice.get(f"/runs/{run}").json()["waiting"]] == ["quota_cores"], "what it waits for")
        figures = call("GET", f"{service.url}/metrics", headers={"Authorization": f"Bearer {service.token('alice', 'admin')}"})
        assert 'stager_tenants_waiting{quota="cores"} 1.0' in figures.text
        assert alice.get(f"/runs/{run}").json()["jobs"]["running"] == 1
        service.write_tenants(TENANTS)
        wait_until(lambda: alice.get(f"/runs/{run}").json()["jobs"].get("running") == 2, "the quota to be gone")
        gate.touch()
        assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["finished"]
    finally:
        gate.touch()
        service.end()


def test_a_run_is_held_to_its_budget_and_goes_on_with_a_larger_one(short_dir: Path) -> None:
    """A minute of a node is the least that is billed, and costs more than the first budget."""
    data = short_dir / "data"
    service = Service(short_dir, f"{TENANTS}file_roots = ['{data}']\n").start()
    try:
        hold_to_budget(service.client(service.token("alice", "submit")), small(data, "dear"))
    finally:
        service.end()


def hold_to_budget(client: httpx.Client, workflow: str) -> None:
    body: dict[str, Any] = {"workflow": workflow}

    def asked(**options: Any) -> httpx.Response:
        return client.post("/runs", json={**body, "options": options})

    assert "--budget-anyway" in problem(asked(budget="0.001 USD"), 409, "over_budget")["detail"]
    problem(asked(budget="1 EUR"), 422, "other_currency")
    problem(asked(finish_by="18:00"), 422, "bad_time")
    problem(asked(finish_by="2026-11-20T18:00:00Z"), 422, "time_over")
    planned = client.post("/plan", json={**body, "options": {"budget": "1 USD", "finish_by": "+3h"}}).raise_for_status().json()
    assert any(note.startswith("chosen by cost of 1: on the node here") for note in planned["notes"])

    run = asked(budget="0.001 USD", budget_anyway=True).raise_for_status().json()["run"]
    assert client.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["interrupted_by"] == "budget"
    status = client.get(f"/runs/{run}").json()
    assert status["info"]["state"] == "interrupted" and "is paused before its budget of 0.001 USD" in status["budget"]["paused"]
    problem(client.post(f"/runs/{run}/resume"), 409, "budget_used_up")
    problem(client.post(f"/runs/{run}/resume", json={"budget": "1 EUR"}), 422, "other_currency")
    client.post(f"/runs/{run}/resume", json={"budget": "1 USD"}).raise_for_status()
    assert client.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"
    told = client.get(f"/runs/{run}/summary").json()["budget"]
    assert (told["amount"], told["currency"], told["paused"]) == (1.0, "USD", "") and 0 < told["spent"] < 0.1
