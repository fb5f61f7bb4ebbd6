"""What nobody meant to write in a workflow, its values and the files beside it: each is one clear finding, and none an error of Python."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import example
from hypothesis import given as drawn
from hypothesis import strategies as st

from stager.model.errors import InvalidInput
from stager.model.units import PLAIN_NUMBER, parse_number
from stager.readers import native, native_beside
from stager.readers.lines import Finding, Place, WorkflowInvalid, read_text
from stager.readers.native_beside import Beside
from stager.readers.native_lists import members_of
from stager.readers.native_params import given_values, sent_values
from stager.readers.sniff import WorkflowFormat, read_workflow, sniff
from tests.unit.reader_origins import DirectoryAccess
from tests.unit.test_reader_native_params import read, told

JOB = "jobs: {a: {run: 'go {v}'}}\n"

FOREACH = [
    (r'"a\0.tsv"', "jobs.a.foreach: 'a\\x00.tsv' holds a NUL character, and no file can be called so"),
    ("[{}]", "jobs.a.foreach[0]: the row is empty; write it as {NAME: VALUE}, or leave it out"),
    ("[{}, {b: 1}]", "jobs.a.foreach[0]: the row is empty"),
    ("[{b: 1}, {}]", "jobs.a.foreach[1]: the row is empty"),
    ("[~, {b: 1}]", "jobs.a.foreach[0]: the row is empty"),
    ("[x, {b: 1}]", "jobs.a.foreach[0]: this should be a mapping (key: value), and is a single value"),
    ("[{Bad: 1}, {Bad: 2}]", "jobs.a.foreach[0]: 'Bad' cannot be a foreach key"),
    ("[{b: 1}, {c: 1}]", "jobs.a.foreach[1]: each row has the same keys; the first has b"),
    (r'{b: ["x\0y"]}', "jobs.a.foreach.b[0]: the value holds a NUL character; no program can be given it"),
    (r'[{b: "x\0y"}]', "jobs.a.foreach[0].b: the value holds a NUL character; no program can be given it"),
    ("{b: ['{sead}']}", "jobs.a.foreach.b[0]: {sead} is no foreach key or parameter (known: seed, no)"),
    ("{b: 'a['}", "jobs.a.foreach.b: 'a[' has a '[' without ']'; write '[[]' for the character itself"),
    ("{b: 'a[9-0]'}", "jobs.a.foreach.b: 'a[9-0]' has a range whose end comes before its start"),
    ("{b: ['{no}']}", "jobs.a.foreach.b: the list is empty, so the job would never run"),
]


@pytest.mark.parametrize(("foreach", "finding"), FOREACH)
def test_a_foreach_that_makes_no_rows_is_told_once(tmp_path: Path, foreach: str, finding: str) -> None:
    findings = told(tmp_path, f"params: {{seed: 1, no: []}}\njobs: {{a: {{foreach: {foreach}, run: go}}}}\n")
    assert len(findings) == 1 and finding in findings[0] and findings[0].startswith("w.yml:3:"), findings


def test_values_with_commas_do_not_make_one_job_of_two_rows(tmp_path: Path) -> None:
    rows = '[{a: "x,y", b: z}, {a: x, b: "y,z"}, {a: u, b: v}]'
    jobs = read(tmp_path, f"jobs: {{j: {{foreach: {rows}, run: go}}}}\n").jobs
    assert list(jobs) == ["j[x,y,z]", "j[#1]", "j[u,v]"] and dict(jobs["j[#1]"].env) == {"a": "x", "b": "y,z"}
    (finding,) = told(tmp_path, f"jobs: {{j: {{foreach: {rows[:-1]}, {{a: x, b: 'y,z'}}], run: go}}}}\n")
    assert "two rows make the same job 'j[#1]'; leave the repeated value out" in finding


LISTS = [
    ("[" * 100_000, "what begins with [ is read as JSON, and this is none"),
    ('["a", ' + "[" * 2000 + "]" * 2000 + "]", "a member of the list is no text, number or truth value"),
    ("[NaN]", "what begins with [ is read as JSON, and this is none"),
    ("[-Infinity]", "what begins with [ is read as JSON, and this is none"),
    (r'["\ud800"]', "the value is not UTF-8"),
    (r'["\u0000"]', "the value holds a NUL character"),
    ("[null]", "a member of the list is no text, number or truth value"),
]


@pytest.mark.parametrize(("text", "finding"), LISTS)
def test_a_list_that_is_none_is_told_once(tmp_path: Path, text: str, finding: str) -> None:
    (found,) = told(tmp_path, "params: {v: {type: list}}\n" + JOB, ("v", text))
    assert found.startswith("--param: v: ") and (finding in found or "read as JSON, and this is none" in found)
    (found,) = told(tmp_path, f"params: {{v: {{type: list, default: {json.dumps(text)}}}}}\n" + JOB)
    assert found.startswith("w.yml:2:")


def test_a_number_in_a_list_stays_as_it_is_written(tmp_path: Path) -> None:
    text = "params: {v: {type: list of number}}\njobs: {a: {run: [go, '{v}']}}\n"
    numbers = ["1.10", "1e-3", "-0", "0.1000000000000000055511151231257827", "123456789012345678901234567890"]
    assert read(tmp_path, text, ("v", f"[{', '.join(numbers)}]")).jobs["a"].argv == ("go", *numbers)
    (tmp_path / "p.json").write_text(json.dumps({"v": "x"}).replace('"x"', f"[{', '.join(numbers)}]"))
    assert read(tmp_path, text, file=tmp_path / "p.json").jobs["a"].argv == ("go", *numbers)
    assert members_of('[true, 1.50, "x"]') == ("true", "1.50", "x")


@pytest.mark.parametrize("text", ["v: [a, null]\n", "v: [a, ~]\n", "v:\n- a\n-\n", '{"v": ["a", null]}'])
def test_nothing_in_a_list_of_values_is_no_member(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.yml").write_text(text)
    with pytest.raises(WorkflowInvalid, match=r'p.yml:[123]:\d+: v: a member of the list has no value; write one, or take it out \(""'):
        given_values((), tmp_path / "p.yml")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1_000", " 1", "1 ", "١", "1e9999", "0x1p3", ""])
def test_what_only_python_takes_for_a_number_is_none(tmp_path: Path, value: str) -> None:
    text = f"jobs: {{a: {{foreach: {{x: [{json.dumps(value, ensure_ascii=False)}]}}, run: go, outputs: ['{{x:.2f}}']}}}}\n"
    (finding,) = told(tmp_path, text)
    assert f"jobs.a.foreach: {{x:.2f}} writes a number, and x is {value!r} here" in finding


@drawn(text=st.from_regex(PLAIN_NUMBER, fullmatch=True))
@example(text="1.")
@example(text="+.5e-3")
def test_what_is_written_as_a_number_is_one(text: str) -> None:
    try:
        assert parse_number(text) == float(text)
    except ValueError:
        assert float(text) in (float("inf"), float("-inf"))


@pytest.mark.parametrize(("kind", "unit"), [("size", "GB"), ("duration", "h")])
def test_a_long_value_is_refused_and_not_cut(tmp_path: Path, kind: str, unit: str) -> None:
    text = f"params: {{v: {{type: {kind}}}}}\n" + JOB
    value = f"1{' ' * 80}{unit}"
    (finding,) = told(tmp_path, text, ("v", value))
    assert f"has {len(value)} characters, and a size or a duration has 60 at most" in finding


def test_a_job_has_no_timeout_that_nobody_waits_for(tmp_path: Path) -> None:
    for timeout in ("20000 d", "9" * 400):
        (finding,) = told(tmp_path, f"jobs: {{a: {{run: go, timeout: {timeout}}}}}\n")
        assert "jobs.a.timeout:" in finding and "is longer than 1,000,000,000 s, which are 31 years" in finding
    (finding,) = told(tmp_path, "finish_by: +99999999999999999999 d\njobs: {a: {run: go}}\n")
    assert "finish_by: '+99999999999999999999 d' is no time to finish by" in finding


def refused(path: Path, pipe: Path) -> str:
    """What is said of a workflow with a pipe that nobody feeds; whoever waits for it gets nothing in the end."""
    said: list[str] = []

    def read_it() -> None:
        try:
            read_workflow(path, access=DirectoryAccess(path.parent))
        except InvalidInput as problem:
            said.append(problem.message)

    reader = threading.Thread(target=read_it, daemon=True)
    reader.start()
    reader.join(10)
    is_waiting = reader.is_alive()
    while reader.is_alive():
        with contextlib.suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        reader.join(0.05)
    assert not is_waiting, "it waits for the pipe"
    return said[0]


@pytest.mark.parametrize("what", ["workflow", "table", "include"])
def test_a_pipe_is_no_file_of_a_workflow(tmp_path: Path, what: str) -> None:
    """It could be read once, and is read more than once."""
    name = {"workflow": "w.yml", "table": "t.tsv", "include": "i.yml"}[what]
    os.mkfifo(tmp_path / name)
    if what == "table":
        (tmp_path / "w.yml").write_text("stager: 1\njobs: {a: {foreach: t.tsv, run: go}}\n")
    elif what == "include":
        (tmp_path / "w.yml").write_text("stager: 1\ninclude: i.yml\njobs: {a: {run: go}}\n")
    said = refused(tmp_path / "w.yml", tmp_path / name)
    assert f"{name} is a pipe, a socket or a device; write its text to a file, and name that" in said


def test_a_socket_and_a_device_are_none_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("s")
    for path in ("s", "/dev/zero"):
        with pytest.raises(InvalidInput, match="is a pipe, a socket or a device"):
            sniff(Path(path))


def test_values_may_come_through_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    feeding = threading.Thread(target=(tmp_path / "p").write_text, args=("seed: 7\n",), daemon=True)
    feeding.start()
    assert given_values((), tmp_path / "p")["seed"].text == "7"
    feeding.join()


def test_a_table_is_read_once_for_all_jobs_that_go_over_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all have the same rows, and the digest is of what they have."""
    (tmp_path / "t.tsv").write_text("x\n1\n")
    asked: list[Path] = []

    def once(path: Path, shown: str) -> str:
        asked.append(path)
        text = read_text(path, shown)
        path.write_text("x\n2\n")
        return text

    monkeypatch.setattr(native_beside, "read_text", once)
    (tmp_path / "w.yml").write_text("stager: 1\njobs: {a: {foreach: t.tsv, run: go}, b: {foreach: ./t.tsv, run: go}}\n")
    beside = Beside()
    assert list(native.read(tmp_path / "w.yml", beside=beside).jobs) == ["a[1]", "b[1]"]
    assert asked == [tmp_path / "t.tsv"] == list(beside.read)


