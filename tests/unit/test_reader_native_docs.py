"""The reference page, the editors' schema and the quickstart say what the reader does."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from stager.readers import native, native_spec
from stager.readers.lines import WorkflowInvalid
from stager.readers.sniff import read_workflow
from tests.unit.reader_origins import DirectoryAccess

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/formats/workflow.md").read_text()
SCHEMA = json.loads((ROOT / "docs/formats/workflow.schema.json").read_text())
BLOCK = re.compile(r"(?:<!-- (files|wrong):? ?(.*?) ?-->\n)?```yaml\n(.*?)```", re.DOTALL)
EXAMPLES = [(kind, names.split(), text) for kind, names, text in BLOCK.findall(PAGE)]
RIGHT = [(names, text) for kind, names, text in EXAMPLES if kind != "wrong"]
QUICKSTART = ROOT / "workflows/quickstart/workflow.yml"


def errors_of(text: str) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(yaml.safe_load(text))]


def test_the_page_has_examples():
    assert len(RIGHT) >= 6 and len(EXAMPLES) == len(RIGHT) + 1


@pytest.mark.parametrize(("names", "text"), RIGHT, ids=range(len(RIGHT)))
def test_every_example_is_read_and_fits_the_schema(tmp_path, names, text):
    for name in [*names, "fit", "plot", "web/catalog.csv"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (tmp_path / "workflow.yml").write_text(text)
    workflow = read_workflow(tmp_path / "workflow.yml", access=DirectoryAccess(tmp_path))
    assert workflow.jobs
    assert errors_of(text) == []


def test_what_the_page_says_of_numbers_of_jobs_holds(tmp_path):
    (text,) = (text for _, text in RIGHT if "# 6 jobs" in text)
    for name in ("raw/r1.txt", "raw/r2.txt", "fit", "plot"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "workflow.yml").write_text(text)
    workflow = read_workflow(tmp_path / "workflow.yml", access=DirectoryAccess(tmp_path))
    types = [job.job_type for job in workflow.jobs.values()]
    assert {name: types.count(name) for name in types} == {"clean": 2, "fit": 6, "plot": 2, "check": 2}


def test_the_wrong_example_gives_the_errors_on_the_page(tmp_path, monkeypatch):
    (text,) = (text for kind, _, text in EXAMPLES if kind == "wrong")
    (expected,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "workflow.yml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkflowInvalid) as caught:
        native.read(Path("workflow.yml"))
    assert str(caught.value) + "\n" == expected
    assert errors_of(text)


SECTIONS = [
    ((), native_spec.TOP_KEYS),
    (("$defs", "long_file"), native_spec.FILE_KEYS),
    (("$defs", "source"), native_spec.SOURCE_KEYS),
    (("$defs", "defaults"), native_spec.SHARED_KEYS),
    (("$defs", "job"), native_spec.JOB_KEYS),
    (("$defs", "type"), native_spec.TYPE_KEYS),
    (("$defs", "param"), native_spec.PARAM_KEYS),
    (("$defs", "input"), native_spec.INPUT_KEYS),
    (("$defs", "output"), native_spec.OUTPUT_KEYS),
    (("$defs", "output_value"), native_spec.OUTPUT_VALUE_KEYS),
    (("$defs", "hint"), native_spec.HINT_KEYS),
    *((("$defs", f"origin_{kind}"), keys) for kind, keys in native_spec.ORIGIN_KEYS.items()),
]


@pytest.mark.parametrize(("path", "keys"), SECTIONS, ids=["/".join(path) or "top" for path, _ in SECTIONS])
def test_schema_and_reader_know_the_same_keys(path, keys):
    section = SCHEMA
    for name in path:
        section = section[name]
    assert set(section["properties"]) == set(keys)
    assert section["additionalProperties"] is False


@pytest.mark.parametrize(
    "key", sorted({*native_spec.TOP_KEYS, *native_spec.JOB_KEYS, *native_spec.FILE_KEYS, *native_spec.HINT_KEYS, *native_spec.PARAM_KEYS})
)
def test_the_page_names_every_key(key):
    assert re.search(rf"`[^`]*\b{key}\b[^`]*`", PAGE)


@pytest.mark.parametrize(
    "text",
    [
        "stager: 1\njobs: {a: {run: x, inptus: [b]}}",
        "stager: 1\njobs: {a: {run: x, cores: 0}}",
        "stager: 2\njobs: {a: {run: x}}",
        "stager: 1\njobs: {}",
        "stager: 1\njobs: {a: {run: x, outputs: [{to: 'here:x'}]}}",
        "stager: 1\norigins: {o: {url: 's3://b', secret_access_key: x}}\njobs: {a: {run: x}}",
        "stager: 1\norigins: {o: {url: 's3://b', credentials: x}}\njobs: {a: {run: x}}",
        "stager: 1\non_failure: stopp\njobs: {a: {run: x}}",
        "stager: 1\njobs: {a: {outputs: [b]}}",
        "stager: 1\nengine: airflow\njobs: {a: {run: x, outputs: [b]}}",
        "stager: 1\nengine: airflow\ndefaults: {retries: 3}\njobs: {a: {outputs: [b]}}",
        "stager: 1\nengine: airflow\ndefaults: {shell: sh}\njobs: {a: {outputs: [b]}}",
        "stager: 1\njobs: {a: {run: x, shell: zsh}}",
        "stager: 1\njobs: {a: {run: x, shell: []}}",
        "stager: 1\nengine: Air Flow\njobs: {a: {outputs: [b]}}",
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(tmp_path, text):
    assert errors_of(text)
    (tmp_path / "w.yml").write_text(text)
    with pytest.raises(WorkflowInvalid):
        native.read(tmp_path / "w.yml")


def test_the_quickstart_runs_as_it_is_written(tmp_path):
    """Each job by hand, in a directory of exactly its inputs: what it declares is what it makes."""
    workflow = read_workflow(QUICKSTART, access=DirectoryAccess(tmp_path))
    assert errors_of(QUICKSTART.read_text()) == []
    made = {lfn: QUICKSTART.parent / file.sources[0].location.path for lfn, file in workflow.files.items() if file.is_external}
    for number, job in enumerate(workflow.jobs.values()):
        sandbox = tmp_path / str(number)
        for entry in job.inputs:
            (sandbox / entry.path).parent.mkdir(parents=True, exist_ok=True)
            (sandbox / entry.path).write_bytes(made[entry.lfn].read_bytes())
        subprocess.run(job.command, cwd=sandbox, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"} | dict(job.env), check=True)
        made |= {output.lfn: sandbox / output.path for output in job.outputs}
    lines = made["words.txt"].read_text().splitlines()
    assert lines[:2] == ["13 the", "6 in"]
    assert workflow.files["words.txt"].is_final
