"""`container:` of native workflows: the nearest wins, and the image is an input."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.workflow import IMAGE_PATH, Workflow
from stager.planning.digest import workflow_digest
from stager.planning.job_key import differences, key_of
from stager.readers.lines import WorkflowInvalid
from stager.readers.sniff import read_workflow
from tests.unit.reader_origins import DirectoryAccess

HEAD = "stager: 1\n"


def read(place: Path, text: str) -> Workflow:
    for name in ("a.tar", "b.sif", "c.tar"):
        (place / name).write_text(name)
    (place / "w.yml").write_text(HEAD + text)
    return read_workflow(place / "w.yml", access=DirectoryAccess(place))


def refusal(place: Path, text: str) -> str:
    with pytest.raises(WorkflowInvalid) as caught:
        read(place, text)
    return str(caught.value)


def test_the_nearest_word_wins_and_none_switches_off(tmp_path: Path) -> None:
    text = """
files: {tools: here:a.tar}
types: {kind: {container: here:b.sif, run: 'true'}}
defaults: {container: tools}
jobs:
  plain: {run: 'true'}
  typed: {type: kind}
  own: {type: kind, container: here:c.tar}
  off: {run: 'true', container: none}
  each: {foreach: {image: [a, c]}, run: 'true', container: "here:{image}.tar"}
"""
    workflow = read(tmp_path, text)
    images = {job.id: job.image for job in workflow.jobs.values()}
    assert images == {"plain": "tools", "typed": "b.sif", "own": "c.tar", "off": None, "each[a]": "tools", "each[c]": "c.tar"}
    assert workflow.jobs["plain"].inputs[-1].path == IMAGE_PATH and workflow.files["tools"].is_external
    assert workflow.files["b.sif"].size_bytes == 5, "it is priced as any input"


def test_its_shell_is_the_images_own(tmp_path: Path) -> None:
    text = """
defaults: {container: here:a.tar}
jobs:
  plain: {run: 'true'}
  named: {run: 'true', shell: bash}
  sh: {run: 'true', shell: sh}
  other: {run: 'print()', shell: [python3, -c]}
  argv: {run: [tool]}
"""
    jobs = read(tmp_path, text).jobs
    assert jobs["plain"].command == jobs["named"].command == ("bash", "-euo", "pipefail", "-c", "true")
    assert jobs["sh"].command[0] == "/bin/sh" and jobs["other"].command[0] == "python3" and jobs["argv"].command == ("tool",)


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    job = "jobs: {a: {run: 'true', container: %s}}\n"
    told = refusal(tmp_path, job % '"docker://host/tools:1"')
    assert "no images of registries are pulled here" in told and "skopeo copy docker://host/tools:1 docker-archive:image.tar" in told
    assert "stager knows docker:// alone" in refusal(tmp_path, job % '"oras://host/tools:1"')
    assert "an image is one file" in refusal(tmp_path, job % '"here:*.tar"')
    assert "missing" in refusal(tmp_path, job % '"here:nosuch.tar"')
    assert "there is no" in refusal(tmp_path, job % "nosuch") or "nosuch" in refusal(tmp_path, job % "nosuch")
    told = refusal(tmp_path, "engine: airflow\njobs: {a: {container: here:a.tar}}\n")
    assert "airflow runs the jobs of this workflow" in told


def test_another_image_is_another_job(tmp_path: Path) -> None:
    text = "jobs: {a: {run: [tool], container: %s, outputs: [x]}}\n"
    with_image, without = read(tmp_path, text % "here:a.tar"), read(tmp_path, text % "none")
    assert workflow_digest(with_image) != workflow_digest(without)
    keys = [key_of(with_image, with_image.jobs["a"], {"a.tar": content}, {}) for content in ("one", "two")]
    assert [each.part for each in differences(keys[0].parts, keys[1].parts)] == ["container"]