def test_a_finding_is_one_line_whatever_is_called_so(tmp_path: Path) -> None:
    text = r"jobs: {a: {run: go}}" + '\n"x\\n\\e[2Jw.yml:1:1: fine": 1\n'
    (finding,) = told(tmp_path, text)
    assert finding.startswith("w.yml:3:1: x\\n\\x1b[2Jw.yml:1:1: fine: unknown key") and finding.isprintable()
    assert str(Finding("a\nb", Place(1, 2), "k\udc80", "m\x07")) == "a\\nb:1:2: k\\udc80: m\\x07"
    assert str(Finding("ä", Place(), "", "…")) == "ä: …"


FORMATS = [
    ('{"stager": 1, "jobs": {"workflow": {"run": "true"}}}', "native"),
    ('{"jobs": {"workflow": {"run": "a {\\"schemaVersion\\": 1}"}}, "stager": 1}', "native"),
    ("{name: it's, jobs: {pegasus: {run: x}}, stager: 1}", "native"),
    ("{ name: a, # as in {old\n jobs: {}, stager: 1}", "native"),
    ('{"x-pegasus": {"workflow": 1}, "pegasus": "5.0"}', "pegasus"),
    ('{"name": "stager: 1, {\\"pegasus\\": 1", "workflow": {"tasks": [{"stager": 1}]}, "schemaVersion": "1.5"}', "wfcommons"),
    ('\ufeff{"schemaVersion": "1.5"', "wfcommons"),
]


@pytest.mark.parametrize(("text", "found"), FORMATS)
def test_a_format_is_told_by_the_keys_at_the_top(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "w").write_text(text)
    assert sniff(tmp_path / "w") is WorkflowFormat(found)


def test_numbers_of_a_request_have_one_spelling() -> None:
    assert [node.text for node in sent_values({"v": [1.10, 7, True]})["v"].items] == ["1.1", "7", "true"]
