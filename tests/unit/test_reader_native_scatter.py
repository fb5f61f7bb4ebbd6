"""`scatter:` in a native workflow: what stands for the members before they are known, and the jobs that are made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.scatter import MEMBERS_MAX, Rows, Scatter, ScatterForm, standing_jobs
from stager.model.workflow import Workflow
from stager.planning.digest import workflow_digest
from stager.planning.reuse import as_far_as
from stager.readers.lines import WorkflowInvalid
from stager.readers.native_scatter import assumed_rows, expanded
from stager.readers.native_scattering import may_meet
from stager.readers.paths import pattern_of
from stager.worker.member_lists import members_in, members_of_directory
from tests.unit.test_reader_native_params import read, told

SPLIT = """jobs:
  split:
    run: sh split.sh
    inputs: [here:split.sh]
    outputs: [shards.txt, chunks/]
  align:
    scatter: {over: shards.txt, as: shard, expect: 2}
    run: align {shard} {shard.stem} > {shard.stem}.bam
    inputs: [chunks/, {from: here:ref.fa, as: ref}]
    outputs: ["{shard.stem}.bam"]
  sort:
    foreach: {bam: "*.bam"}
    run: [sort, "{bam}"]
    inputs: ["{bam}"]
    outputs: ["sorted/{bam.stem}"]
    stdout: "{bam.stem}.log"
  merge:
    run: cat sorted/* > all.bam
    inputs: ["sorted/*"]
    outputs: {all.bam: here:out/all.bam}
  beside: {run: date > beside.txt, outputs: [beside.txt]}
finals: {"*.log": "here:logs/"}
"""
ROWS: Rows = (("c/x.fa",), ("c/y z.fa",), ("w.fa",))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("split.sh", "ref.fa", "raw_1.txt"):
        (tmp_path / name).write_text("x")
    return tmp_path


def test_until_members_are_known_as_many_jobs_as_expected_stand_for_them(place: Path) -> None:
    workflow = read(place, SPLIT)
    ids = ["split", "align[1]", "align[2]", "sort[1.bam]", "sort[2.bam]", "merge", "beside"]
    assert list(workflow.jobs) == ids
    jobs, follow = ("align[1]", "align[2]"), ("sort[2.bam]", "sort[1.bam]")
    assert workflow.scatters == (Scatter("align", "shards.txt", ("shard",), "split", ScatterForm.LINES, jobs, said=True, follow=follow),)
    assert standing_jobs(workflow.scatters) == {*jobs, *follow}, "merge is there whatever there is to merge"
    assert workflow.jobs["align[1]"].after == ("split",)
    assert "jobs.align: 2 jobs are assumed; how many there are is known when job 'split' has made 'shards.txt'" in workflow.notes


def test_of_the_members_jobs_are_made_and_of_all_that_follow_from_them(place: Path) -> None:
    before = read(place, SPLIT)
    workflow = expanded(before, {"align": ROWS})
    names = ["c/x.fa", "c/y z.fa", "w.fa"]
    assert [job for job in workflow.jobs if job.startswith("align")] == [f"align[{name}]" for name in names]
    assert [job for job in workflow.jobs if job.startswith("sort")] == ["sort[w.bam]", "sort[x.bam]", "sort[y z.bam]"]
    assert [entry.lfn for entry in workflow.jobs["merge"].inputs] == ["sorted/w", "sorted/x", "sorted/y z"]
    align = workflow.jobs["align[c/y z.fa]"]
    assert dict(align.env) == {"shard": "c/y z.fa", "shard__stem": "y z"} and align.shell == before.jobs["align[1]"].shell
    assert [(entry.lfn, entry.path) for entry in align.inputs] == [("chunks", "chunks"), ("ref.fa", "ref")]
    sort = workflow.jobs["sort[y z.bam]"]
    assert sort.argv == ("sort", "y z.bam") and sort.stdout == "y z.log"
    where = workflow.files["y z.log"].destination
    assert where is not None and where.location.path == "logs/y z.log"
    for stays in ("split", "beside"):
        assert workflow.jobs[stays] is before.jobs[stays]
    assert workflow.scatters == (replace_rows(before.scatters[0], ROWS),) and not any("assumed" in note for note in workflow.notes)
    assert workflow.files["ref.fa"] == before.files["ref.fa"]
    assert set(workflow.files) == {lfn for job in workflow.jobs.values() for lfn in job.lfns}


def test_jobs_that_are_made_of_members_have_the_packages_of_their_lock_file(place: Path) -> None:
    before = read(place, SPLIT.replace("    scatter: {over", "    venv: here:raw_1.txt\n    scatter: {over"))
    for workflow in (before, expanded(before, {"align": ROWS})):
        aligns = [job for job in workflow.jobs.values() if job.job_type == "align"]
        assert aligns and all(job.venv == "raw_1.txt" for job in aligns) and "raw_1.txt" in workflow.files


def replace_rows(scatter: Scatter, rows: Rows) -> Scatter:
    return Scatter(scatter.name, scatter.over, scatter.keys, scatter.maker, scatter.form, (), rows, scatter.said)


def test_it_is_the_workflow_that_would_have_been_written(place: Path) -> None:
    rows: Rows = (("1",), ("2",))
    before = read(place, SPLIT)
    workflow = expanded(before, {"align": rows})
    assert workflow.jobs == before.jobs and workflow_digest(workflow) == workflow_digest(before)
    assert expanded(workflow, {}) == workflow


def test_no_members_are_legal(place: Path) -> None:
    workflow = expanded(read(place, SPLIT), {"align": ()})
    assert list(workflow.jobs) == ["split", "merge", "beside"] and workflow.jobs["merge"].inputs == ()
    assert "ref.fa" not in workflow.files


TABLE = """params: {limit: 3}
origins: {out: "file:./out"}
files: {reads: "here:*.txt"}
jobs:
  list: {run: list > jobs.tsv, inputs: [reads], outputs: [jobs.tsv]}
  part:
    scatter: {over: jobs.tsv, as: [name, from_row], expect: [{name: raw, from_row: "0"}]}
    run: part {name}.txt {from_row:03d} $limit
    inputs: ["{name}*.txt"]
    outputs: {"{name}.{from_row:03d}": "out:parts/{name}/"}
    env: {ROW: "{from_row}"}
  after: {run: echo, after: part}
"""


def test_of_a_table_its_columns_are_taken_and_files_of_sets_may_be_named(place: Path) -> None:
    (place / "more_1.txt").write_text("x")
    workflow = expanded(read(place, TABLE), {"part": (("raw", "7"), ("more", "12"))})
    assert workflow.jobs["after"].after == ("part[raw,7]", "part[more,12]")
    part = workflow.jobs["part[more,12]"]
    assert [entry.lfn for entry in part.inputs] == ["more_1.txt"] and dict(part.env)["ROW"] == "12"
    assert {"limit": "3", "from_row__03d": "012"}.items() <= dict(part.env).items()
    where = workflow.files["more.012"].destination
    assert where is not None and where.location.path == "parts/more/more.012"


WRONG = [
    ("{over: nowhere.txt, as: x}", "jobs.b.scatter.over: 'nowhere.txt' is no output of a job; name an output as the job that makes it"),
    ("{over: raw_1.txt, as: x}", "jobs.b.scatter.over: 'raw_1.txt' is no output of a job; what is there before the run is gone over by"),
    ("{over: l.txt}", "jobs.b.scatter.as: name what a member is called: as: NAME"),
    ("{as: x}", "jobs.b.scatter.over: name the output that the members stand in"),
    ("{over: l.txt/, as: x}", "jobs.b.scatter.over: 'l.txt' is a file; write it without '/' at the end"),
    ("{over: d, as: x}", "jobs.b.scatter.over: 'd' is a directory; write it with '/' at the end"),
    ("{over: d/, as: [x, y]}", "jobs.b.scatter.as: what is in a directory has one value each"),
    ("{over: l.txt, as: x, expect: 0}", "jobs.b.scatter.expect: '0' is not a whole number of 1 or more"),
    ("{over: l.txt, as: x, expect: 100001}", "a job scatters over 100,000 members at most"),
    ("{over: l.txt, as: X}", "jobs.b.scatter.as: 'X' cannot be a foreach key"),
    ("{over: l.txt, as: x, every: 3}", "jobs.b.scatter.every: unknown key"),
    ("{over: opt.txt, as: x}", "'opt.txt' is optional, and a scatter needs it"),
    ("{over: c1.txt, as: x}", "'c1.txt' is made by 'c', whose own jobs are known only at run time; go over what they make, as in"),
    ("{over: l.txt, as: x}, foreach: {x: [1]}", "jobs.b.scatter.as: 'x' is a key of the foreach already"),
    ("{over: 'l{y}.txt', as: x}, foreach: {y: [1, 2]}", "jobs.b.scatter.over: 'l1.txt' is no output of a job"),
    ("{over: 'c{y}.txt', as: x}, foreach: {y: [1]}", "'c1.txt' is made by 'c', whose own jobs are known only at run time; go over"),
    ("{over: '{y.stem}.n', as: x}, foreach: {y: 'c*.txt'}", "'c1.n' is made by 'n', which may have ended before the values of this"),
]


@pytest.mark.parametrize(("scatter", "said"), WRONG)
def test_what_cannot_be_scattered_over_is_refused_by_name(place: Path, scatter: str, said: str) -> None:
    text = f"""files: {{raw_1.txt: here:raw_1.txt}}
jobs:
  a: {{run: echo, inputs: [raw_1.txt], outputs: [l.txt, d/, {{file: opt.txt, optional: true}}]}}
  c: {{scatter: {{over: l.txt, as: y}}, run: "echo {{y}}", outputs: ["c{{y}}.txt"]}}
  n: {{run: echo, outputs: [c1.n]}}
  b: {{scatter: {scatter}, run: echo}}
"""
    findings = told(place, text)
    assert any(said in each for each in findings), findings


def test_an_origin_is_not_asked_while_a_run_goes_on(place: Path) -> None:
    text = """jobs:
  a: {run: echo, outputs: [l.txt]}
  c: {scatter: {over: l.txt, as: x}, run: "echo {x}", inputs: ["here:{x}.fa"]}
"""
    (only,) = told(place, text)
    assert "'here:{x}.fa' names a file at an origin by a value that is known only when 'a' has ended" in only
    beside = text.replace("scatter:", "foreach: {y: [raw_1]}, scatter:")
    workflow = read(place, beside.replace("here:{x}.fa", "here:{y}.txt"))
    known = expanded(workflow, {"c": (("u",), ("v",))})
    assert [entry.lfn for entry in known.jobs["c[raw_1,v]"].inputs] == ["raw_1.txt"]
    (only,) = told(place, beside.replace("here:{x}.fa", "here:{y}*.txt"))
    assert "'here:{y}*.txt' is listed at its origin for each value" in only
    engine = "engine: airflow\njobs:\n  a: {outputs: [l.txt]}\n  b: {scatter: {over: l.txt, as: x}}\n"
    said = "jobs.b.scatter: {} runs the jobs of this workflow, and decides itself how many there are; {}"
    for name, what in (
        ("airflow", "map its task in the DAG"),
        ("pegasus", "put its jobs into a sub-workflow"),
        ("other", "name all jobs here, or"),
    ):
        assert any(said.format(name, what) in each for each in told(place, engine.replace("airflow", name))), name


def test_members_that_cannot_all_have_jobs_are_told_by_name(place: Path) -> None:
    workflow = read(place, SPLIT)
    with pytest.raises(WorkflowInvalid, match=r"'x.bam' has two producers: 'align\[x.fa\]' and 'align\[x.fb\]'"):
        expanded(workflow, {"align": (("x.fa",), ("x.fb",))})
    with pytest.raises(WorkflowInvalid, match=r"'x.bam' has two producers: 'align\[x.fa\]' and 'beside'"):
        expanded(read(place, SPLIT.replace("outputs: [beside.txt]", "outputs: [x.bam]")), {"align": (("x.fa",),)})
    with pytest.raises(WorkflowInvalid, match="writes a whole number"):
        expanded(read(place, TABLE), {"part": (("raw", "x"),)})


CHAINED = """jobs:
  a: {run: echo, outputs: [l.txt]}
  b: {scatter: {over: l.txt, as: x}, run: "echo {x}", outputs: ["b.{x}"]}
  c: {run: echo, inputs: ["b.*"], outputs: [m.txt]}
  d: {scatter: {over: m.txt, as: x}, run: "echo {x}", outputs: ["d.{x}"]}
  e: {run: echo, inputs: ["d.*"], outputs: [e.txt]}
"""


def test_one_scatter_may_follow_another_and_each_is_known_in_its_turn(place: Path) -> None:
    first = expanded(read(place, CHAINED), {"b": (("x",), ("y",))})
    assert list(first.jobs) == ["a", "b[x]", "b[y]", "c", "d[1]", "e"]
    assert [each.rows is None for each in first.scatters] == [False, True] and first.scatters[1].jobs == ("d[1]",)
    both = expanded(first, {"d": (("z",),)})
    assert list(both.jobs) == ["a", "b[x]", "b[y]", "c", "d[z]", "e"]
    assert both == expanded(read(place, CHAINED), {"b": (("x",), ("y",)), "d": (("z",),)})


BESIDE = """jobs:
  list: {foreach: {sample: [s, t]}, run: "echo {sample}", outputs: ["{sample}.list"]}
  part:
    foreach: {sample: [s, t]}
    scatter: {over: "{sample}.list", as: x, expect: 2}
    run: "echo {sample} {x}"
    outputs: ["{sample}.{x}.part"]
  gather: {foreach: {sample: [s, t]}, run: "echo {sample}", inputs: ["{sample}.*.part"], outputs: ["{sample}.all"]}
  all: {run: echo, inputs: ["*.all"], outputs: [all]}
"""


def test_each_value_of_a_foreach_scatters_over_its_own_list(place: Path) -> None:
    before = read(place, BESIDE)
    assert [(each.name, each.entry, each.over, each.maker, each.jobs) for each in before.scatters] == [
        ("part[s.list]", "part", "s.list", "list[s]", ("part[s,1]", "part[s,2]")),
        ("part[t.list]", "part", "t.list", "list[t]", ("part[t,3]", "part[t,4]")),
    ]
    note = "jobs.part: 4 jobs are assumed; how many there are is known when job 'list[s]' has made 's.list', and 1 more list is there"
    assert note in before.notes
    assert before.jobs["part[t,3]"].after == ("list[t]",) and before.jobs["gather[s]"].after == () == before.jobs["all"].after
    one = expanded(before, {"part[s.list]": (("x",), ("y",), ("z",))})
    assert [job for job in one.jobs if job.startswith("part")] == ["part[s,x]", "part[s,y]", "part[s,z]", "part[t,3]", "part[t,4]"]
    assert [entry.lfn for entry in one.jobs["gather[s]"].inputs] == ["s.x.part", "s.y.part", "s.z.part"]
    assert one.jobs["gather[t]"] == before.jobs["gather[t]"] and one.jobs["gather[s]"].after == (), "it waits for no other list"
    assert [(each.rows is None, each.jobs) for each in one.scatters] == [(False, ()), (True, ("part[t,3]", "part[t,4]"))]
    both = expanded(one, {"part[t.list]": ()})
    assert both.jobs["gather[t]"].inputs == () and not any("assumed" in note for note in both.notes)
    assert both == expanded(before, {"part[s.list]": (("x",), ("y",), ("z",)), "part[t.list]": ()})


def test_all_values_of_a_foreach_go_with_all_members_of_one_list(place: Path) -> None:
    text = """jobs:
  a: {run: echo, outputs: [d/]}
  b:
    foreach: {seed: 1..2}
    scatter: {over: d/, as: x}
    run: "echo {x}"
    inputs: [d/]
    outputs: ["{seed}.{x.name}"]
"""
    before = read(place, text)
    assert [(each.name, each.jobs) for each in before.scatters] == [("b", ("b[1,d/1]", "b[2,d/1]"))]
    known = expanded(before, {"b": (("d/u",), ("d/v",))})
    assert list(known.jobs) == ["a", "b[1,d/u]", "b[1,d/v]", "b[2,d/u]", "b[2,d/v]"]
    assert dict(known.jobs["b[2,d/v]"].env).items() >= {"seed": "2", "x": "d/v"}.items()
    text = text.replace("a: {run: echo, outputs: [d/]}", "a: {foreach: {seed: 1..2}, run: echo, outputs: [d/]}").replace(
        "[d/]", '["d{seed}/"]'
    )
    own = read(place, text.replace("over: d/", 'over: "d{seed}/"'))
    assert [(each.name, each.jobs) for each in own.scatters] == [("b[d1]", ("b[1,d1/1]",)), ("b[d2]", ("b[2,d2/2]",))]


WITHIN = """jobs:
  top: {run: echo, outputs: [top.txt, other.list]}
  mid: {scatter: {over: top.txt, as: m, expect: 2}, run: "echo {m}", outputs: ["{m}.list"]}
  low:
    foreach: {list: "*.list"}
    scatter: {over: "{list}", as: x}
    run: "echo {list} {x}"
    inputs: ["{list}"]
    outputs: ["{list.stem}-{x}.low"]
  after: {foreach: {low: "*.low"}, run: "echo {low}", inputs: ["{low}"], outputs: ["{low.stem}.end"]}
  only: {run: echo, inputs: ["other-*.low"], outputs: [only]}
  all: {run: echo, inputs: ["*.end"], outputs: [all]}
"""


def test_a_scatter_may_go_over_what_the_jobs_of_another_make(place: Path) -> None:
    before = read(place, WITHIN)
    names = ["mid", "low[1.list]", "low[2.list]", "low[other.list]"]
    assert [each.name for each in before.scatters] == names and all(each.rows is None for each in before.scatters)
    assert before.scatters[1].maker == "mid[1]" and before.scatters[3].maker == "top"
    assert before.jobs["only"].after == ("mid[1]",), "a member may be called other-x"
    other = expanded(before, {"low[other.list]": (("a",), ("b",))})
    assert [job for job in other.jobs if job.startswith("low")] == [
        "low[1.list,1]",
        "low[2.list,2]",
        "low[other.list,a]",
        "low[other.list,b]",
    ]
    assert other.jobs["only"].after == ("mid[1]",)
    mid = expanded(other, {"mid": (("u",), ("v",))})
    assert [each.name for each in mid.scatters] == ["mid", "low[other.list]", "low[u.list]", "low[v.list]"]
    assert {each.name for each in mid.scatters if each.rows is None} == {"low[u.list]", "low[v.list]"}
    assert mid.jobs["low[other.list,a]"] == other.jobs["low[other.list,a]"] and mid.jobs["only"].after == ()
    known = expanded(mid, {"low[u.list]": (), "low[v.list]": (("1",),)})
    assert [entry.lfn for entry in known.jobs["all"].inputs] == ["other-a.end", "other-b.end", "v-1.end"]
    assert not any(each.rows is None for each in known.scatters)
    none = expanded(before, {"mid": ()})
    assert [each.name for each in none.scatters] == ["mid", "low[other.list]"]


def test_what_stands_for_members_is_never_in_the_way_of_those_that_are_known(place: Path) -> None:
    text = BESIDE.replace('"{sample}.{x}.part"', '"{x}.part"').replace('"{sample}.*.part"', '"*.part"')
    before = read(place, text)
    assert [job for job in before.jobs if job.startswith("part")] == ["part[s,1]", "part[s,2]", "part[t,3]", "part[t,4]"]
    one = expanded(before, {"part[s.list]": (("3",), ("4",))})
    strange = ["part[s,3]", "part[s,4]", "part[t,1000000001]", "part[t,1000000002]"]
    assert [job for job in one.jobs if job.startswith("part")] == strange
    both = expanded(one, {"part[t.list]": (("5",),)})
    assert [job for job in both.jobs if job.startswith("part")] == ["part[s,3]", "part[s,4]", "part[t,5]"]
    with pytest.raises(WorkflowInvalid, match=r"'3.part' has two producers: 'part\[s,3\]' and 'part\[t,3\]'"):
        expanded(one, {"part[t.list]": (("3",),)})


def test_who_goes_over_what_members_make_and_does_not_read_it_waits_all_the_same(place: Path) -> None:
    text = """jobs:
  a: {run: echo, outputs: [a.txt, ref, k.b]}
  b: {scatter: {over: a.txt, as: x}, run: "echo {x}", outputs: ["{x}.b"]}
  unread: {foreach: {b: "*.b"}, run: "echo {b}", inputs: [ref], outputs: ["{b}.u"]}
  words: {foreach: {w: "{w}.b"}, run: "echo {w}", outputs: ["{w}.w"]}
  reads: {foreach: {b: "*.b"}, run: "echo {b}", inputs: ["{b}"], outputs: ["{b}.r"]}
"""
    workflow = read(place, text)
    assert workflow.jobs["unread[1.b]"].after == workflow.jobs["words[1]"].after == ("b[1]",)
    assert workflow.jobs["reads[1.b]"].after == workflow.jobs["reads[k.b]"].after == ()
    standing = standing_jobs(workflow.scatters)
    assert {"b[1]", "unread[1.b]", "words[1]", "reads[1.b]"} <= standing and not standing & {"a", "reads[k.b]"}
    known = expanded(workflow, {"b": (("y",),)})
    assert known.jobs["unread[y.b]"].after == () == known.jobs["words[y]"].after


def test_what_nobody_asked_for_stays_away_when_members_are_known(place: Path) -> None:
    text = """jobs:
  a: {run: echo, outputs: [a.txt]}
  b: {scatter: {over: a.txt, as: x}, run: "echo {x}", outputs: ["{x}.b"]}
  c: {run: echo, outputs: [c.txt, c/]}
  d: {scatter: {over: c.txt, as: x}, run: "echo {x}", inputs: [c/], outputs: ["{x}.d"]}
"""
    part = as_far_as(read(place, text), ["b"])
    known = as_far_as(expanded(part, {"b": (("u",),)}), part.until)
    assert list(known.jobs) == ["a", "b[u]"] and [each.name for each in known.scatters] == ["b"]


def test_others_may_stand_for_what_is_not_known(place: Path) -> None:
    before = read(place, CHAINED)
    assert assumed_rows(before) == {"b": (("1",),), "d": (("1",),)} and not before.scatters[0].said
    more = expanded(before, {}, {"d": (("x",), ("y",))})
    assert list(more.jobs) == ["a", "b[1]", "c", "d[x]", "d[y]", "e"] and more.scatters[1].jobs == ("d[x]", "d[y]")
    assert [note for note in more.notes if "jobs.d" in note] == [
        "jobs.d: 2 jobs are assumed; how many there are is known when job 'c' has made 'm.txt'"
    ]
    first = expanded(more, {"b": (("z",),)})
    assert list(first.jobs) == ["a", "b[z]", "c", "d[x]", "d[y]", "e"] and assumed_rows(first) == {"d": (("x",), ("y",))}
    assert expanded(first, {"d": ()}) == replace(expanded(before, {"b": (("z",),), "d": ()}), scatter_book=more.scatter_book)


def test_who_may_read_what_a_member_makes_waits_for_it_whatever_is_assumed(place: Path) -> None:
    text = """files: {raw: "here:raw_*.txt"}
jobs:
  list: {run: echo, inputs: ["raw_*.txt"], outputs: [l.txt]}
  chr: {scatter: {over: l.txt, as: x}, run: "echo {x}", outputs: ["{x}.txt"]}
  some: {run: echo, inputs: ["raw_*.txt"], outputs: [s]}
  none: {run: echo, inputs: [l.txt], outputs: [n]}
"""
    workflow = read(place, text)
    assert workflow.jobs["some"].after == ("chr[1]",) and workflow.jobs["list"].after == () == workflow.jobs["none"].after
    known = expanded(workflow, {"chr": (("raw_2",), ("k",))})
    assert [entry.lfn for entry in known.jobs["some"].inputs] == ["raw_1.txt", "raw_2.txt"] and known.jobs["some"].after == ()


def test_as_far_as_somebody_asked_for_it_the_scatter_comes_along(place: Path) -> None:
    workflow = read(place, SPLIT)
    assert as_far_as(workflow, ["beside"]).scatters == ()
    part = as_far_as(workflow, ["sort"])
    assert "merge" not in part.jobs and part.scatters == workflow.scatters
    assert "merge" not in as_far_as(expanded(part, {"align": ROWS}), part.until).jobs


def test_without_a_scatter_nothing_is_kept_of_it(place: Path) -> None:
    workflow: Workflow = read(place, "jobs: {a: {run: echo, outputs: [b]}}\n")
    assert (workflow.scatters, workflow.scatter_book) == ((), "")
    assert replace(workflow, scatter_book="x").jobs == workflow.jobs


SIGNS = st.text(st.sampled_from("ab*?/."), max_size=6)


@given(st.text(st.sampled_from("ab/."), max_size=6), SIGNS, SIGNS)
def test_patterns_that_both_match_a_name_may_meet(name: str, one: str, other: str) -> None:
    if pattern_of(one).fullmatch(name) and pattern_of(other).fullmatch(name):
        assert may_meet(one, other)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [("*.bam", "*.txt", False), ("a*", "*b", True), ("c[0-9].x", "*.x", True), ("a?c", "abd", False), ("[*]x", "ax", False)],
)
def test_patterns_that_cannot_match_one_name_do_not(one: str, other: str, meet: bool) -> None:
    assert may_meet(one, other) is meet


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\nb\na\n", "line 3 repeats 'a' of line 1"),
        ("../x\n", "line 1 has '../x', which leads out of a sandbox"),
        ("/etc/passwd\n", "leads out of a sandbox"),
        ("a\x00b\n", "holds a character that cannot be printed"),
        ("x" * 1001, "is longer than 1,000 bytes"),
        ("\n".join(map(str, range(MEMBERS_MAX + 1))), "names more than 100,000 members"),
    ],
)
def test_a_list_that_cannot_be_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        members_in(text, "l.txt", ("x",), ScatterForm.LINES)


def test_lines_tables_and_directories_name_members() -> None:
    assert members_in(" a b \r\n\n\tc\n", "l.txt", ("x",), ScatterForm.LINES) == (("a b",), ("c",))
    assert members_in("", "l.txt", ("x",), ScatterForm.LINES) == ()
    assert members_in("#Sample ID\tn\tz\ns1\t4\t-\n", "t.tsv", ("n", "sample_id"), ScatterForm.TABLE) == (("4", "s1"),)
    assert members_in('a,b\n"x, y",1\n', "t.csv", ("a",), ScatterForm.TABLE) == (("x, y",),)
    assert members_of_directory(["b", "a"], "d/e") == (("d/e/a",), ("d/e/b",))
    for text, said in (("x\tb\n1\n", "line 2 has 1 cells"), ("a\tb\n", "no column 'x'"), ("", "it is empty"), ("x\tx\n", "two columns")):
        with pytest.raises(ValueError, match=said):
            members_in(text, "t.tsv", ("x",), ScatterForm.TABLE)
    with pytest.raises(ValueError, match="which is empty"):
        members_in("x\ty\n\t2\n", "t.tsv", ("x",), ScatterForm.TABLE)
