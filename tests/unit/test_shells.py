"""`shell:`: which program reads the text of a job, and what it makes of a command that fails. The shells are real."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from stager.model.workflow import Job, Workflow
from stager.planning.digest import workflow_digest
from stager.readers import native, shells
from stager.readers.lines import WorkflowInvalid

BASH = shells.find_bash()
WRONG = "zcat nosuch.gz | sort > t; false; cp t a.txt"


def read(place: Path, body: str) -> Workflow:
    (place / "w.yml").write_text("stager: 1\n" + body)
    return native.read(place / "w.yml")


def refused(place: Path, body: str) -> str:
    with pytest.raises(WorkflowInvalid) as caught:
        read(place, body)
    return str(caught.value)


def run(job: Job, place: Path) -> int:
    return subprocess.run(job.command, cwd=place, env={"PATH": "/usr/bin:/bin"}, capture_output=True, timeout=60).returncode


@pytest.mark.parametrize("text", [WRONG, "false; true", "false | cat", "cat $NOSUCH_VARIABLE; true"])
def test_whatever_fails_in_a_text_ends_it(tmp_path: Path, text: str) -> None:
    job = read(tmp_path, f"jobs: {{a: {{run: '{text}'}}}}").jobs["a"]
    assert run(job, tmp_path) != 0 and not (tmp_path / "a.txt").exists()


@pytest.mark.parametrize("text", ["false || true", "if false; then :; fi; true", "test -e nosuch && false; true", "echo ${NOSUCH:-}"])
def test_what_may_fail_does_not_end_it(tmp_path: Path, text: str) -> None:
    assert run(read(tmp_path, f"jobs: {{a: {{run: '{text}'}}}}").jobs["a"], tmp_path) == 0


def test_the_shell_of_a_job_is_said_for_all_or_for_one(tmp_path: Path) -> None:
    body = """defaults: {shell: sh}
jobs:
  a: {run: 'true'}
  b: {run: 'true', shell: bash}
  c: {run: 'true', shell: [/bin/sh, -c]}
  d: {run: ['true']}
"""
    jobs = read(tmp_path, body).jobs
    assert [job.command[:-1] for job in jobs.values()] == [
        ("/bin/sh", "-eu", "-c"),
        (BASH or "bash", "-euo", "pipefail", "-c"),
        ("/bin/sh", "-c"),
        (),
    ]
    loose = read(tmp_path, f"jobs: {{a: {{run: '{WRONG}', shell: [/bin/sh, -c]}}}}").jobs["a"]
    assert run(loose, tmp_path) == 0


def test_without_bash_the_strictest_there_is_runs_and_it_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(tmp_path, "jobs: {a: {run: 'true'}}").notes == ()
    monkeypatch.setattr(shells, "BASH_PLACES", (str(tmp_path / "bash"),))
    workflow = read(tmp_path, "jobs: {a: {run: 'true'}, b: {run: 'true', shell: sh}}")
    assert workflow.jobs["a"].interpreter == ("/bin/sh", "-eu", "-c")
    (note,) = workflow.notes
    assert "'a'" in note and "no bash" in note and "pipeline" in note
    assert read(tmp_path, "jobs: {b: {run: 'true', shell: sh}, c: {run: ['true']}}").notes == ()


def test_values_reach_a_text_that_no_shell_reads_by_its_environment(tmp_path: Path) -> None:
    python = "shell: [python3, -c]"
    body = f"""jobs: {{a: {{foreach: {{tile: ["it's"]}}, run: 'import os; print(os.environ["tile__stem"], {{"{{x}}": 1}})', {python}}}}}"""
    (job,) = read(tmp_path, body).jobs.values()
    assert job.shell.startswith("import os") and dict(job.env)["tile__stem"] == "it's"
    said = refused(tmp_path, f"jobs: {{a: {{foreach: {{tile: [x]}}, run: 'print(\"{{tile.stem}}\")', {python}}}}}")
    assert "python3" in said and "variable tile__stem" in said


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("jobs: {a: {run: x, shell: zsh}}", "choose bash or sh"),
        ("jobs: {a: {run: x, shell: []}}", "as in [/bin/sh, -c]"),
        ("jobs: {a: {run: [x], shell: sh}}", "leave 'shell' out"),
        ("engine: airflow\njobs: {a: {outputs: [x], shell: sh}}", "'shell' would mean nothing"),
        ("engine: airflow\ndefaults: {shell: sh}\njobs: {a: {outputs: [x]}}", "'shell' would mean nothing"),
    ],
)
def test_what_is_no_shell_is_refused(tmp_path: Path, body: str, words: str) -> None:
    assert words in refused(tmp_path, body)


def test_another_shell_is_another_workflow_and_old_plans_keep_their_digest(tmp_path: Path) -> None:
    workflow = read(tmp_path, "jobs: {a: {run: 'true'}}")
    old = replace(workflow, jobs={"a": replace(workflow.jobs["a"], interpreter=())})
    assert old.jobs["a"].command == ("/bin/sh", "-c", "true")
    assert workflow_digest(old) != workflow_digest(workflow)
    assert "interpreter" not in repr(workflow.jobs["a"]), "what is shown of a job is what digests of older plans were made of"
