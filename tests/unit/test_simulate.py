"""`stager simulate` and what it asks: one row for each combination, the same in any number of processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stager.cli.exits import Exit
from stager.cli.main import stager
from stager.model.topology import Node, OriginLink, Topology
from stager.model.units import parse_rate_bytes_per_s
from stager.model.workflow import Workflow
from stager.planning.bounds import Limit
from stager.planning.policy import Policy
from stager.scheduler.commands import RunOutcome
from stager.whatif import Question, Subject, ask
from tests.scenarios.stage import read
from tests.unit.test_plan import HOME

CHAIN = """
workflow w
  external in 1000
  made mid 500
  made end 100 final
  job a in -> mid compute=3
  job b mid in -> end compute=4
"""


def subject() -> Subject:
    files, jobs = read(CHAIN).workflows["w"]
    return Subject(Workflow("w", files, jobs, {"home": HOME}), {})


def question(capacity: int = 10**6, wan: float = 100.0, failures: int | None = None) -> Question:
    topology = Topology((Node("node0", capacity, 1, disk_bytes_per_s=1e12),), (OriginLink("home", wan, wan / 2, 0.0),))
    return Question(topology, Policy(), failures)


def record(place: Path) -> Path:
    """A WfCommons record of three tasks: two in a row, one beside them; 3 MB come in, 1 MB goes out."""
    sizes = {"in": 3_000_000, "mid": 2_000_000, "out": 1_000_000}
    tasks = [("first", ["in"], ["mid"], 4.0, []), ("second", ["mid"], ["out"], 6.0, ["first"]), ("beside", ["in"], [], 5.0, [])]
    specification = {
        "tasks": [
            {"name": name, "id": name, "parents": parents, "children": [], "inputFiles": reads, "outputFiles": makes}
            for name, reads, makes, _, parents in tasks
        ],
        "files": [{"id": lfn, "sizeInBytes": size} for lfn, size in sizes.items()],
    }
    specification["tasks"][0]["children"] = ["second"]
    execution = {
        "makespanInSeconds": 15,
        "executedAt": "2025-01-01T00:00:00Z",
        "tasks": [{"id": name, "runtimeInSeconds": time_s} for name, _, _, time_s, _ in tasks],
    }
    path = place / "record.json"
    path.write_text(
        json.dumps({"name": "three", "schemaVersion": "1.5", "workflow": {"specification": specification, "execution": execution}})
    )
    return path


def simulate(path: Path, *options: str) -> Result:
    asked = ["simulate", str(path), "--state-dir", str(path.parent / "state"), "--latency", "0", "--wan", "1 MB/s", "--disk", "1 TB/s"]
    return CliRunner().invoke(stager, [*asked, *options], standalone_mode=False)


def test_one_question_has_one_answer_in_full(tmp_path: Path) -> None:
    """3 s to fetch, 4 and 6 s to compute, 1 s to upload; the third fits beside them on a second core."""
    result = simulate(record(tmp_path), "--cores", "2", "--capacity", "1 GB")
    assert result.return_value is Exit.OK, result.output
    for line in ("makespan     14 s", "lower bound  14 s, of the critical path; the run is 0% above it", "bottleneck   critical path"):
        assert line in result.output
    assert "3 MB fetched, 0 B of it again; 1 MB uploaded, 0 B of it spilled" in result.output
    assert "hit rate     62.5% of 8 MB that jobs read; MIN 62.5%, LRU 62.5%" in result.output


def test_options_given_again_make_a_row_for_each_combination(tmp_path: Path) -> None:
    path = record(tmp_path)
    asked = ("--cores", "1", "--cores", "2", "--capacity", "1 GB", "--capacity", "1 MB", "--policy", "default", "--policy", "lookahead=off")
    asked += ("--overhead", "0 s")
    rows = json.loads(simulate(path, *asked, "--json").output)["rows"]
    assert [(row["cores"], row["capacity_bytes"], row["policy"]) for row in rows] == [
        (cores, capacity, policy) for cores in (1, 2) for capacity in (10**9, 10**6) for policy in ("default", "lookahead=off")
    ]
    assert [row["outcome"] for row in rows] == ["succeeded", "succeeded", "refused", "refused"] * 2
    assert rows[0]["makespan_s"] > rows[4]["makespan_s"] == pytest.approx(14.0, abs=0.01)
    assert rows[0]["bottleneck"] == "CPU"
    table = simulate(path, *asked)
    assert table.return_value is Exit.OK
    assert table.output.count("needs at least 5000000 bytes") == 4
    assert len([line for line in table.output.splitlines() if "default" in line and "14 s" in line]) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--policy", "lookahed=off"), "there is no 'lookahed'"),
        (("--policy", "lookahead=7"), "write on or off, as in lookahead=on"),
        (("--policy", "fetches_ahead_max=many"), "write a number 0 or more, as in fetches_ahead_max=64"),
        (("--policy", "fetches_ahead_max=-1"), "write a number 0 or more"),
        (("--policy", "admitted_waiting_max=0"), "write a number above 0, as in admitted_waiting_max=32"),
        (("--policy", "retry_delay_s=nan"), "write a number above 0"),
        (("--policy", "outage_s_max=inf"), "write a number 0 or more"),
        (("--capacity", "9" * 400), "is not a size"),
        (("--wan", "fast"), "'fast' is not a rate"),
        (("--wan", "0 MB/s"), "is not a rate"),
        (("--spill", "attic"), "'attic' is no origin of this workflow; it has recorded"),
    ],
)
def test_what_cannot_be_asked_is_told(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    result = simulate(record(tmp_path), *options)
    assert result.exception is not None
    assert said in (getattr(result.exception, "message", "") or str(result.exception))


def test_nodes_and_their_networks_are_asked_for(tmp_path: Path) -> None:
    """A network slower than the WAN is what 3 MB wait for. The final goes home while `beside` runs. On two nodes of one core the job that
    makes it would wait for a copy of its input: the second node stays idle.
    """
    path = record(tmp_path)
    asked = ("--cores", "1", "--capacity", "1 GB", "--network", "0.5 MB/s", "--nodes", "1", "--nodes", "2", "--overhead", "0 s")
    one, two = json.loads(simulate(path, *asked, "--json").output)["rows"]
    assert (one["nodes"], one["network_bytes_per_s"], two["nodes"]) == (1, 500_000.0, 2)
    assert one["makespan_s"] == pytest.approx(6 + 15, abs=0.01)
    assert two["bound_s"] == pytest.approx(6 + 10 + 2, abs=0.01)
    assert two["makespan_s"] == pytest.approx(one["makespan_s"], abs=0.01)


def test_what_an_attempt_takes_beside_its_program_is_asked_for(tmp_path: Path) -> None:
    """Three jobs on one core: each of them takes a second more."""
    asked = ("--cores", "1", "--capacity", "1 GB", "--overhead", "0 s", "--overhead", "1 s", "--json")
    none, one = json.loads(simulate(record(tmp_path), *asked).output)["rows"]
    assert (none["overhead_s"], one["overhead_s"]) == (0.0, 1.0)
    assert one["makespan_s"] - none["makespan_s"] == pytest.approx(3.0, abs=0.01)


def test_what_files_cost_is_asked_for(tmp_path: Path) -> None:
    """One is fetched, one goes home; three are made, two of them one after the other."""
    asked = ("--cores", "2", "--capacity", "1 GB", "--overhead", "0 s", "--json")
    (none,) = json.loads(simulate(record(tmp_path), *asked).output)["rows"]
    assert (none["fetch_file_s"], none["upload_file_s"], none["overhead_file_s"]) == (0.0, 0.0, 0.0)
    for option, more_s in (("--fetch-file", 2.0), ("--upload-file", 2.0), ("--overhead-file", 4.0)):
        (row,) = json.loads(simulate(record(tmp_path), *asked, option, "2 s").output)["rows"]
        assert row[option[2:].replace("-", "_") + "_s"] == 2.0
        assert row["makespan_s"] - none["makespan_s"] == pytest.approx(more_s, abs=0.01)
        assert row["bound_s"] - none["bound_s"] == pytest.approx(more_s, abs=0.01)


def test_a_run_that_does_not_fit_is_refused_as_submit_refuses_it(tmp_path: Path) -> None:
    result = simulate(record(tmp_path), "--capacity", "1 MB")
    assert result.return_value is Exit.REFUSED
    assert "refused: workflow 'three' needs at least 5000000 bytes" in result.output
    (row,) = json.loads(simulate(record(tmp_path), "--capacity", "1 MB", "--json").output)["rows"]
    judged = ("makespan_s", "bound_s", "above", "hit_rate", "min_hit_rate", "lru_hit_rate", "best_hit_rate")
    assert {row[name] for name in judged} == {None}, "what was not seen is null"


def test_answers_are_the_same_from_any_number_of_processes() -> None:
    questions = [question(wan=wan, failures=seed) for wan in (50.0, 100.0, 200.0) for seed in (None, 1, 2)]
    alone = list(ask(subject(), questions, 1))
    assert alone == list(ask(subject(), questions, 3))
    assert [answer.outcome for answer in alone] == [RunOutcome.SUCCEEDED] * 9
    assert alone[0].wall_s > alone[3].wall_s > alone[6].wall_s


def test_failures_follow_from_their_seed_and_cost_time() -> None:
    quiet = next(ask(subject(), [question()], 1))
    rough = list(ask(subject(), [question(failures=seed) for seed in range(30)], 1))
    assert rough == list(ask(subject(), [question(failures=seed) for seed in range(30)], 1))
    assert all(answer.wall_s >= quiet.wall_s - 1e-6 for answer in rough)
    assert len({answer.wall_s for answer in rough}) > 5
    assert max(answer.attempts for answer in rough) > quiet.attempts == 2


def test_an_answer_is_judged_by_its_bound() -> None:
    answer = next(ask(subject(), [question()], 1))
    assert answer.judged is not None
    assert answer.judged.bottleneck is Limit.PATH
    assert answer.judged.above == pytest.approx(1.0, abs=1e-3)
    assert next(ask(subject(), [question(capacity=100)], 1)).judged is None


@pytest.mark.parametrize(
    ("text", "rate"), [("50 MB/s", 50e6), ("1 Gbit/s", 125e6), ("8kbit", 1000.0), ("4096", 4096.0), ("1.5 GiB/s", 1.5 * 2**30)]
)
def test_rates_as_people_write_them(text: str, rate: float) -> None:
    assert parse_rate_bytes_per_s(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-1 MB/s", "0", "5 MB/min", "3 bits"])
def test_what_is_no_rate_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate_bytes_per_s(text)


def test_nodes_that_are_lost_cost_time_and_plans_reckon_with_them(tmp_path: Path) -> None:
    asked = ("--nodes", "2", "--failures", "3", "--failures-per-hour", "0", "--failures-per-hour", "600", "--json")
    rows = json.loads(simulate(record(tmp_path), *asked).output)["rows"]
    assert [(row["failures_per_hour"], row["outcome"]) for row in rows] == [(0.0, "succeeded"), (600.0, "succeeded")]
    assert rows[1]["makespan_s"] > rows[0]["makespan_s"] + 30.0
