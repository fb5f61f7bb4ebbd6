"""Rows of a foreach out of names of files and out of tables, and numbers that are written as somebody wants them."""

from __future__ import annotations

import csv
import io
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from stager.readers import native
from stager.readers.lines import WorkflowInvalid
from stager.readers.native_beside import Beside
from stager.readers.native_params import given_values
from stager.readers.native_rows import table_rows, wildcards_of
from stager.readers.native_template import template_of
from tests.unit.reader_origins import DirectoryAccess
from tests.unit.test_reader_native_params import read, told

# What a cell or a part of a name may hold.
CELLS = st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=12).map(str.strip)


@pytest.fixture
def reads(tmp_path: Path) -> Path:
    (tmp_path / "reads").mkdir()
    for name in ("b_R1.fq", "a_R1.fq", "a_R2.fq", "a_Run_R1.fq", ".h_R1.fq", "other.txt"):
        (tmp_path / "reads" / name).write_text("x")
    return tmp_path


def test_words_are_taken_out_of_names_and_listed_once(reads: Path) -> None:
    text = """jobs:
  align:
    foreach: "here:reads/{sample}_R1.fq"
    run: align {sample} > {sample}.bam
    inputs: ["here:reads/{sample}_R1.fq"]
    outputs: ["{sample}.bam"]
  merge: {foreach: {sample: "{sample}.bam", seed: 1..2}, run: "go {sample}", inputs: ["{sample}.bam"], outputs: ["{sample}-{seed}"]}
"""
    path = reads / "w.yml"
    path.write_text("stager: 1\n" + text)
    access = DirectoryAccess(reads)
    workflow = native.read(path, access=access)
    assert list(workflow.jobs)[:3] == ["align[a]", "align[a_Run]", "align[b]"]
    assert list(workflow.jobs)[3:5] == ["merge[a,1]", "merge[a,2]"] and len(workflow.jobs) == 9
    assert [entry.lfn for entry in workflow.jobs["align[a]"].inputs] == ["reads/a_R1.fq"]
    assert access.lists == ["here:reads"] and access.stats == [] and workflow.files["reads/a_R1.fq"].size_bytes == 1


def test_several_words_make_the_rows(reads: Path) -> None:
    text = 'params: {dir: reads}\njobs: {a: {foreach: "here:{dir}/{sample}_R{read}.fq", run: "go {sample} {read}"}}\n'
    assert list(read(reads, text).jobs) == ["a[a,1]", "a[a,2]", "a[a_Run,1]", "a[b,1]"]
    for name in ("x/x.bam", "x/y.bam"):
        (reads / name).parent.mkdir(exist_ok=True)
        (reads / name).write_text("x")
    assert list(read(reads, 'jobs: {a: {foreach: "here:{s}/{s}.bam", run: "go {s}"}}\n').jobs) == ["a[x]"]


@drawn(rows=st.sets(st.tuples(st.text("ab_R1.", min_size=1, max_size=5), st.text("12", min_size=1, max_size=2)), max_size=5))
def test_what_stands_in_a_name_comes_out_of_it(rows: set[tuple[str, str]]) -> None:
    """Where the last word can be told from the text before it."""
    found = wildcards_of(template_of("x/{s}_R{n}", ("s", "n"), strict=True))
    assert found.rows(f"x/{s}_R{n}" for s, n in rows) == sorted(rows) and found.glob == "x/*_R*"
    assert found.rows([f"y/{s}_R{n}" for s, n in rows] + ["x/a/b_R1", "x/_R1"]) == []


PATTERNS = [
    ("here:no/{s}.fq", "jobs.a.foreach: 'here:no/*.fq' matches no file"),
    ("{s}.bam", "jobs.a.foreach: '*.bam' matches no file of 'files:' and no output of the jobs above"),
    ("here:{s}{t}.fq", "nothing stands between two words in braces before {t}"),
    ("here:*/{s}.fq", "'*/{s}.fq' has *, ? or [ beside words in braces"),
    ("here:{s.stem}.fq", "{s.stem} takes a text out of a name, as it is; write {s}"),
    ("here:../{s}.fq", "leaves its directory by '..'"),
    ("nowhere:{s}.fq", "there is no origin 'nowhere'"),
    ("here:{Sample}.fq", "'Sample' cannot be a foreach key"),
    ("here:{a}-{b}-{c}-{d}-{e}", "a pattern has at most 4 words in braces, and this one has 5"),
    ("here:reads/*.fq", "'here:reads/*.fq' makes no rows; write a pattern with a word in braces"),
]


