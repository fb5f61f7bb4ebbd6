"""Pictures of plans: what they sum up, that they are quick, and that no name breaks out of them."""

from __future__ import annotations

import shutil
import subprocess
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace as replaced

from stager.cli.main import stager
from stager.cli.picture_layout import Size, layout, turned_arrows
from stager.cli.picture_texts import PICTURES, dot_quoted, dot_text, mermaid_text, seen, svg_text
from stager.cli.plan_picture import Kind, PlanPicture, Way, picture_of
from stager.cli.run_page import page_of
from stager.model.files import File
from stager.model.scatter import Scatter, ScatterForm
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from tests.model.test_estimate import CHAIN, topology
from tests.model.test_estimate import workflow as chain_workflow
from tests.model.test_report import simulated
from tests.unit.test_plan import external, job, made, workflow_of

HOSTILE = (
    '"><script>alert(1)</script>',
    "a\\",
    'b"];evil [label="x',
    "c\nd\te\x00\x1b[31m",
    "]] --> n9[[x",
    "f#quot;&lt;&amp;g",
    "\u202egnp.exe",
    "`h` **i** |j|",
    "%%{init: {}}%%",
)


def plan_picture(workflow: Workflow, *, by_type: bool | None = None) -> PlanPicture:
    return picture_of(workflow, make_plan(workflow, topology(10**12, cores=4)), by_type=by_type)


def fan(width: int) -> Workflow:
    """Two raw files, a job for each of `width` pieces that reads both, and one that joins the pieces."""
    files = [external("raw", 1000), external("flat", 10), made("end", 50, final=True)]
    files += [made(f"p{n}", 100) for n in range(width)]
    jobs = [job(f"cut[{n}]", "raw flat", f"p{n}", job_type="cut") for n in range(width)]
    return workflow_of(files, [*jobs, job("join", " ".join(f"p{n}" for n in range(width)), "end", job_type="join")])


def arrows(picture: PlanPicture) -> set[tuple[str, str, str, int, int]]:
    return {
        (picture.boxes[each.start].name, picture.boxes[each.end].name, each.way.value, each.amount.files, each.amount.size_bytes)
        for each in picture.arrows
    }


def test_types_are_boxes_and_each_file_counts_once_for_an_arrow() -> None:
    picture = plan_picture(fan(50))
    assert picture.by_type
    boxes = {(box.kind, box.name): box for box in picture.boxes}
    cut, join = boxes[Kind.JOBS, "cut"], boxes[Kind.JOBS, "join"]
    assert (cut.jobs, cut.reads.files, cut.reads.size_bytes, cut.makes.files, cut.makes.size_bytes) == (50, 2, 1010, 50, 5000)
    assert (join.jobs, join.reads.files, join.makes.size_bytes) == (1, 50, 50)
    assert arrows(picture) == {
        ("home", "cut", "files", 2, 1010),
        ("cut", "join", "files", 50, 5000),
        ("join", "home", "files", 1, 50),
    }
    assert boxes[Kind.SOURCE, "home"].makes.files == 2
    assert boxes[Kind.DESTINATION, "home"].reads.files == 1


def test_few_jobs_are_boxes_themselves_unless_types_are_wanted() -> None:
    assert [box.name for box in plan_picture(fan(2)).types()] == ["cut[0]", "cut[1]", "join"]
    assert [box.name for box in plan_picture(fan(2), by_type=True).types()] == ["cut", "join"]
    assert len(list(plan_picture(fan(50), by_type=False).types())) == 51


def test_what_jobs_of_a_type_make_for_each_other_is_told_in_their_box_and_waits_are_arrows() -> None:
    files = [made("a", 10), made("b", 20)]
    jobs = [job("one", "", "a", job_type="step"), job("two", "a", "b", job_type="step"), job("last", after=("two",), job_type="end")]
    picture = plan_picture(workflow_of(files, jobs), by_type=True)
    step = next(picture.types())
    assert (step.within.files, step.within.size_bytes) == (1, 10)
    assert "10 B among them" in step.lines()[1]
    assert [(each.way, each.label()) for each in picture.arrows] == [(Way.WAITS, "waits")]


