"""`stager node` as its user and an administrator have it: listed, drained, forgotten, and refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.nodes_rig import on_loopback
from tests.e2e.serve_rig import Service, problem
from tests.testbed.ionode import IoNode
from tests.testbed.stager import Stager

pytestmark = pytest.mark.slow


@pytest.fixture
def node(ionode: Callable[..., IoNode]) -> IoNode:
    return ionode(node_id="node1", options=on_loopback())


def named(node: IoNode) -> dict[str, str]:
    return {"STAGER_NODES": f"node1={node.address}@{node.token_file}", "STAGER_CORES": "4", "STAGER_IDLE_EXIT": "300"}


def test_a_node_is_listed_drained_and_forgotten(short_dir: Path, node: IoNode) -> None:
    stager = Stager(short_dir / "s", short_dir / "home", env=named(node))
    (short_dir / "s").mkdir()
    try:
        before = {view["node"]: view for view in json.loads(stager.run("node", "list", "--json").stdout)}
        assert {name: view["state"] for name, view in before.items()} == {"node0": "up", "node1": "up"}
        assert before["node1"]["address"] == node.address and before["node1"]["unsafe_files"] == 0
        assert before["node1"]["store_id"] == node.get("/v1/node")["store_id"] != before["node0"]["store_id"]
        assert "nothing would be lost with it" in stager.run("node", "drain", "node1", "--wait").stdout
        shown = stager.run("node", "list").stdout
        assert "draining" in shown and node.address in shown
        refused = stager.run("node", "drain", "node0", code=None)
        assert refused.returncode != 0 and "no other node answers" in refused.stderr
        assert "takes work again" in stager.run("node", "drain", "node1", "--undo").stdout
        assert "nothing is lost with node1" in stager.run("node", "forget", "node1", "--dry-run").stdout
        assert "up" in stager.run("node", "list").stdout
        said = stager.run("node", "forget", "node1", "--why", "its disk died").stdout
        assert "node1 is forgotten" in said
        gone = next(view for view in json.loads(stager.run("node", "list", "--json").stdout) if view["node"] == "node1")
        assert (gone["state"], gone["why"]) == ("gone", "its disk died (by the owner)")
        refused = stager.run("node", "forget", "node0", code=None)
        assert refused.returncode != 0 and "the scheduler's own" in refused.stderr
        refused = stager.run("node", "forget", "node7", code=None)
        assert refused.returncode != 0 and "no node 'node7'" in refused.stderr
    finally:
        stager.end()


def test_administrators_of_a_service_drain_and_forget(short_dir: Path, node: IoNode) -> None:
    """Others see the states, and neither addresses nor stores."""
    service = Service(short_dir / "service", "[tenants.alice]\n", env=named(node))
    try:
        tokens = {scope: service.token("alice", scope) for scope in ("submit", "admin")}
        service.start()
        alice, admin = (service.client(tokens[scope]) for scope in ("submit", "admin"))
        seen = {view["node"]: view for view in alice.get("/nodes").json()["nodes"]}
        assert seen["node1"]["state"] == "up" and not seen["node1"]["address"] and not seen["node1"]["store_id"]
        assert {view["node"]: view["address"] for view in admin.get("/nodes").json()["nodes"]}["node1"] == node.address
        problem(alice.post("/nodes/node1/drain", json={}), 403, "scope")
        problem(alice.post("/nodes/node1/forget", json={}), 403, "scope")
        assert admin.post("/nodes/node1/drain", json={}).json()["state"] == "draining"
        problem(admin.post("/nodes/node0/drain", json={}), 409, "last_node")
        problem(admin.post("/nodes/node7/drain", json={}), 404, "not_found")
        said = admin.post("/nodes/node1/forget", json={"why": "sold"}).json()
        assert said["forgotten"] and said["files_total"] == 0
        gone = next(view for view in alice.get("/nodes").json()["nodes"] if view["node"] == "node1")
        assert (gone["state"], gone["why"]) == ("gone", "sold (by alice)")
    finally:
        service.end()
