"""`--no-direct` means the same to every command that plans: no input is read directly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stager.cli import cost_estimate, simulate
from stager.cli.main import stager
from stager.model.workflow import IoHint
from tests.unit.test_plan_direct_access import GB, survey

# One job that looks at a thousandth of a file.
LOOK = replace(survey(), hints={"look": IoHint("look", read_fraction=0.001)})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (cost_estimate, simulate):
        monkeypatch.setattr(module, "read_only", lambda *_: LOOK)
    monkeypatch.setenv("STAGER_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "w.yml").touch()
    return tmp_path / "w.yml"


def asked(*words: str) -> Any:
    result = CliRunner().invoke(stager, [*words, "--json"], standalone_mode=False)
    assert result.exception is None, result.output
    return json.loads(result.output)


def test_a_price_is_of_a_run_that_keeps_its_inputs(place: Path) -> None:
    cluster = place.with_name("cluster.yml")
    cluster.write_text("stager-topology: 1\ncompute: {nodes: 1, cores: 2}\nio: {nodes: 1, capacity: 2 GB, on_compute_nodes: true}\n")
    words = ("cost-estimate", str(place), "--topology", str(cluster), "--io-nodes", "1", "--draws", "0")
    assert asked(*words)["choices"][0]["wan_bytes"] < GB / 5
    assert asked(*words, "--no-direct")["choices"][0]["wan_bytes"] > GB


def test_so_is_each_row_of_a_simulation_whatever_its_policy_says(place: Path) -> None:
    words = ("simulate", str(place), "--capacity", "2 GB")
    assert asked(*words)["rows"][0]["fetched_bytes"] == 0
    rows = asked(*words, "--no-direct", "--policy", "default", "--policy", "direct_access=on")["rows"]
    assert [row["fetched_bytes"] for row in rows] == [GB, GB]
