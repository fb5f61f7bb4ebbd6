"""Workflows with files, programs and finals beside them, on two hosts that share no file with the scheduler nor with each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.e2e.apart_rig import Apart
from tests.e2e.nodes_rig import batches_of, given_in
from tests.testbed.network import Network
from tests.testbed.places import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
# Two jobs on each host at a time, all of which read the same two files.
UPPER = """
stager: 1
name: upper
origins:
  data: file:../data
jobs:
  up:
    foreach: {n: 1..6}
    run: ./up.sh in.txt {n} > {n}.txt; sleep 1
    inputs: {up.sh: {from: here:bin/up.sh, executable: true}, in.txt: data:in.txt}
    outputs: {"{n}.txt": {to: "data:out/{n}.txt"}}
"""


@pytest.fixture
def apart(net: Network, short_dir: Path) -> Iterator[Apart]:
    made = Apart(net, short_dir, {})
    try:
        made.start()
        yield made
    finally:
        made.end()


def laid(place: Path) -> Path:
    for name in ("w/bin", "data"):
        (place / name).mkdir(parents=True)
    (place / "w" / "bin" / "up.sh").write_text('#!/bin/sh\ntr a-z A-Z < "$1"; echo "$2"\n')
    (place / "w" / "bin" / "up.sh").chmod(0o755)
    (place / "data" / "in.txt").write_text("hello\n" * 1000)
    (place / "w" / "workflow.yml").write_text(UPPER)
    return place / "w" / "workflow.yml"


def test_programs_and_files_beside_a_workflow_reach_each_node_once_and_finals_come_back(apart: Apart, tmp_path: Path) -> None:
    done = apart.stager.run("submit", laid(tmp_path))
    assert "6 of 6 done, 0 failed, 6 attempts" in done.stdout and "6 of 6 finals" in done.stdout, done.stdout
    made = {path.name: path.read_text() for path in (tmp_path / "data" / "out").iterdir()}
    assert made == {f"{n}.txt": "HELLO\n" * 1000 + f"{n}\n" for n in range(1, 7)}
    batches = batches_of(apart.state)
    starts, fetches, copies, uploads = (given_in(batches, kind) for kind in (cmd.StartAttempt, cmd.Fetch, cmd.CopyReplica, cmd.Upload))
    assert {command.node for command in starts} == {"a", "b"}
    # The scheduler's own node reads them once, and each other node gets them once.
    assert sorted((command.lfn, command.node) for command in fetches) == [("bin/up.sh", "node0"), ("in.txt", "node0")], fetches
    inputs = sorted((command.lfn, command.node) for command in copies if command.purpose is not cmd.Purpose.RELAY)
    assert len(inputs) == len(set(inputs)) == 4
    assert {command.node for command in uploads} == {"node0"} and len(uploads) == 6


def test_a_path_that_other_hosts_do_not_see_is_refused_before_anything_starts(apart: Apart, tmp_path: Path) -> None:
    """With the node and the path. One that all of them see is read by each node itself."""
    workflow = laid(tmp_path)
    workflow.write_text(UPPER.replace("file:../data", f"file:{tmp_path}/data"))

    def refusal() -> str:
        return apart.stager.run("submit", workflow, code=3).stderr

    told = refusal()
    assert "the I/O node a is on another host" in told and f"file://{tmp_path}/data" in told and "relative to the workflow file" in told
    for site in apart.sites.values():
        site.outside(tmp_path / "data").mkdir(parents=True)
        site.outside(tmp_path / "data" / "in.txt").write_text("another file at the same path\n")
    assert "in.txt is another file there" in refusal()
    assert not apart.told(ev.RunSubmitted)

    seen = PROJECT / "workflows" / "quickstart" / "texts"
    workflow.write_text(UPPER.replace("in.txt: data:in.txt", "in.txt: seen:ferry.txt").replace("data:", f"seen: file:{seen}\n  data:", 1))
    apart.stager.run("submit", workflow)
    assert len(list((tmp_path / "data" / "out").iterdir())) == 6
    fetches = [command for command in given_in(batches_of(apart.state), cmd.Fetch) if command.path == "ferry.txt"]
    assert [command.node for command in fetches] in (["a"], ["b"])