def test_jobs_that_are_only_assumed_say_so_and_are_dashed() -> None:
    workflow = fan(3)
    scatter = Scatter("cut", "list", ("x",), "list", ScatterForm.LINES, ("cut[0]", "cut[1]"))
    half, whole = (replace(workflow, scatters=(replaced(scatter, follow=follow),)) for follow in ((), ("cut[2]",)))
    box = next(plan_picture(half, by_type=True).types())
    assert (box.assumed, box.is_assumed, box.lines()[0].endswith(", 2 assumed")) == (2, False, True)
    picture = plan_picture(whole, by_type=True)
    box = next(picture.types())
    assert box.is_assumed and box.lines()[0].endswith(" s, assumed") and "of computing; assumed: how many there are is not" in box.details()
    assert svg_text(picture).count('class="box jobs assumed"') == 1 == svg_text(picture).count('dasharray="5 3"')
    assert 'style="rounded,filled,dashed"' in dot_text(picture) and "class n0 assumed" in mermaid_text(picture)
    assert "assumed" not in svg_text(plan_picture(workflow)) + dot_text(plan_picture(workflow)) + mermaid_text(plan_picture(workflow))


def test_more_types_than_can_be_looked_at_stand_together() -> None:
    jobs = [job(f"j{n}", job_type=f"fit_{n}") for n in range(100)]
    assert [(box.name, box.jobs) for box in plan_picture(workflow_of([], jobs)).types()] == [("fit_#", 100)]
    jobs = [job(f"j{n}", job_type="x" * (n + 1)) for n in range(100)]
    boxes = list(plan_picture(workflow_of([], jobs)).types())
    assert len(boxes) == 48
    assert ("53 other types", 53) in [(box.name, box.jobs) for box in boxes]


def test_what_earlier_runs_made_is_a_box_where_a_plan_lacks_its_jobs() -> None:
    workflow = fan(3)
    plan = make_plan(workflow, topology(10**12, cores=4))
    left = replace(plan, jobs=tuple(entry for entry in plan.jobs if entry.job == "join"))
    picture = picture_of(workflow, left)
    assert arrows(picture) == {("earlier runs", "join", "files", 3, 300), ("join", "home", "files", 1, 50)}
    ET.fromstring(svg_text(picture))


def hostile_workflow() -> Workflow:
    files: list[File] = [external(f"in{n}", 5) for n in range(len(HOSTILE))] + [made(f"out{n}", 5, final=True) for n in range(len(HOSTILE))]
    jobs = [job(name, f"in{n}", f"out{n}", job_type=name) for n, name in enumerate(HOSTILE)]
    return workflow_of(files, jobs)


def test_no_name_breaks_out_of_the_svg() -> None:
    text = svg_text(plan_picture(hostile_workflow()))
    text.encode()
    root = ET.fromstring(text)
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names == {"svg", "defs", "marker", "path", "rect", "g", "title", "text"}
    shown = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert HOSTILE[0] in shown
    assert "c\ufffdd\ufffde\ufffd\ufffd[31m" in shown
    assert not any("\u202e" in each for each in shown)
    assert not any(word in text for word in ("<script", "href", "url(http", "<style"))


def test_no_name_breaks_out_of_a_report() -> None:
    w = chain_workflow(CHAIN.replace("job a", "job a<script>"))
    _, summary, past = simulated(w, topology(10**6))
    page = page_of(summary, past, [], "USD", drawn=svg_text(plan_picture(w), alone=False))
    assert "<h2>Plan</h2>" in page
    assert not any(word in page for word in ("<script", "http://", "https://", "src=", "@import"))
    assert page.count("<svg") == page.count('<div class="wide"><svg') == page.count("aria-label=") == 4


def test_dot_and_mermaid_hold_a_line_for_each_box_and_arrow_whatever_the_names() -> None:
    picture = plan_picture(hostile_workflow())
    dot = dot_text(picture).splitlines()
    assert len(dot) == 4 + len(picture.boxes) + len(picture.arrows)
    assert dot_quoted('a"\\', "b&lt;") == '"a\\"\\\\\\nb&amp;lt;"'
    mermaid = mermaid_text(picture).splitlines()
    drawn = [line for line in mermaid if line.startswith("  n")]
    assert len(drawn) == len(picture.boxes) + len(picture.arrows)
    for line in drawn:
        assert line.count('"') == 2
        assert not set(line.split('"')[1].replace("<br/>", "")) & set("<>[]{}|`*%\\&"), line
    assert seen("\ud800\x00") == "\ufffd\ufffd"


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not here")
def test_graphviz_shows_the_names_as_they_are() -> None:
    drawn = subprocess.run(["dot", "-Tsvg"], input=dot_text(plan_picture(hostile_workflow())).encode(), capture_output=True, check=True)
    shown = [element.text for element in ET.fromstring(drawn.stdout).iter() if element.tag.endswith("text")]
    for name in HOSTILE[:3]:
        assert name in shown


