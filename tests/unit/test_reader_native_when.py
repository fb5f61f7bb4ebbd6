"""`when:` of a job: which comparisons hold, what a job that is left out takes along, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from stager.planning.digest import workflow_digest
from stager.readers.lines import Place
from stager.readers.native_spec import ParamSpec
from stager.readers.native_when import holds
from tests.unit.test_reader_native_params import read, told

SPECS = {
    name: ParamSpec(name, Place(), name, kind, choices=choices)
    for name, kind, choices in [
        ("mode", "string", ("fast", "full")),
        ("night", "string", ()),
        ("chunks", "integer", ()),
        ("share", "number", ()),
        ("strict", "boolean", ()),
        ("space", "size", ()),
        ("limit", "duration", ()),
    ]
}
VALUES = {"mode": "full", "night": "31", "chunks": "4", "share": "1e-3", "strict": "true", "space": "4000000000", "limit": "90"}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("mode == 'full'", True),
        ('mode != "full"', False),
        ("night == 31", True),
        ("chunks > 3 and chunks <= 4", True),
        ("chunks == 04", True),
        ("4 < chunks", False),
        ("share < 0.01", True),
        ("share == 0.001", True),
        ("strict", True),
        ("not strict", False),
        ("not not strict", True),
        ("strict == false", False),
        ("space >= '4 GB'", True),
        ("space > 4GB", False),
        ("limit == '1.5 min'", True),
        ("mode in ['fast', 'full']", True),
        ("mode not in ['fast']", True),
        ("chunks in [1, 2]", False),
        ("mode == 'fast' or strict and chunks == 4", True),
        ("(mode == 'fast' or strict) and chunks == 5", False),
        ("not (mode == 'fast')", True),
        ("true", True),
    ],
)
def test_a_condition_is_weighed_by_the_types_of_its_parameters(text: str, outcome: bool) -> None:
    assert holds(text, SPECS, VALUES, set()) is outcome


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode = 'full'", "'=' cannot stand in a condition; '==' compares"),
        ("{mode} == 'full'", "'{' cannot stand in a condition; a parameter stands here without braces"),
        ("mode == full", "'full' is no parameter (known: mode, night"),
        ("moed == 'full'", "did you mean 'mode'?"),
        ("mode == 'ful'", "'ful' is unknown; choose fast or full; did you mean 'full'?, as 'mode' is"),
        ("mode > 'full'", "'>' compares numbers, and 'mode' is a string"),
        ("chunks == 'many'", "'many' is not a whole number, as 'chunks' is"),
        ("chunks", "'chunks' is a integer, so compare it"),
        ("mode == chunks", "'mode' is a string and 'chunks' is a integer; they cannot be compared"),
        ("1 == 1", "'1' and '1' are both values"),
        ("mode == ", "the condition ends where a parameter or a value should stand"),
        ("", "the condition ends where"),
        ("strict strict", "'strict' stands behind the end of the condition"),
        ("(strict", "a '(' is not closed"),
        ("mode in 'full'", "behind 'in' stands a list"),
        ("mode in ['full'", "a '[' is not closed"),
        ("strict && strict", "'&' cannot stand in a condition; 'and' joins two comparisons"),
        ("__import__('os')", "'__import__' is no parameter"),
        ("(" * 21 + "strict" + ")" * 21, "nested deeper than 20"),
        ("strict and " * 200 + "strict", "more than 1000 characters"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        holds(text, SPECS, VALUES, set())
    assert message in str(caught.value)


@drawn(text=st.text(st.sampled_from("modestrict chunks()[],'\"=<>!&|{}$ \t\nandornotin0123.eE-")))
def test_any_text_gives_a_truth_value_or_one_error(text: str) -> None:
    try:
        assert holds(text, SPECS, VALUES, set()) in (True, False)
    except ValueError as error:
        assert str(error)


CONDITIONS = st.recursive(
    st.sampled_from([("mode == 'full'", True), ("chunks > 4", False), ("strict", True), ("night in ['30']", False)]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: (f"({two[0][0]}) and ({two[1][0]})", two[0][1] and two[1][1])),
        st.tuples(inner, inner).map(lambda two: (f"({two[0][0]}) or ({two[1][0]})", two[0][1] or two[1][1])),
        inner.map(lambda one: (f"not ({one[0]})", not one[1])),
    ),
    max_leaves=6,
)


@drawn(condition=CONDITIONS)
def test_conditions_are_joined_as_words_say(condition: tuple[str, bool]) -> None:
    assert holds(condition[0], SPECS, VALUES, set()) is condition[1]


TEXT = """params: {mode: {choices: [fast, full], default: full}, plots: {type: boolean, default: true}}
jobs:
  quick: {when: mode == 'fast', run: go, outputs: [table.csv]}
  slow: {when: mode == 'full', run: go, outputs: [table.csv]}
  plot: {when: plots, foreach: {size: [1, 2]}, run: "go {size}", inputs: [table.csv], outputs: ["{size}.svg"]}
  page: {run: go, inputs: [table.csv], outputs: [page.html], after: [plot, "plot[1]"]}
