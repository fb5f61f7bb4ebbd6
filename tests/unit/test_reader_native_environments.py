"""`venv:` and `conda:` of native workflows: the nearest wins, and the lock file is an input and a part of the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.workflow import CONDA_PATH, VENV_PATH, Workflow
from stager.planning.job_key import differences, key_of
from stager.readers.lines import WorkflowInvalid
from stager.readers.sniff import read_workflow
from tests.unit.reader_origins import DirectoryAccess


def read(place: Path, text: str) -> Workflow:
    for name in ("a.lock", "b.lock", "a.tar"):
        (place / name).write_text(name)
    (place / "w.yml").write_text("stager: 1\n" + text)
    return read_workflow(place / "w.yml", access=DirectoryAccess(place))


TEXT = """
types: {kind: {venv: here:b.lock, run: 'true'}}
defaults: {venv: here:a.lock}
jobs:
  plain: {run: 'true'}
  typed: {type: kind}
  off: {run: 'true', venv: none}
  boxed: {run: 'true', venv: none, container: here:a.tar}
  each: {foreach: {lock: [a, b]}, run: 'true', venv: "here:{lock}.lock"}
"""


def test_the_nearest_word_wins_and_none_switches_off(tmp_path: Path) -> None:
    workflow = read(tmp_path, TEXT)
    locks = {job.id: job.venv for job in workflow.jobs.values()}
    assert locks == {"plain": "a.lock", "typed": "b.lock", "off": None, "boxed": None, "each[a]": "a.lock", "each[b]": "b.lock"}
    assert workflow.jobs["plain"].inputs[-1].path == VENV_PATH and workflow.files["a.lock"].is_external


def test_conda_packages_are_named_as_those_of_python_are(tmp_path: Path) -> None:
    workflow = read(tmp_path, TEXT.replace("venv:", "conda:"))
    locks = {job.id: job.conda for job in workflow.jobs.values()}
    assert locks == {"plain": "a.lock", "typed": "b.lock", "off": None, "boxed": None, "each[a]": "a.lock", "each[b]": "b.lock"}
    assert workflow.jobs["plain"].inputs[-1].path == CONDA_PATH and not any(job.venv for job in workflow.jobs.values())
    before, now = (key_of(workflow, workflow.jobs["plain"], {"a.lock": content}, {}) for content in ("one", "two"))
    assert [each.text for each in differences(before.parts, now.parts)] == ["conda: one before, two now"]


def test_its_content_is_in_the_key_of_the_job(tmp_path: Path) -> None:
    workflow = read(tmp_path, TEXT)
    before, now = (key_of(workflow, workflow.jobs["plain"], {"a.lock": content}, {}) for content in ("one", "two"))
    assert [each.text for each in differences(before.parts, now.parts)] == ["venv: one before, two now"] and before.digest != now.digest


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jobs: {a: {run: x, venv: 'here:*.lock'}}", "2:26: jobs.a.venv: a lock file is one file; name it"),
        ("jobs: {a: {run: x, venv: absent.lock}}", "jobs.a.venv: no job makes 'absent.lock'"),
        (
            "jobs: {a: {run: x, venv: here:a.lock, container: here:a.tar}}",
            "jobs.a.venv: a job has the packages of one of venv and container; leave the others out, or write none for them",
        ),
        (
            "defaults: {venv: here:a.lock}\njobs: {a: {run: x, container: here:a.tar}}",
            "3:31: jobs.a.container: a job has the packages of one",
        ),
        (
            "defaults: {venv: here:a.lock}\njobs: {a: {run: x, conda: here:b.lock}}",
            "3:27: jobs.a.conda: a job has the packages of one of venv",
        ),
        (
            "jobs: {a: {run: x, conda: here:b.lock, container: here:a.tar}}",
            "2:27: jobs.a.conda: a job has the packages of one of conda and",
        ),
        ("jobs: {a: {run: x, conda: 'here:*.lock'}}", "2:27: jobs.a.conda: a lock file is one file; name it"),
        ("jobs: {a: {run: x, conda: env.yml}}", "2:27: jobs.a.conda: env.yml says what to install, and not what exactly; a lock file"),
        ("jobs: {a: {run: x, conda: 'bioconda::bwa=0.7.15 samtools'}}", "bioconda::bwa=0.7.15 samtools says what to install, and not what"),
        ("jobs: {a: {run: x, conda: bwa>=0.7}}", "2:27: jobs.a.conda: bwa>=0.7 says what to install, and not what exactly"),
        ("jobs: {a: {run: x, conda: conda-forge::bwa}}", "2:27: jobs.a.conda: conda-forge::bwa says what to install"),
        ("jobs: {a: {run: x, conda: absent=.lock}}", "2:27: jobs.a.conda: absent=.lock says what to install"),
        ("jobs: {a: {run: x, conda: absent.lock}}", "jobs.a.conda: no job makes 'absent.lock'"),
        ("jobs: {a: {run: x, conda: here:pixi.lock}}", "write it with `conda list --explicit --sha256`"),
        ("jobs: {a: {run: x, micromamba: here:a.lock}}", "jobs.a.micromamba: unknown key; did you mean 'conda'?"),
        ("engine: airflow\njobs: {a: {venv: here:a.lock, outputs: [b]}}", "jobs.a.venv: airflow runs the jobs of this workflow"),
    ],
)
def test_what_cannot_be_is_told_where_it_stands(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(WorkflowInvalid) as caught:
        read(tmp_path, text)
    assert told in str(caught.value), str(caught.value)