def test_the_same_plan_has_the_same_picture() -> None:
    for write in PICTURES.values():
        assert write(plan_picture(fan(9))) == write(plan_picture(fan(9)))


def test_boxes_do_not_overlap_and_arrows_go_on() -> None:
    picture = plan_picture(fan(7), by_type=False)
    sizes = [Size(100.0, 40.0)] * len(picture.boxes)
    ends = [(arrow.start, arrow.end) for arrow in picture.arrows]
    found = layout(sizes, ends, [Size(60.0, 16.0)] * len(ends), 20.0)
    for one, (x, y) in enumerate(found.middles):
        assert 50 <= x <= found.breadth - 50 + 1e-6 and 20 <= y <= found.depth - 20 + 1e-6
        for other, (x2, y2) in enumerate(found.middles):
            assert one == other or abs(x - x2) >= 100 or abs(y - y2) >= 40
    for (start, end), route in zip(ends, found.routes, strict=True):
        assert route[0][1] == pytest.approx(found.middles[start][1] + 20)
        assert route[-1][1] == pytest.approx(found.middles[end][1] - 20)
        assert [y for _, y in route] == sorted(y for _, y in route)


def test_types_that_come_after_each_other_are_drawn_all_the_same() -> None:
    assert turned_arrows(3, [(0, 1), (1, 2), (2, 0)]) == [False, False, True]
    files = [made(f"f{n}", 10) for n in range(4)]
    jobs = [job(f"j{n}", f"f{n - 1}" if n else "", f"f{n}", job_type="ab"[n % 2]) for n in range(4)]
    picture = plan_picture(workflow_of(files, jobs), by_type=True)
    assert {(name, other) for name, other, *_ in arrows(picture)} == {("a", "b"), ("b", "a")}
    ET.fromstring(svg_text(picture))


def test_ten_thousand_jobs_are_drawn_within_a_second() -> None:
    workflow = fan(10_000)
    plan = make_plan(workflow, topology(10**12, cores=4))
    began = time.process_time()
    svg_text(picture_of(workflow, plan))
    assert time.process_time() - began < 1.0


WORKFLOW = """stager: 1
name: w
origins: {o: {url: 'file:data'}}
files: {in.txt: 'o:in.txt'}
jobs:
  a: {foreach: {n: ['1', '2']}, run: 'cat in.txt > {n}.mid', inputs: [in.txt], outputs: ['{n}.mid']}
  b: {run: 'cat 1.mid 2.mid > end.txt', inputs: [1.mid, 2.mid], outputs: {end.txt: 'o:end.txt'}}
"""


def planned(tmp_path: Path, *options: str) -> str:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "in.txt").write_text("x" * 1000)
    (tmp_path / "w.yml").write_text(WORKFLOW)
    asked = ["plan", str(tmp_path / "w.yml"), "--state-dir", str(tmp_path / "state"), *options]
    return CliRunner().invoke(stager, asked, standalone_mode=False, catch_exceptions=False).output


def test_plan_prints_job_types_and_single_jobs_on_request(tmp_path: Path) -> None:
    by_type, by_job = planned(tmp_path), planned(tmp_path, "--by-job")
    rows = [line.split() for line in by_type.splitlines()]
    assert ["a", "2"] in [row[:2] for row in rows]
    assert ["b", "1"] in [row[:2] for row in rows]
    assert "inputs+outputs" not in by_type
    assert "inputs+outputs" in by_job
    assert "a[" in by_job


def test_plan_prints_a_picture_or_writes_it(tmp_path: Path) -> None:
    assert planned(tmp_path, "--dot").startswith("digraph plan {")
    assert planned(tmp_path, "--mermaid").startswith("flowchart TD\n")
    ET.fromstring(planned(tmp_path, "--svg"))
    beside = planned(tmp_path, "--svg", "--by-type", "--output", str(tmp_path / "plan.svg"))
    assert beside.startswith("workflow 'w': 3 jobs")
    assert "2 jobs, " in (tmp_path / "plan.svg").read_text(encoding="utf-8")
