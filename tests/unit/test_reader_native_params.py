"""Parameters of a native workflow: declared, given, put in where a text names them, and never read as anything but a value."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example
from hypothesis import given as drawn
from hypothesis import strategies as st

from stager.model.errors import InvalidInput
from stager.model.workflow import Parameter, Workflow
from stager.planning.digest import workflow_digest
from stager.readers import native, sniff
from stager.readers.lines import WorkflowInvalid
from stager.readers.native_params import VALUES_BYTES_MAX, given_values, resubmitted, sent_values
from stager.service.prepare import reader_options
from tests.unit.reader_origins import DirectoryAccess

HEAD = "stager: 1\n"
# Any text that an environment carries.
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)


def read(place: Path, text: str, *pairs: tuple[str, str], file: Path | None = None) -> Workflow:
    path = place / "w.yml"
    path.write_text(HEAD + text)
    return native.read(path, access=DirectoryAccess(place), given=given_values(pairs, file))


def told(place: Path, text: str, *pairs: tuple[str, str], file: Path | None = None) -> list[str]:
    with pytest.raises(WorkflowInvalid) as caught:
        read(place, text, *pairs, file=file)
    return [str(each).replace(f"{place}/", "") for each in caught.value.findings]


ALL = """params:
  seed: {type: integer, default: 7, description: of the random numbers}
  night: {choices: [m31, m33]}
  rows: 1
  share: {type: number, default: 1e-3}
  strict: {type: boolean, default: True}
  buffer: {type: size, default: 2 KB}
  limit: {type: duration, default: 1.5 min}
name: fit-{night}
origins: {data: "file:./{night}/raw", out: {url: "file:out-{night}", bandwidth: "{buffer}"}}
files: {"{night}.hdr": "data:{night}.hdr"}
defaults: {cores: "{rows}", env: {NIGHT: "{night}"}}
jobs:
  fit:
    foreach: {row: "1..{rows}", band: ["{night}-g", r]}
    run: fit --seed {seed} --share {share} {row} > {night}.{row}.{band}.txt
    inputs: ["{night}.hdr", "data:{night}/*.fits"]
    outputs: ["{night}.{row}.{band}.txt"]
    memory: "{buffer}"
    timeout: "{limit}"
    deterministic: "{strict}"
  join:
    run: [join, "--night={night}", "*.txt"]
    inputs: ["{night}.*.txt"]
    outputs: {"{night}.json": "out:{night}/"}
    after: ["fit[1,{night}-g]"]
io_hints: {fit: {compute: "{limit}"}}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    raw = tmp_path / "m31" / "raw"
    (raw / "m31").mkdir(parents=True)
    for name in ("m31.hdr", "m31/a.fits", "m31/b.fits"):
        (raw / name).write_text("x")
    return tmp_path


def test_a_parameter_stands_wherever_a_text_does(lab: Path) -> None:
    workflow = read(lab, ALL, ("night", "m31"), ("rows", "2"))
    assert workflow.name == "fit-m31" and list(workflow.jobs) == ["fit[1,m31-g]", "fit[1,r]", "fit[2,m31-g]", "fit[2,r]", "join"]
    assert workflow.origins["data"].url.endswith("/m31/raw") and dict(workflow.origins["out"].options) == {"bandwidth": "2000"}
    fit, join = workflow.jobs["fit[2,r]"], workflow.jobs["join"]
    assert [entry.lfn for entry in fit.inputs] == ["m31.hdr", "m31/a.fits", "m31/b.fits"]
    assert fit.shell == 'fit --seed "${seed}" --share "${share}" "${row}" > "${night}"."${row}"."${band}".txt'
    assert dict(fit.env) == {"row": "2", "band": "r", "seed": "7", "share": "1e-3", "night": "m31", "NIGHT": "m31"}
    assert (fit.cores, fit.memory_bytes, fit.timeout_s, fit.deterministic) == (2, 2000, 90.0, True)
    assert join.argv == ("join", "--night=m31", "*.txt") and join.after == ("fit[1,m31-g]",)
    destination = workflow.files["m31.json"].destination
    assert destination is not None and destination.location.path == "m31/m31.json"
    assert workflow.hints["fit"].compute_s == 90.0 and workflow.notes == ()
    assert workflow.params[:3] == (Parameter("seed", "7"), Parameter("night", "m31", True), Parameter("rows", "2", True))
    assert dict(workflow.jobs["join"].env) == {"NIGHT": "m31"}


