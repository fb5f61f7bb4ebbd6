"""`include:` and `types:`: shared job types, found relative to the file that includes them, each read once and defined once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.errors import InvalidInput
from stager.readers import native
from stager.readers.lines import WorkflowInvalid
from stager.readers.native_beside import Beside
from stager.readers.native_params import given_values
from tests.unit.reader_origins import DirectoryAccess
from tests.unit.test_reader_native_params import read, told

SHARED = """stager: 1
include: deeper/params.yml
types:
  count:
    run: ./count.sh {text} --by {unit} > {text.stem}.count
    cores: 2
    env: {LC_ALL: C, UNIT: words}
    outputs: ["{text.stem}.count"]
io_hints: {count: {compute: 3 s}}
x-notes: of the lab
"""
DEEPER = "stager: 1\nparams: {unit: {choices: [words, lines], default: words}}\n"
MAIN = """include: [lib/shared.yml, lib/deeper/params.yml]
jobs:
  one:
    type: count
    foreach: {text: [a.txt, b.txt]}
    inputs: ["here:{text}"]
    env: {UNIT: lines}
  two: {type: count, foreach: {text: [c.txt]}, cores: 1, run: "go {text}"}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "lib" / "deeper").mkdir(parents=True)
    (tmp_path / "lib" / "shared.yml").write_text(SHARED)
    (tmp_path / "lib" / "deeper" / "params.yml").write_text(DEEPER)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x")
    return tmp_path


def test_a_job_takes_what_its_type_says_and_it_does_not(lab: Path) -> None:
    workflow = read(lab, MAIN, ("unit", "lines"))
    one, two = workflow.jobs["one[a.txt]"], workflow.jobs["two[c.txt]"]
    assert one.shell.startswith('./count.sh "${text}" --by "${unit}"') and one.job_type == two.job_type == "count" and one.kept_by == ""
    assert (one.cores, two.cores, two.shell) == (2, 1, 'go "${text}"')
    assert dict(one.env) == {"text": "a.txt", "text__stem": "a", "unit": "lines", "LC_ALL": "C", "UNIT": "lines"}
    assert [entry.lfn for entry in two.outputs] == ["c.count"] and workflow.hints["count"].compute_s == 3.0


def test_a_type_may_stand_in_the_workflow_file_itself(tmp_path: Path) -> None:
    text = "types: {t: {run: go, retries: 5}}\njobs: {a: {type: t}, b: {type: other, run: x}}\n"
    jobs = read(tmp_path, text).jobs
    assert (jobs["a"].shell, jobs["a"].retries, jobs["b"].job_type) == ("go", 5, "other")


def test_the_files_that_were_read_are_known(lab: Path) -> None:
    read(lab, MAIN)
    beside = Beside()
    native.read(lab / "w.yml", access=DirectoryAccess(lab), beside=beside)
    assert [str(path.relative_to(lab)) for path in beside.read] == ["lib/shared.yml", "lib/deeper/params.yml"]


