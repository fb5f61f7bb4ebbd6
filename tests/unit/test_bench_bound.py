"""What benchmarks/bench_bound.py holds runs against, and how it judges."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import bench_bound as bench
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Workflow
from stager.planning.bounds import Bound, Limit, Term
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from tests.unit.test_plan import external, job, made, workflow_of

MB = 1_000_000
LINE = bench.LineRates(10 * MB, 5 * MB, 0.02)


def two_jobs() -> tuple[Workflow, Plan]:
    """Each reads 50 MB and makes 1 MB that goes home; the plan has another line, disk and time than what is measured."""
    files = [external("a", 50 * MB), external("b", 50 * MB), made("x", MB, final=True), made("y", MB, final=True)]
    workflow = workflow_of(files, [job("one", "a", "x", compute_s=7.0), job("two", "b", "y", compute_s=7.0)])
    links = tuple(OriginLink(name, 1e9, 1e9, 1.0) for name in workflow.origins)
    return workflow, make_plan(workflow, Topology((Node("n", 10**12, 2, disk_bytes_per_s=1e6, overhead_s=3.0),), links))


def test_the_bound_is_made_of_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow, plan = two_jobs()
    monkeypatch.setattr(bench, "ORIGIN", next(iter(workflow.origins)))
    bound = bench.bound_of(workflow, plan, {"one": 0.5, "two": 0.5}, LINE, 1e12, {"out/x": MB})
    # Both inputs by the line, then the second job, and its final goes up (and comes back, where nobody said that a shell may be asked).
    back_s = 0.1 if workflow.origins[bench.ORIGIN].is_read_back else 0.0
    assert bound.least_s == pytest.approx(0.02 + 10.0 + 0.5 + 0.02 + 0.2 + back_s, abs=0.01)
    assert bound.tightest.limit is Limit.WAN
    longer = bench.bound_of(workflow, plan, {"one": 40.0, "two": 0.5}, LINE, 1e12, {})
    assert longer.busy_s(Limit.PATH) == pytest.approx(0.02 + 5.0 + 40.0 + 0.02 + 0.2 + back_s, abs=0.01)
    assert bench.dominance(bound, Limit.WAN) == pytest.approx(bound.busy_s(Limit.WAN) / bound.busy_s(Limit.PATH))
    with pytest.raises(AssertionError, match="other sizes"):
        bench.bound_of(workflow, plan, {"one": 0.5, "two": 0.5}, LINE, 1e12, {"out/x": MB + 1})


def pair(least_s: float, makespan_s: float, other_s: float = 1.0) -> bench.Pair:
    bound = Bound((Term(Limit.WAN, "line", least_s, least_s), Term(Limit.CPU, "cores", other_s, other_s)))
    return bench.Pair(bound, makespan_s, (0.0, makespan_s, 0.0), makespan_s + 2)


def test_a_row_is_judged_by_the_middle_of_its_ratios_and_only_where_one_term_dominates() -> None:
    case = bench.fetch_case(1e7)
    good = [pair(10, 11.4), pair(10, 11.4), pair(10, 19)]
    text, met = bench.row_of(case, good)
    assert met and text.endswith(" met") and "1.140" in text and "1.140-1.900" in text
    text, met = bench.row_of(case, [pair(10, 11.6), pair(10, 11.6), pair(10, 10)], aside=2)
    assert not met and text.endswith(" MISSED, 2 put aside")
    text, met = bench.row_of(case, [pair(10, 11, other_s=5.1)])
    assert not met and "no term is 2 times the others" in text


def test_rounds_in_which_others_were_busy_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bed = bench.Bed(None, None, None, None, tmp_path)  # type: ignore[arg-type]
    rounds = iter([0.2, 0.01, 0.06, 0.0, 0.5, 0.3, 0.4])
    monkeypatch.setattr(bench.Bed, "pair", lambda self, case: replace(pair(10, 11), others=next(rounds)))
    pairs, aside = bed.quiet_pairs(bench.fetch_case(1e7), 2)
    assert ([entry.others for entry in pairs], aside) == ([0.0, 0.01], 2)
    pairs, aside = bed.quiet_pairs(bench.fetch_case(1e7), 1)
    assert ([entry.others for entry in pairs], aside) == ([0.3], 2), "of all that were not quiet the quietest"


def test_a_job_reads_takes_its_time_and_never_says_more_than_it_took(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f").write_bytes(b"x" * 10)
    for how, seconds, clock in (("cpu", 0.3, "cpu_s"), ("wait", 0.3, "wall_s")):
        with bench.watched() as watch:
            argv = [sys.executable, "-I", "-S", str(bench.BURN), how, str(seconds), "made:1234"]
            said = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert (tmp_path / "made").stat().st_size == 1234
        assert seconds <= json.loads(said)[clock] <= watch.took_s


def test_every_workflow_of_the_benchmark_is_read(tmp_path: Path) -> None:
    from stager.readers import native

    for case in bench.cases_of(1e7):
        path = tmp_path / f"{case.name}.yml"
        asks = str(case.shell_checksum).lower()
        path.write_text(f"stager: 1\norigins: {{lab: {{url: 'sftp://me@lab/d', shell_checksum: {asks}}}}}\n{case.text}")
        workflow = native.read(path, access=None)
        finals = {file.destination.location.path for file in workflow.files.values() if file.destination is not None}
        assert finals == set(case.finals), case.name
        assert {file.sources[0].location.path for file in workflow.files.values() if file.is_external} == set(case.inputs)
        assert workflow.origins["lab"].is_read_back is not case.shell_checksum
