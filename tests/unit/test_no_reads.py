"""Where jobs read nothing there is nothing to hit, and nobody is told that all of it was hit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stager.cli.main import stager

WORKFLOW = """
stager: 1
name: makes
origins: {here: {url: "file:."}}
jobs:
  a: {run: date > end.dat, outputs: {end.dat: {to: here:out/end.dat, size: 100 KB}}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STAGER_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "w.yml").write_text(WORKFLOW)
    return tmp_path / "w.yml"


def told(*words: str) -> str:
    result = CliRunner().invoke(stager, list(words), standalone_mode=False)
    assert result.exception is None, result.output
    return result.output


def test_a_price_has_no_hit_rate(file: Path) -> None:
    words = ("cost-estimate", str(file), "--io-nodes", "0,1", "--draws", "0")
    choices = json.loads(told(*words, "--json"))["choices"]
    assert [(choice["outcome"], choice["hit_rate"], choice["best_hit_rate"]) for choice in choices] == [("succeeded", None, None)] * 2
    row = next(cells for line in told(*words).splitlines() if (cells := line.split())[:1] == ["1"])
    assert "—" in row and "100%" not in row


def test_a_simulation_has_none(file: Path) -> None:
    row = json.loads(told("simulate", str(file), "--json"))["rows"][0]
    assert [row[name] for name in ("outcome", "hit_rate", "min_hit_rate", "lru_hit_rate", "best_hit_rate")] == ["succeeded", *[None] * 4]
    assert "hit rate     —, jobs read nothing" in told("simulate", str(file))
    assert "—" in next(line for line in told("simulate", str(file), "--cores", "1", "--cores", "2").splitlines() if line.startswith(" "))


def test_a_plan_that_is_simulated_says_nothing_of_it(file: Path) -> None:
    assert "staged   0 B to jobs\n" in told("plan", str(file), "--simulate")
