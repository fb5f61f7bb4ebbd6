"""`stager cost-estimate` as users and programs meet it: the table, the JSON, the picture, and what it says when something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stager.adapters.plots import plot_choices
from stager.cli.cost_estimate import command
from stager.model.errors import InvalidInput, Refused
from stager.model.units import format_money
from stager.planning.cost import Bill, Usage
from stager.service.choices import Choice, Simulated

WORKFLOW = """
stager: 1
name: two
files:
  in.dat: here:data/in.dat
jobs:
  a: {run: cat in.dat > mid.dat, inputs: [in.dat], outputs: {mid.dat: {size: 5 MB}}}
  b: {run: cat mid.dat in.dat > end.dat, inputs: [mid.dat, in.dat], outputs: {end.dat: {to: here:out/end.dat, size: 100 KB}}}
io_hints:
  a: {compute: 20s}
"""
TOPOLOGY = """
stager-topology: 1
compute: {nodes: 2, cores: 2, instance: m3.xlarge}
io: {nodes: 1, capacity: 1 GB, instance: m3.xlarge}
links: {"*": {fetch: 1 MB/s, upload: 1 MB/s, latency: 0s}}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.dat").write_bytes(b"x" * 10_000_000)
    (tmp_path / "workflow.yml").write_text(WORKFLOW)
    (tmp_path / "topology.yml").write_text(TOPOLOGY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STAGER_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def called(*words: str) -> Result:
    return CliRunner().invoke(command, ["workflow.yml", *words])


def test_the_table_has_every_column_and_its_marks(place: Path) -> None:
    shown = called("--topology", "topology.yml", "--io-nodes", "1,0,1", "--draws", "2")
    assert shown.exit_code == 0, shown.output
    head = next(line for line in shown.output.splitlines() if line.startswith("I/O nodes"))
    columns = ("makespan", "compute h", "I/O h", "requests", "egress", "storage", "total", "hit rate", "WAN")
    assert all(column in head for column in columns)
    assert "2 m3.xlarge of 2 cores at 0.405 an hour" in shown.output
    assert [line.split()[0] for line in shown.output.split("WAN", 1)[1].splitlines()[1:3]] == ["direct", "1"]
    assert "cheapest" in shown.output
    assert "fastest" in shown.output
    assert "where the money goes, direct: compute nodes 100%" in shown.output
    assert "how sure: lowest to highest of 2 more draws" in shown.output
    assert "assumed" not in shown.output
    assert not (place / "state").exists() or not list((place / "state").glob("node*")), "nothing is started"


@pytest.mark.slow
def test_json_says_the_same_to_programs_whatever_the_hash_seed(place: Path) -> None:
    words = ["-m", "stager.cli", "cost-estimate", "workflow.yml", "--topology", "topology.yml", "--io-nodes", "0,1", "--json"]
    root = str(Path(__file__).parents[2])
    outputs = []
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}
        outputs.append(subprocess.run([sys.executable, *words], env=environ, capture_output=True, text=True, check=True).stdout)
    assert outputs[0] == outputs[1]
    told = json.loads(outputs[0])
    direct, one = told["choices"]
    assert (told["draws"], told["prices"]["currency"], told["assumed"]) == (20, "USD", False)
    assert (direct["io_nodes"], one["io_nodes"]) == (0, 1)
    assert one["fetched_bytes"] == 10_000_000
    assert direct["fetched_bytes"] > 20_000_000
    assert sum(one["money"].values()) == pytest.approx(one["total"])
    assert one["total_range"][0] <= one["total"] <= one["total_range"][1]
    assert one["compute_node_hours"] == pytest.approx(2 * one["makespan_s"] / 3600)


def test_without_a_topology_it_says_what_it_assumes(place: Path) -> None:
    shown = called("--draws", "0")
    assert shown.exit_code == 0, shown.output
    assert "(assumed; say it with --topology)" in shown.output
    assert "how sure: nothing was drawn; --draws 10" in shown.output


def test_without_a_topology_the_i_o_node_costs_what_it_costs_a_run_from_here(place: Path) -> None:
    """`stager report` bills it so: it runs on the compute node. The second would need a machine of its own."""
    said = json.loads(called("--draws", "0", "--io-nodes", "1,2", "--json").stdout)
    one, two = said["choices"]
    assert one["io_node_hours"] == 0.0 and one["money"]["io_nodes"] == 0.0
    assert two["io_node_hours"] == pytest.approx(two["makespan_s"] / 3600, rel=1e-3) and two["money"]["io_nodes"] > 0.0


@pytest.mark.parametrize("counts", ["one", "1,,2", "-1", "99999999", "²"])
def test_counts_that_are_none_are_refused_by_name(place: Path, counts: str) -> None:
    shown = called(f"--io-nodes={counts}")
    assert shown.exit_code == 2
    assert "is not a list of numbers of I/O nodes" in shown.output