@pytest.mark.parametrize(("pattern", "finding"), PATTERNS)
def test_a_pattern_that_makes_no_rows_is_told(reads: Path, pattern: str, finding: str) -> None:
    findings = told(reads, f"jobs: {{a: {{foreach: '{pattern}', run: go}}}}\n")
    assert len(findings) == 1 and finding in findings[0] and findings[0].startswith("w.yml:2:"), findings


def test_a_pattern_of_a_key_has_no_other_word(reads: Path) -> None:
    (finding,) = told(reads, "jobs: {a: {foreach: {s: 'here:reads/{s}_R{n}.fq'}, run: go}}\n")
    assert "takes s, n out of names; a pattern for 's' has {s} and no other word; write foreach: PATTERN to take several" in finding


SHEET = "#Sample ID\treads\tdepth\na\ta_R1.fq\t7\n\nb c\tb_R1.fq\t\n"


def test_a_table_makes_a_row_of_each_line(reads: Path) -> None:
    (reads / "samples.tsv").write_text(SHEET)
    text = """jobs:
  align:
    foreach: samples.tsv
    run: align {sample_id} {depth} > {sample_id}.bam
    inputs: ["here:reads/{reads}"]
    outputs: ["{sample_id}.bam"]
"""
    workflow = read(reads, text)
    assert list(workflow.jobs) == ["align[a,a_R1.fq,7]", "align[b c,b_R1.fq,]"]
    assert dict(workflow.jobs["align[b c,b_R1.fq,]"].env) == {"sample_id": "b c", "reads": "b_R1.fq", "depth": ""}
    (reads / "sheet.csv").write_text('Sample ID,reads,depth\r\na,a_R1.fq,7\r\n"b c",b_R1.fq,\r\n')
    beside = Beside()
    (reads / "w.yml").write_text("stager: 1\nparams: {sheet: }\n" + text.replace("samples.tsv", '"{sheet}"'))
    given = given_values((("sheet", "sheet.csv"),))
    assert native.read(reads / "w.yml", access=DirectoryAccess(reads), given=given, beside=beside).jobs == workflow.jobs
    assert [path.name for path in beside.read] == ["sheet.csv"] and beside.with_digest("x") != "x"


TABLES = [
    ("s.tsv", "a\tb\n1\n", "s.tsv:2:1: jobs.a.foreach: the row has 1 cells, and the header names 2 columns"),
    ("s.tsv", "a\ta\n1\t2\n", "s.tsv:1:1: jobs.a.foreach: two columns are called 'a'; rename one of them"),
    ("s.tsv", "a\t2nd\n1\t2\n", "s.tsv:1:1: jobs.a.foreach: the column '2nd' cannot be a foreach key"),
    ("s.tsv", "a\tno_proxy\n1\t2\n", "the column 'no_proxy' cannot be a foreach key"),
    ("s.tsv", "", "s.tsv:1:1: jobs.a.foreach: the table is empty; its first line names the columns"),
    ("s.tsv", "a\n", "s.tsv:1:1: jobs.a.foreach: the table has no row below its header"),
    ("s.csv", 'a,b\n"1,2\n', "jobs.a.foreach: this is no table: unexpected end of data"),
    ("s.xlsx", "x", "w.yml:2:21: jobs.a.foreach: 's.xlsx' makes no rows"),
    ("s.tsv", "seed\n1\n", "jobs.a.foreach: 'seed' is a parameter already"),
    ("s.tsv", "a\n1\n1\n", "two rows make the same job 'a[1]'; leave the repeated value out"),
]


@pytest.mark.parametrize(("name", "content", "finding"), TABLES)
def test_what_is_wrong_in_a_table_has_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, finding: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content)
    findings = told(Path(), f"jobs: {{a: {{foreach: '{name}', run: go}}}}\nparams: {{seed: 1}}\n")
    assert len(findings) == 1 and finding in findings[0], findings


def test_a_job_without_its_keys_is_told_once(tmp_path: Path) -> None:
    text = "jobs:\n  a: {foreach: no.tsv, run: 'go {x}', outputs: ['{x}.txt']}\n  b: {run: go, inputs: ['*.txt']}\n"
    (finding,) = told(tmp_path, text)
    assert "jobs.a.foreach" in finding