def test_a_workflow_with_values_is_the_one_with_the_values_written(lab: Path) -> None:
    written = read(lab, ALL.replace("{night}", "m31").replace("{rows}", "2"), ("night", "m31"))
    filled = read(lab, ALL, ("night", "m31"), ("rows", "2"))
    # But for the texts that a shell reads: there a value stays in the environment.
    assert filled.files == written.files and filled.origins == written.origins and filled.hints == written.hints
    assert filled.jobs["join"] == written.jobs["join"]


TWO = """params: {seed: 7, night: m31}
jobs:
  a: {run: "go {seed}", outputs: [a]}
  b: {run: [go, "{night}"], outputs: [b]}
  c: {run: [go], outputs: [c]}
"""


def test_a_parameter_is_part_of_the_jobs_that_use_it_and_of_no_other(tmp_path: Path) -> None:
    first, second = read(tmp_path, TWO), read(tmp_path, TWO, ("seed", "8"))
    changed = [name for name in first.jobs if first.jobs[name] != second.jobs[name]]
    assert changed == ["a"] and workflow_digest(first) != workflow_digest(second)


def test_a_value_that_no_job_uses_leaves_the_digest_as_it_is(tmp_path: Path) -> None:
    text = TWO.replace("params: {", "params: {idle: 1, ")
    bare = "jobs: {c: {run: [go], outputs: [c]}}\n"
    workflow = read(tmp_path, text, ("idle", "2"))
    assert workflow_digest(workflow) == workflow_digest(read(tmp_path, text)) and workflow.notes == ("params.idle is used nowhere",)
    assert workflow_digest(read(tmp_path, "params: {idle: 1}\n" + bare)) == workflow_digest(read(tmp_path, bare))


SHELLS = """params: {v: x}
jobs:
  a:
    run: |
      printf '%s\\n' {v} "{v}" '{v}' > out
      cat >> out <<END
      {v}
      END
    outputs: [out]
"""


@drawn(value=VALUES)
def test_a_value_reaches_a_shell_as_it_is(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    place = tmp_path_factory.mktemp("shell")
    job = read(place, SHELLS, ("v", value)).jobs["a"]
    assert value in ("", "v") or value not in job.shell.replace("out", "") or len(value) < 8
    subprocess.run(job.command, cwd=place, env={"PATH": os.defpath} | dict(job.env), check=True)
    assert (place / "out").read_bytes() == (f"{value}\n" * 4).encode()


@drawn(value=st.one_of(VALUES, st.text("*?[]!x./", max_size=6)))
@example(value="*")
def test_no_value_becomes_an_origin_a_pattern_or_a_way_out(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    jobs = """
  a: {run: [go, "{v}"], outputs: ["{v}.txt"]}
  b: {run: [go], inputs: ["{v}.t*"], outputs: [b]}
  c: {run: [go], outputs: [other.txt, y.txt]}
"""
    text = f"params: {{v: x}}\njobs:{jobs}"
    try:
        workflow = read(tmp_path_factory.mktemp("paths"), text, ("v", value))
    except WorkflowInvalid as error:
        assert all("jobs." in str(each) for each in error.findings)
        return
    (made,) = (each.lfn for each in workflow.jobs["a"].outputs)
    assert ".." not in made.split("/") and not made.startswith("/") and workflow.jobs["a"].argv == ("go", value)
    assert [each.lfn for each in workflow.jobs["b"].inputs] == [made] and not workflow.origins


@drawn(values=st.dictionaries(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), VALUES, max_size=5))
def test_values_come_out_of_a_file_as_they_went_in(tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]) -> None:
    place = tmp_path_factory.mktemp("file")
    for indent in (None, 1, "\t"):
        (place / "p.json").write_text(json.dumps(values, indent=indent))
        assert {name: node.text for name, node in given_values((), place / "p.json").items()} == values


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("integer", {"007": "7", "-3": "-3", "+4": "4"}, ["", "1.5", "1e3", "seven", "9" * 19]),
        ("number", {"1e-3": "1e-3", ".5": ".5", "7": "7"}, ["", "nan", "inf", "1,5", "1e999", "0x1"]),
        ("boolean", {"true": "true", "False": "false"}, ["yes", "1", ""]),
        ("size", {"2 KiB": "2048", "7": "7"}, ["much", "-1"]),
        ("duration", {"20 min": "1200", "0.5": "0.5", "1.5h": "5400"}, ["soon", ""]),
        ("string", {"": "", " a ": " a "}, ["a\0b", "\ud800", "x" * (VALUES_BYTES_MAX + 1)]),
    ],
)
def test_types_have_one_spelling_and_refuse_the_rest(tmp_path: Path, kind: str, right: dict[str, str], wrong: list[str]) -> None:
    text = f"params: {{p: {{type: {kind}}}}}\njobs: {{a: {{run: [go, '{{p}}']}}}}\n"
    for given, value in right.items():
        assert read(tmp_path, text, ("p", given)).jobs["a"].argv == ("go", value)
    for given in wrong:
        (finding,) = told(tmp_path, text, ("p", given))
        assert finding.startswith("--param: p: ") and f"p ({kind}, required)" in finding and len(finding) < 400