CIRCLE = "include: files include each other in a circle:"
TWICE = "types.t: 't' is defined twice: here, and"
WRONG = [
    ("include: no.yml\n", {}, "w.yml:2:10: include: no.yml: there is no such file"),
    (
        "include: [a.yml]\n",
        {"a.yml": "stager: 1\ninclude: a.yml\n"},
        f"a.yml:2:10: {CIRCLE} a.yml includes a.yml",
    ),
    (
        "include: a.yml\n",
        {"a.yml": "stager: 1\ninclude: lib/b.yml\n", "lib/b.yml": "stager: 1\ninclude: ../a.yml\n"},
        f"lib/b.yml:2:10: {CIRCLE} a.yml includes lib/b.yml includes a.yml; take one of these away",
    ),
    ("include: w.yml\n", {}, f"w.yml:2:10: {CIRCLE} w.yml includes w.yml"),
    (
        "include: [a.yml, b.yml]\n",
        {"a.yml": "stager: 1\ntypes: {t: {run: x}}\n", "b.yml": "stager: 1\ntypes:\n  t: {run: y}\n"},
        f"b.yml:3:3: {TWICE} a.yml:2:9; take one of them away",
    ),
    (
        "include: a.yml\ntypes: {t: {run: x}}\n",
        {"a.yml": "stager: 1\ntypes: {t: {run: x}}\n"},
        f"a.yml:2:9: {TWICE} w.yml:3:9",
    ),
    ("include: a.yml\nparams: {p: 1}\n", {"a.yml": "stager: 1\nparams: {p: 1}\n"}, "a.yml:2:10: params.p: 'p' is defined twice"),
    (
        "include: a.yml\n",
        {"a.yml": "stager: 1\njobs: {a: {run: x}}\n"},
        "a.yml:2:1: jobs: 'jobs' belongs into the workflow file; an included file has include, params",
    ),
    ("include: a.yml\n", {"a.yml": "types: {t: {run: x}}\n"}, "a.yml:1:1: stager: an included file starts with stager: 1"),
    ("include: a.yml\n", {"a.yml": "- x\n"}, "a.yml:1:1: this should be a mapping"),
    ("include: a.yml\n", {"a.yml": ""}, "a.yml:1:1: the file is empty; an included file starts with 'stager: 1'"),
    ("include: a.yml\n", {"a.yml": "stager: 1\ntypes: {t: [x}\n"}, "a.yml:2:14: this is not YAML"),
    ("include: a.yml\n", {"a.yml": "stager: 1\ntypes: {t: {rnu: x}}\n"}, "a.yml:2:13: types.t.rnu: unknown key; did you mean 'run'?"),
    ("include: ''\n", {}, "w.yml:2:10: include: the name of the file is missing"),
    ("include: {a: b}\n", {}, "w.yml:2:10: include: this should be a list, and is a mapping"),
]


@pytest.mark.parametrize(("text", "files", "finding"), WRONG)
def test_what_is_wrong_names_the_file_that_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, files: dict[str, str], finding: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    findings = told(Path(), text + "jobs: {a: {run: x}}\n")
    assert len(findings) == 1 and findings[0].startswith(finding), findings


def test_what_a_job_has_of_its_type_is_told_at_the_type(lab: Path) -> None:
    (lab / "lib" / "shared.yml").write_text(SHARED.replace("cores: 2", "cores: many").replace("{unit}", "{unti}"))
    told_of = told(lab, MAIN.replace('  two: {type: count, foreach: {text: [c.txt]}, cores: 1, run: "go {text}"}\n', ""))
    assert told_of[0].startswith("lib/shared.yml:5:10: jobs.one.run: {unti} is no foreach key or parameter (known: text, unit)")
    assert told_of[1].startswith("lib/shared.yml:6:12: jobs.one.cores: 'many' is not a whole number")


def test_a_type_that_is_nearly_one_is_a_slip(tmp_path: Path) -> None:
    (finding,) = told(tmp_path, "types: {align: {run: go}}\njobs: {a: {type: algin, run: x}}\n")
    assert "jobs.a.type: there is no type 'algin' under 'types:'; did you mean 'align'?" in finding


@pytest.mark.parametrize("name", ["../out.yml", "/etc/hostname", "link.yml", "lib/../../out.yml"])
def test_a_service_reads_nothing_outside_of_what_was_sent(tmp_path: Path, name: str) -> None:
    place = tmp_path / "sent"
    (place / "lib").mkdir(parents=True)
    (tmp_path / "out.yml").write_text("stager: 1\nparams: {secret: 1}\n")
    (place / "link.yml").symlink_to(tmp_path / "out.yml")
    (place / "w.yml").write_text(f"stager: 1\ninclude: {name}\njobs: {{a: {{run: x}}}}\n")
    with pytest.raises(WorkflowInvalid, match="leads out of the workflow's directory, and a service reads only what came with"):
        native.read(place / "w.yml", beside=Beside(place))


def test_a_value_may_be_of_an_included_parameter(lab: Path) -> None:
    with pytest.raises(InvalidInput, match="unit: 'letters' is unknown; choose words or lines"):
        (lab / "w.yml").write_text("stager: 1\n" + MAIN)
        native.read(lab / "w.yml", access=DirectoryAccess(lab), given=given_values((("unit", "letters"),)))