def test_a_table_that_is_not_there_is_told(tmp_path: Path) -> None:
    (finding,) = told(tmp_path, "jobs: {a: {foreach: here:s.tsv, run: go}}\n")
    assert "here:s.tsv: there is no such file; a table is written by its path from the workflow file" in finding


def test_a_service_reads_no_table_outside_of_what_was_sent(tmp_path: Path) -> None:
    (tmp_path / "sent").mkdir()
    (tmp_path / "s.tsv").write_text("a\nsecret\n")
    (tmp_path / "sent" / "w.yml").write_text("stager: 1\njobs: {a: {foreach: ../s.tsv, run: go}}\n")
    with pytest.raises(WorkflowInvalid, match="leads out of the workflow's directory"):
        native.read(tmp_path / "sent" / "w.yml", beside=Beside(tmp_path / "sent"))


@drawn(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6))
def test_cells_come_out_of_a_table_as_they_went_in(rows: list[tuple[str, str]]) -> None:
    rows = [row for row in rows if any(row)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([("first", "second"), *rows])
    columns, found, wrong = table_rows(out.getvalue(), "x.csv")
    assert columns == ("first", "second") and found == rows and len(wrong) == (not rows)


NUMBERS = """params: {n: 7, share: "0.12345"}
jobs:
  a:
    foreach: {i: 9..10}
    run: echo {i:03d} "{n:02d}" '{share:.2f}' > {i:03d}.txt; cat <<< $i__03d
    inputs: []
    outputs: ["{i:03d}.txt"]
  b: {run: [go, "{n:03d}", "{{n:03d}}"], cores: "{n:d}"}
"""


def test_a_number_is_written_as_it_is_said(tmp_path: Path) -> None:
    workflow = read(tmp_path, NUMBERS)
    job = workflow.jobs["a[9]"]
    assert job.outputs[0].path == "009.txt" and workflow.jobs["b"].argv == ("go", "007", "{n:03d}") and workflow.jobs["b"].cores == 7
    assert dict(job.env) == {"i": "9", "i__03d": "009", "n__02d": "07", "share__p2f": "0.12"}
    done = subprocess.run(job.command, cwd=tmp_path, env={"PATH": os.defpath} | dict(job.env), check=True, capture_output=True, text=True)
    assert (tmp_path / "009.txt").read_text() == "009 07 0.12\n" and done.stdout == "009\n"


@drawn(value=st.integers(-(10**9), 10**9), width=st.integers(1, 20))
def test_zeros_are_put_in_front_as_python_does(value: int, width: int) -> None:
    template = template_of(f"{{i:0{width}d}}", ("i",), strict=True)
    assert template.render({"i": str(value)}) == f"{value:0{width}d}" and template.source == f"{{i:0{width}d}}"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("{foreach: {i: [a]}, run: 'go {i:02d}'}", "jobs.a.foreach: {i:02d} writes a whole number, and i is 'a' here"),
        ("{foreach: {i: [a]}, run: go, outputs: ['{i:.2f}']}", "jobs.a.foreach: {i:.2f} writes a number, and i is 'a' here"),
        ("{foreach: {i: [1]}, run: go, outputs: ['{i:>3}']}", "jobs.a.outputs[0]: {i:>3} is no way to write a number; use {i:02d}"),
        ("{run: go, outputs: ['{word:02d}']}", "jobs.a.outputs[0]: {word:02d} writes a whole number, and word is 'x' here"),
        ("{run: 'go {word:02d}'}", "jobs.a.run: {word:02d} writes a whole number, and word is 'x' here"),
        ("{run: go, cores: '{word:02d}'}", "jobs.a.cores: {word:02d} writes a whole number, and word is 'x' here"),
    ],
)
def test_what_is_no_number_is_told(tmp_path: Path, text: str, finding: str) -> None:
    findings = told(tmp_path, f"params: {{word: x}}\njobs: {{a: {text}}}\n")
    assert len(findings) == 1 and finding in findings[0], findings


def test_other_braces_of_programs_stay_as_they_are(tmp_path: Path) -> None:
    text = "jobs: {a: {foreach: {ids: [1]}, run: \"jq '{id: .x, ids:.y}' ${ids:0:1} {ids:>3}\"}}\n"
    assert read(tmp_path, text).jobs["a[1]"].shell == "jq '{id: .x, ids:.y}' ${ids:0:1} {ids:>3}"