def test_values_of_a_request_are_those_of_json() -> None:
    values = sent_values({"a": 7, "b": 0.001, "c": True, "d": "x"})
    assert {name: node.text for name, node in values.items()} == {"a": "7", "b": "0.001", "c": "true", "d": "x"}


JOB = "jobs: {a: {run: 'go {seed}'}}\n"
KNOWN = "this workflow has seed (integer, required), mode (fast or full, default 'fast')"
DECLARED = "params: {seed: {type: integer}, mode: {choices: [fast, full], default: fast}}\n" + JOB
MISSING = "has no default and no value was given; add --param seed=VALUE (or params over HTTP)"
ASKED = [
    ((), f"w.yml:2:9: params: the parameter 'seed' {MISSING}; {KNOWN}"),
    ((("seed", "x"),), f"--param: seed: 'x' is not a whole number; {KNOWN}"),
    ((("seed", "1"), ("sead", "2")), f"--param: sead: there is no parameter 'sead'; did you mean 'seed'?; {KNOWN}"),
    ((("seed", "1"), ("mode", "slow")), f"--param: mode: 'slow' is unknown; choose fast or full; {KNOWN}"),
]


@pytest.mark.parametrize(("pairs", "finding"), ASKED)
def test_a_value_that_does_not_fit_is_told_with_those_there_are(tmp_path: Path, pairs: tuple[tuple[str, str], ...], finding: str) -> None:
    assert told(tmp_path, DECLARED, *pairs) == [finding]


def test_several_that_are_missing_are_one_finding(tmp_path: Path) -> None:
    (finding,) = told(tmp_path, "params: {a: , b: , c: 1}\n" + JOB)
    assert "the parameters a, b have no default and no value was given; add --param a=VALUE --param b=VALUE" in finding


def test_what_is_wrong_in_a_file_of_values_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "p.yml").write_text("seed: 1\nmode: slow\n")
    assert told(tmp_path, DECLARED, file=tmp_path / "p.yml")[0].startswith("p.yml:2:7: mode: 'slow' is unknown")
    assert read(tmp_path, DECLARED, ("mode", "full"), file=tmp_path / "p.yml").params[1].value == "full"
    for text, message in [
        ("", "the file is empty; it holds values of parameters"),
        ("# nothing\n", "the file is empty; it holds values of parameters"),
        ("- a\n", "1:1: this should be a mapping (key: value), and is a list"),
        ("a: [[1]]\n", "1:4: a: the value of a parameter is one text, number or truth value, or a list of them"),
        ("a:\n", '1:3: a: it has no value; write one, or leave the line out ("" is an empty text)'),
        ("a: 1\na: 2\n", "2:1: a: the same key twice; keep one of them"),
        ('{"a": }', "1:7: a: it has no value"),
    ]:
        (tmp_path / "p.yml").write_text(text)
        with pytest.raises(InvalidInput) as caught:
            given_values((), tmp_path / "p.yml")
        assert message in str(caught.value)
    with pytest.raises(InvalidInput, match="seed is given twice"):
        given_values((("seed", "1"), ("seed", "2")))


