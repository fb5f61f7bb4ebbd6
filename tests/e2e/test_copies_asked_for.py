"""`--copies 2` on two living nodes: one is killed and forgotten, and nothing is made again. With one copy what only it held is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.service.state_dir import StateDir
from tests.e2e.nodes_rig import batches_of, given_in, on_loopback, wan_bytes_of
from tests.testbed.ionode import IoNode
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.slow
PARTS, PART_BYTES = 6, 300_000
WORKFLOW = """
stager: 1
name: halves
defaults: {isolate: off}
files:
  parts: here:parts/*.dat
jobs:
  turn:
    foreach: {part: parts}
    run: "echo {part.stem} >> TRACE; cat {part} > {part.stem}.mid"
    inputs: ["{part}"]
    outputs: ["{part.stem}.mid"]
  hold:
    run: "until test -e GATE; do sleep 0.05; done; echo > go"
    outputs: [go]
  join:
    run: cat p*.mid > all
    inputs: ["p*.mid", go]
    outputs: {all: {to: here:out/all, on_exists: replace}}
"""


@pytest.fixture
def node(ionode: Callable[..., IoNode]) -> IoNode:
    return ionode(node_id="node1", options=on_loopback())


@pytest.fixture
def stager(short_dir: Path, node: IoNode) -> Stager:
    env = {"STAGER_NODES": f"node1={node.address}@{node.token_file}", "STAGER_CORES": "4", "STAGER_IDLE_EXIT": "300"}
    return Stager(short_dir / "s", short_dir / "home", env=env)


def parts_in(place: Path) -> bytes:
    (place / "parts").mkdir()
    for number in range(PARTS):
        (place / "parts" / f"p{number}.dat").write_bytes(os.urandom(PART_BYTES + number))
    (place / "workflow.yml").write_text(WORKFLOW.replace("TRACE", f"{place}/trace").replace("GATE", f"{place}/gate"))
    return b"".join((place / "parts" / f"p{number}.dat").read_bytes() for number in range(PARTS))


@pytest.mark.parametrize("copies", [2, 1])
def test_a_node_that_is_killed_and_forgotten_costs_only_what_it_alone_held(
    stager: Stager, node: IoNode, short_dir: Path, copies: int
) -> None:
    content = parts_in(short_dir)
    try:
        run = stager.run("submit", short_dir / "workflow.yml", "--copies", str(copies), "--detach").stdout.split()[-1]

        def mids(state: str) -> int:
            rows = json.loads(stager.run("ledger", run, "--json").stdout)
            entries = rows["entries"] if isinstance(rows, dict) else rows
            return sum(entry["lfn"].endswith(".mid") and entry["state"] == state for entry in entries)

        wait_until(lambda: mids("safe") == PARTS, f"each is on {copies} nodes")
        state_dir = StateDir(stager.state_dir)
        made_at = {command.job: command.node for command in given_in(batches_of(state_dir), cmd.StartAttempt)}
        there = [job for job, place in made_at.items() if job.startswith("turn") and place == "node1"]
        assert there, "some were made beside the node that dies"
        node.kill()

        def state_of_it() -> str:
            return next(str(view["state"]) for view in json.loads(stager.run("node", "list", "--json").stdout) if view["node"] == "node1")

        wait_until(lambda: state_of_it() == "away", "its death was seen")
        waits = json.loads(stager.run("status", run, "--json").stdout)["waiting"]
        assert [each["node"] for each in waits if "it alone holds" in each["message"]] == ([] if copies == 2 else ["node1"])
        said = json.loads(stager.run("node", "forget", "node1", "--json").stdout)
        assert said["files_total"] == (0 if copies == 2 else len(there))
        before = wan_bytes_of(batches_of(state_dir))
        wait_until(lambda: mids("at_risk" if copies == 2 else "safe") == PARTS, "all are there")
        (short_dir / "gate").touch()
        stager.run("wait", run)
        assert (short_dir / "out" / "all").read_bytes() == content
        ran = (short_dir / "trace").read_text().split()
        again = wan_bytes_of(batches_of(state_dir)) - before
        if copies == 2:
            assert sorted(ran) == [f"p{number}" for number in range(PARTS)] and again == 0
        else:
            assert len(ran) == PARTS + len(there) and again <= len(there) * (PART_BYTES + PARTS)
    finally:
        (short_dir / "gate").touch()
        stager.end()


def test_more_copies_than_nodes_are_refused(stager: Stager, short_dir: Path) -> None:
    parts_in(short_dir)
    try:
        refused = stager.run("submit", short_dir / "workflow.yml", "--copies", "3", code=None)
        assert refused.returncode != 0 and "there are 2 I/O nodes" in refused.stderr
        stager.env = {**stager.env, "STAGER_COPIES": "2"}
        assert json.loads(stager.run("plan", short_dir / "workflow.yml", "--json").stdout)["copies"] == 2
    finally:
        stager.end()
