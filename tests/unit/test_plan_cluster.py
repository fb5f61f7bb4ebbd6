"""`stager plan --topology`: what would be chosen on several I/O nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stager.cli.main import stager
from stager.model.errors import InvalidInput
from tests.unit.test_simulate import record

CLUSTER = """stager-topology: 1
compute: {nodes: 2, cores: 2, overhead: 0 s}
io: {nodes: 2, capacity: 1 GB, network: 1 MB/s, failures_per_hour: 100}
"""


def plan(tmp_path: Path, *options: str) -> Result:
    (tmp_path / "cluster.yml").write_text(CLUSTER)
    asked = ["plan", str(record(tmp_path)), "--state-dir", str(tmp_path / "state"), "--topology", str(tmp_path / "cluster.yml")]
    return CliRunner().invoke(stager, [*asked, *options], standalone_mode=False)


def test_it_plans_for_the_nodes_of_the_file_and_explains_their_choice(tmp_path: Path) -> None:
    made = json.loads(plan(tmp_path, "--json").output)
    assert made["capacity_bytes"] == 2 * 10**9
    assert {job["node"] for job in made["jobs"]} <= {"node0", "node1"}
    read = [file for file in made["files"] if file["remake_s"] > 0]
    assert read and {file["must_copy"] for file in read} == {True}
    told = plan(tmp_path, "--explain", read[0]["lfn"]).output
    assert "\nreplicas: " in told
    assert "\ndurability: 2 copies: it cannot be left to be made again, " in told


def test_it_is_simulated_on_those_nodes(tmp_path: Path) -> None:
    assert "simulated: succeeded" in plan(tmp_path, "--simulate").output
    for_programs = plan(tmp_path, "--simulate", "--json")
    assert "simulated: succeeded" in for_programs.stderr and json.loads(for_programs.stdout)["jobs"]


@pytest.mark.parametrize("option", [("--output", "plan.json"), ("--capacity", "1 GB"), ("--cores", "2")])
def test_what_contradicts_the_file_is_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    result = plan(tmp_path, *option)
    assert result.exception is not None
    assert "--topology says what there is" in str(getattr(result.exception, "message", ""))
    assert not (tmp_path / "plan.json").exists()


def test_what_is_wrong_with_the_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text(CLUSTER.replace("100", "often"))
    asked = ["plan", str(record(tmp_path)), "--state-dir", str(tmp_path / "state"), "--topology", str(tmp_path / "bad.yml")]
    result = CliRunner().invoke(stager, asked, standalone_mode=False)
    said = str(result.exception) + result.output
    assert isinstance(result.exception, InvalidInput) or result.return_value
    assert "'often' is not a number of failures per hour" in said