SLIP = "is no foreach key or parameter (known: seed); did you mean 'seed'?"
QUOTES = 'and is a mapping (key: value); a value that is put in stands in quotes: "{seed}"'
WRONG = [
    ("params: {seed: {type: int}}\n" + JOB, "2:23: params.seed.type: 'int' is no type of a parameter; choose string, integer"),
    ("params: {seed: {default: x, type: integer}}\n" + JOB, "2:26: params.seed: 'x' is not a whole number"),
    ("params: {seed: {defalt: x}}\n" + JOB, "2:17: params.seed.defalt: unknown key; did you mean 'default'?"),
    ("params: {seed: {choices: []}}\n" + JOB, "params.seed.choices: the list is empty"),
    ("params: {seed: {choices: [a], default: b}}\n" + JOB, "params.seed: 'b' is unknown; choose a"),
    ("params: {Seed: 1}\n" + JOB, "2:10: params.Seed: 'Seed' cannot name a parameter"),
    ("params: {no_proxy: 1}\n" + JOB, "'no_proxy' cannot name a parameter"),
    (
        "params: {api_token: }\n" + JOB,
        "'api_token' looks like a secret, and values of parameters are recorded",
    ),
    ("params: {seed: 'https://me:hunter2@h/x'}\n" + JOB, "the value is a URL with a password in it"),
    ("params: {seed: 'https://h/x?X-Amz-Signature=abc'}\n" + JOB, "the value is a URL that holds a key, token or signature"),
    ("params: [seed]\n" + JOB, "2:9: params: this should be a mapping (key: value), and is a list"),
    ("params: {seed: 1}\njobs: {a: {run: go, outputs: ['{sed}']}}\n", f"{{sed}} {SLIP}"),
    ("params: {seed: 1}\njobs: {a: {run: 'go {sead}'}}\n", f"{{sead}} {SLIP}"),
    ("params: {seed: 1}\njobs: {a: {run: go, cores: '{sead}'}}\n", "jobs.a.cores: {sead} is no foreach key or parameter"),
    ("params: {seed: x}\njobs: {a: {run: go, cores: '{seed}'}}\n", "jobs.a.cores: 'x' is not a whole number of 1 or more"),
    ("params: {seed: 1}\njobs: {a: {run: go, cores: {seed}}}\n", f"jobs.a.cores: this should be a single value, {QUOTES}"),
    ("params: {seed: 1}\njobs: {a: {run: 'go $(({seed} + 1))'}}\n", "use the variable seed itself, which the job has in its environment"),
    ("params: {seed: 1}\njobs: {a: {run: 'go {seed}', shell: [python3, -c]}}\n", "take the variable seed from the environment"),
    ("params: {seed: 1}\njobs: {a: {run: 'go {seed}', env: {seed: '2'}}}\n", "the parameter 'seed' is a variable of jobs that use it"),
    ("params: {seed: 1}\njobs: {a: {run: 'go {seed}', foreach: {seed: [1]}}}\n", "'seed' is a parameter already; give the foreach"),
    ("params: {seed: ../x}\njobs: {a: {run: go, outputs: ['{seed}']}}\n", "jobs.a.outputs[0]: '../x' leaves its directory by '..'"),
    ("params: {seed: ''}\njobs: {a: {run: go, outputs: ['{seed}']}}\n", "jobs.a.outputs[0]: the path is empty"),
    ("params: {seed: 'ftp://h'}\norigins: {o: '{seed}'}\njobs: {a: {run: go}}\n", "origins.o: 'ftp' is no kind of origin"),
]


@pytest.mark.parametrize(("text", "finding"), WRONG)
def test_what_is_wrong_names_its_place(tmp_path: Path, text: str, finding: str) -> None:
    findings = told(tmp_path, text)
    assert len(findings) == 1 and finding in findings[0] and findings[0].startswith("w.yml:"), findings
    assert "hunter2" not in findings[0] and "Signature=abc" not in findings[0]


def test_a_text_without_quotes_is_told_where_it_stands(tmp_path: Path) -> None:
    (_, finding) = told(tmp_path, "params: {seed: 1}\njobs: {a: {run: go, inputs: [{seed}]}}\n")
    assert 'jobs.a.inputs[0].seed: unknown key; a value that is put in stands in quotes: "{seed}"' in finding


def test_other_braces_stay_as_they_are(tmp_path: Path) -> None:
    job = read(tmp_path, "params: {seed: 1}\njobs: {a: {run: \"awk '{print $1}' {{seed}} $seed\"}}\n").jobs["a"]
    assert job.shell == "awk '{print $1}' {seed} $seed" and job.env == (("seed", "1"),)


def test_a_program_that_no_shell_reads_has_them_in_its_environment(tmp_path: Path) -> None:
    text = "params: {seed: 1, other: 2}\njobs: {a: {run: 'import os; print(os.environ[\"seed\"])', shell: [python3, -c]}}\n"
    assert read(tmp_path, text).jobs["a"].env == (("seed", "1"),)


def test_a_resume_gives_again_what_was_given(tmp_path: Path) -> None:
    workflow = read(tmp_path, TWO, ("night", "m33"))
    again = native.read(tmp_path / "w.yml", access=DirectoryAccess(tmp_path), given=resubmitted(workflow.params))
    assert again == workflow
    (tmp_path / "w.yml").write_text(HEAD + TWO.replace("seed: 7", "seed: 8"))
    changed = native.read(tmp_path / "w.yml", access=DirectoryAccess(tmp_path), given=resubmitted(workflow.params))
    assert changed.params == (Parameter("seed", "8"), Parameter("night", "m33", True))
    assert replace(changed, params=(), jobs={}) == replace(workflow, params=(), jobs={})


def test_other_formats_have_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="parameters .* are for native workflows, and this is a pegasus one"):
        reader_options(sniff.WorkflowFormat.PEGASUS, None, tmp_path, given_values((("a", "1"),)))
