"""Quotas of a tenant at a real `stager serve`, changed while a run is under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.serve_rig import Service, call, problem
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