finals: {"*.svg": here:out/, page.html: here:out/}
io_hints: {quick: {compute: 1 s}}
"""


def test_a_job_is_there_only_where_its_condition_holds(tmp_path: Path) -> None:
    assert list(read(tmp_path, TEXT).jobs) == ["slow", "plot[1]", "plot[2]", "page"]
    without = read(tmp_path, TEXT, ("mode", "fast"), ("plots", "false"))
    assert list(without.jobs) == ["quick", "page"] and without.jobs["page"].after == ()
    assert without.notes == ("job 'slow' is left out by its 'when' (mode == 'full')", "job 'plot' is left out by its 'when' (plots)")
    assert [lfn for lfn, file in without.files.items() if file.is_final] == ["page.html"]
    written = TEXT.replace("when: mode == 'full', ", "").replace("  quick: {when: mode == 'fast', run: go, outputs: [table.csv]}\n", "")
    alike = read(tmp_path, written.replace("when: plots, ", "").replace("io_hints: {quick: {compute: 1 s}}\n", ""))
    assert alike.jobs == read(tmp_path, TEXT).jobs and workflow_digest(alike) != ""


NONE = "matches no file of 'files:' and no output"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "b: {run: go, inputs: [a.txt]}",
            "jobs.b.inputs[0]: 'a.txt' is made by job 'a', which is left out by its 'when' (not it); write",
        ),
        (
            "b: {run: go, inputs: ['a*.txt']}",
            f"jobs.b.inputs[0]: 'a*.txt' {NONE} of another job; what matches it is made by job 'a'",
        ),
        ("b: {run: go, stdin: a.txt}", "jobs.b.stdin: 'a.txt' is made by job 'a', which is left out"),
        (
            "b: {run: go, foreach: {x: 'a*.txt'}}",
            f"jobs.b.foreach.x: 'a*.txt' {NONE} of the jobs above; what matches it is made by job 'a'",
        ),
        ("c: {when: not it, run: go}", "jobs: every job is left out by its 'when'"),
        ("b: {when: it = 1, run: go}", "jobs.b.when: '=' cannot stand in a condition"),
        ("b: {when: [it], run: go}", "jobs.b.when: this should be a single value, and is a list"),
    ],
)
def test_what_needs_a_job_that_is_left_out_is_refused(tmp_path: Path, text: str, finding: str) -> None:
    head = "params: {it: {type: boolean, default: true}}\njobs:\n  a: {when: not it, run: go, outputs: [a.txt]}\n  "
    findings = told(tmp_path, head + text + "\n")
    assert len(findings) == 1 and finding in findings[0], findings


def test_what_is_at_an_origin_need_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    text = "params: {it: false}\njobs:\n  a: {when: it == 'true', run: go, outputs: [a.txt]}\n  b: {run: go, inputs: [here:a.txt]}\n"
    assert [entry.lfn for entry in read(tmp_path, text).jobs["b"].inputs] == ["a.txt"]
