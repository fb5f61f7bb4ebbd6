"""A second I/O node as a user gets one: started by hand, and named in the settings. Plans know it, and runs go on without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.service.state_dir import StateDir
from tests.e2e.nodes_rig import batches_of, given_in, on_loopback
from tests.e2e.serve_rig import Service
from tests.testbed.ionode import IoNode
from tests.testbed.stager import Stager

pytestmark = pytest.mark.slow
WORKFLOW = """
stager: 1
name: two
files:
  texts: here:texts/*.txt
jobs:
  count:
    foreach: {text: texts}
    run: "sleep 0.5; wc -c < {text} > {text.stem}.count"
    inputs: ["{text}"]
    outputs: ["{text.stem}.count"]
  total:
    run: cat *.count > total
    inputs: ["*.count"]
    outputs: {total: {to: here:out/total, on_exists: replace}}
"""


@pytest.fixture
def node(ionode: Callable[..., IoNode]) -> IoNode:
    return ionode(node_id="node1", options=on_loopback())


@pytest.fixture
def stager(short_dir: Path, node: IoNode) -> Stager:
    named = f"node1={node.address}@{node.token_file}"
    return Stager(short_dir / "s", short_dir / "home", env={"STAGER_NODES": named, "STAGER_CORES": "4"})


@pytest.fixture
def workflow(short_dir: Path) -> Path:
    (short_dir / "texts").mkdir()
    for number in range(8):
        (short_dir / "texts" / f"t{number}.txt").write_text("x" * (1000 + number))
    (short_dir / "workflow.yml").write_text(WORKFLOW)
    return short_dir / "workflow.yml"


def nodes_of(plan: Path) -> set[str]:
    return {job["node"] for job in json.loads(plan.read_text())["jobs"]}


def test_jobs_run_beside_both_nodes_and_a_plan_for_a_node_that_is_gone_runs_on_the_other(
    stager: Stager, node: IoNode, workflow: Path, short_dir: Path
) -> None:
    plan = short_dir / "plan.json"
    try:
        plan.write_text(stager.run("plan", workflow, "--json").stdout)
        assert nodes_of(plan) == {"node0", "node1"}
        stager.run("submit", workflow)
        expected = "".join(f"{1000 + number}\n" for number in range(8))
        assert (short_dir / "out" / "total").read_text() == expected
        inputs = [replica["size_bytes"] for replica in node.get("/v1/state")["replicas"] if 1000 <= replica["size_bytes"] < 1008]
        assert 0 < len(inputs) < 8, "some were read beside it, and some beside the other"
        node.kill()
        plan.write_text(stager.run("plan", workflow, "--json").stdout)
        assert nodes_of(plan) == {"node0"}, "a node that does not answer is in no plan"
        (short_dir / "out" / "total").unlink()
        stager.run("submit", workflow)
        assert (short_dir / "out" / "total").read_text() == expected
    finally:
        stager.end()


def test_a_service_plans_runs_of_tenants_for_the_named_nodes(node: IoNode, workflow: Path, short_dir: Path) -> None:
    named = {"STAGER_NODES": f"node1={node.address}@{node.token_file}", "STAGER_CORES": "4"}
    (short_dir / "out").mkdir()
    roots = [f"{short_dir}/texts", f"{short_dir}/out"]
    service = Service(short_dir / "service", f"[tenants.alice]\nnative_jobs = true\nfile_roots = {json.dumps(roots)}\n", env=named)
    try:
        token = service.token("alice", "submit")
        client = service.start().client(token)
        origins = f'origins: {{texts: "file:{roots[0]}", out: "file:{roots[1]}"}}\nfiles:'
        text = WORKFLOW.replace("files:", origins).replace("here:texts/", "texts:").replace("here:out/", "out:")
        said = client.post("/runs", json={"workflow": text})
        assert said.status_code == 201, said.text + service.log.read_text()[-3000:]
        run = said.json()["run"]
        assert client.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["finished"]
        assert (short_dir / "out" / "total").read_text() == "".join(f"{1000 + number}\n" for number in range(8))
        started = given_in(batches_of(StateDir(service.stager.state_dir)), cmd.StartAttempt)
        assert {command.node for command in started} == {"node0", "node1"}
    finally:
        service.end()
