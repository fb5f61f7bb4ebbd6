"""`stager report` on a run that really happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.stager import Stager

WORKFLOW = """stager: 1
name: w
origins:
  o: file:data
files:
  in.txt: o:in.txt
jobs:
  a: {run: cat in.txt in.txt > mid.txt, inputs: [in.txt], outputs: [mid.txt]}
  b: {run: cat mid.txt in.txt > end.txt, inputs: [mid.txt, in.txt], outputs: {end.txt: 'o:end.txt'}}
"""


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    made = Stager(short_dir / "s", short_dir / "home")
    yield made
    made.end()


def test_a_run_is_set_beside_its_estimate(stager: Stager, short_dir: Path) -> None:
    (short_dir / "data").mkdir()
    (short_dir / "data" / "in.txt").write_bytes(b"x" * 100_000)
    (short_dir / "w.yml").write_text(WORKFLOW)
    stager.run("submit", short_dir / "w.yml")
    told = stager.json("report", "w-1")
    lines = {line["name"]: line for line in told["lines"]}
    assert (lines["fetched"]["estimated"], lines["fetched"]["actual"], lines["fetched"]["off"]) == (100_000, 100_000, 0)
    assert lines["uploaded"]["actual"] == 300_000
    assert lines["makespan"]["actual"] > 0
    assert lines["hit rate"]["actual"] == pytest.approx(told["best_hit_rate"])
    spent = told["time_spent"]
    assert spent["compared"] and {share["cause"] for share in spent["shares"]} >= {"computing", "uploads"}
    assert sum(share["actual_s"] for share in spent["shares"]) == pytest.approx(lines["makespan"]["actual"])
    assert sum(share["estimated_s"] or 0 for share in spent["shares"]) == pytest.approx(lines["makespan"]["estimated"])
    page = short_dir / "r.html"
    shown = stager.run("report", "--html", page).stdout
    assert "estimated" in shown
    assert "cost in total" in shown
    assert "where the time went" in shown
    text = page.read_text()
    assert "run w-1: succeeded" in text
    assert "<h2>Where the time went</h2>" in text
    assert "in.txt: 100 kB" in text
    missing = stager.run("report", "nosuch", code=2)
    assert "names no run" in missing.stderr