def test_prices_of_ones_own_are_used_and_an_unknown_instance_is_named(place: Path) -> None:
    text = "stager-prices: 1\ndate: 2026-11-22\ninstances: [{name: m3.xlarge, provider: lab, region: cellar, per_hour: 7, source: meter}]\n"
    (place / "prices.yml").write_text(text)
    shown = called("--topology", "topology.yml", "--prices", "prices.yml", "--draws", "0")
    assert "at 7 an hour" in shown.output
    assert "note: no price of egress in cellar: left out" in shown.output
    (place / "prices.yml").write_text(text.replace("m3.xlarge", "m4.xlarge"))
    problem = called("--topology", "topology.yml", "--prices", "prices.yml").exception
    assert isinstance(problem, InvalidInput)
    assert "prices.yml has no price of 'm3.xlarge'; it has m4.xlarge" in problem.message


def test_a_link_that_nobody_described_and_one_of_no_origin_are_noted(place: Path) -> None:
    (place / "topology.yml").write_text(TOPOLOGY.replace('"*"', "hear"))
    shown = called("--topology", "topology.yml", "--draws", "0")
    assert "note: the topology says nothing of the link to here: 50 MB/s both ways and 50 ms are assumed" in shown.output
    assert "note: the topology has a link to hear, which is no origin of this workflow (it has here)" in shown.output
    said = json.loads(called("--topology", "topology.yml", "--draws", "0", "--json").stdout)
    assert [note.partition(":")[0] for note in said["notes"]] == ["the topology says nothing of the link to here", *said["notes"][1:]]
    assert len(said["notes"]) == 2
    for text in (TOPOLOGY, TOPOLOGY.replace('"*"', "here")):
        (place / "topology.yml").write_text(text)
        assert "the topology" not in called("--topology", "topology.yml", "--draws", "0").output


def test_a_choice_that_cannot_be_done_has_every_figure_and_each_is_null(place: Path) -> None:
    said = json.loads(called("--topology", "topology.yml", "--io-nodes", "1,50", "--draws", "0", "--json").stdout)
    done, refused = said["choices"]
    assert (done["outcome"], refused["outcome"]) == ("succeeded", "refused")
    assert done.keys() == refused.keys()
    assert {name for name, value in refused.items() if value is not None} == {"io_nodes", "outcome", "message", "notes"}
    assert done["makespan_s"] > 0 and done["makespan_s_range"] is None, "nothing was drawn, so no range was seen"


def test_nothing_that_can_be_done_is_an_error(place: Path) -> None:
    (place / "topology.yml").write_text(TOPOLOGY.replace("1 GB", "1 MB"))
    shown = called("--topology", "topology.yml", "--io-nodes", "1", "--plot", "x.svg")
    assert not (place / "x.svg").exists(), "there is nothing to draw"
    assert isinstance(shown.exception, Refused)
    assert "none of the choices can be done" in shown.exception.message
    assert "refused" in shown.output


def test_without_matplotlib_it_says_what_to_install(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    problem = refused_before_it_began(monkeypatch, "x.svg")
    assert "pip install 'stager[plot]'" in problem
    assert not (place / "x.svg").exists()


@pytest.mark.parametrize(
    ("path", "said"), [("x.bmp", "ends in none of .svg, .png, .pdf"), ("nowhere/x.svg", "there is no directory nowhere")]
)
def test_a_picture_that_cannot_be_drawn_is_told_before_anything_is_estimated(
    place: Path, monkeypatch: pytest.MonkeyPatch, path: str, said: str
) -> None:
    assert said in refused_before_it_began(monkeypatch, path)


def refused_before_it_began(monkeypatch: pytest.MonkeyPatch, plot: str) -> str:
    monkeypatch.setattr("stager.cli.cost_estimate.ask", lambda *_: pytest.fail("it took minutes, and then could not draw"))
    shown = called("--draws", "0", "--plot", plot)
    assert isinstance(shown.exception, InvalidInput)
    assert shown.output == ""
    return shown.exception.message


def choices() -> list[Choice]:
    found = []
    for count, (wall, total) in enumerate([(400.0, 1.0), (200.0, 1.5), (100.0, 3.0)]):
        bill = Bill(total / 2, total / 2 if count else 0, 0.0, total / 4, 0.0)
        life = Simulated(Usage(wall, 4, count), bill, 0.5, 0.5, 10, 10, 0)
        spread = (life.bill.total * 0.9, life.bill.total * 1.3)
        found.append(Choice(count, "succeeded", "", (), life, (wall * 0.8, wall * 1.2), spread, (20, 20), front=count != 1))
    return [*found, Choice(8, "refused", "too small")]


def test_a_picture_is_the_same_bytes_each_time_and_says_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: the extra `plot`")
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    for path in (one, two):
        plot_choices(choices(), "USD", "made up", path)
    assert one.read_bytes() == two.read_bytes()
    text = one.read_text()
    assert all(
        f"<!-- {word} -->" in text for word in ("made up", "direct", "2", "2 I/O nodes", "Pareto front", "egress", "makespan (minutes)")
    )
    with pytest.raises(InvalidInput, match="ends in none of .svg, .png, .pdf"):
        plot_choices(choices(), "USD", "made up", tmp_path / "one.doc")


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0.00"), (12.345, "12.35"), (0.012345, "0.012"), (0.00001234, "0.000012"), (1.7e-9, "0.000000002")]
)
def test_small_money_is_still_seen(amount: float, text: str) -> None:
    assert format_money(amount) == text
