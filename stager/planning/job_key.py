"""The key of a job: all that bears on what it makes, part by part, and the digest over it. Two jobs of one key make the same.

May know: the model. One rule: what a job is called, where its files come from and go to, what it may take of a machine and how often it is
tried bears on nothing that it makes, and is in no key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from stager.model.files import FileKind
from stager.model.ids import digest_of
from stager.model.workflow import CONDA_PATH, IMAGE_PATH, PLAIN_SH, VENV_PATH, Job, Workflow

# Another version never meets the keys of this one.
KEY_VERSION = "1"
PASSED = "passed variable "
INPUT, OUTPUT = "input ", "output "
SURROUNDINGS = {IMAGE_PATH: "container", VENV_PATH: "venv", CONDA_PATH: "conda"}
# By name, each as text. A passed variable has the keyed digest of its value.
Parts = dict[str, str]


@dataclass(frozen=True, slots=True)
class JobKey:
    digest: str
    parts: Parts


@dataclass(frozen=True, slots=True)
class Difference:
    """None: it has no such part."""

    part: str
    before: str | None
    now: str | None

    @property
    def text(self) -> str:
        if self.part.startswith(PASSED) and None not in (self.before, self.now):
            return f"{self.part}: its value differs"
        return f"{self.part}: {shown(self.before)} before, {shown(self.now)} now"


def shown(value: str | None) -> str:
    return "none" if value is None else value if value and "\n" not in value and " " not in value else json.dumps(value, ensure_ascii=False)


def unknown_input(job: Job, contents: Mapping[str, str]) -> str | None:
    """The first input whose content nobody knows. None: all are known."""
    return next((entry.lfn for entry in job.inputs if not contents.get(entry.lfn)), None)


def unknown_variable(job: Job, passed: Mapping[str, str]) -> str | None:
    return next((name for name in job.env_pass if name not in passed), None)


def key_of(workflow: Workflow, job: Job, contents: Mapping[str, str], passed: Mapping[str, str]) -> JobKey:
    """`contents`: the BLAKE3 of each input. `passed`: of each variable of `env_pass` the keyed digest of its value; empty where the
    submitter has none. All that the job names must be there.
    """
    parts = parts_of(workflow, job, contents, passed)
    return JobKey(digest_of_parts(parts), parts)


def parts_of(workflow: Workflow, job: Job, contents: Mapping[str, str], passed: Mapping[str, str]) -> Parts:
    """As for `key_of`. `contents` may be anything that is the same for two inputs exactly where their contents are."""
    parts: Parts = {}
    if job.shell and not job.argv:
        parts["shell"] = json.dumps(job.interpreter or PLAIN_SH)
        parts["command"] = job.shell
    else:
        parts["program"] = json.dumps(job.argv, ensure_ascii=False)
    for name in ("stdin", "stdout", "stderr"):
        if (value := getattr(job, name)) is not None:
            parts[name] = value
    for name, value in job.env:
        parts[f"variable {name}"] = value
    for name in job.env_pass:
        parts[PASSED + name] = passed[name]
    for entry in job.inputs:
        file = workflow.files[entry.lfn]
        parts[SURROUNDINGS.get(entry.path, INPUT + entry.path)] = (
            contents[entry.lfn] + (" executable" if file.executable else "") + of_kind(file.kind)
        )
    for output in job.outputs:
        file = workflow.files[output.lfn]
        parts[OUTPUT + output.path] = ("optional" if output.optional else "made") + of_kind(file.kind)
    return parts


def of_kind(kind: FileKind) -> str:
    return " directory" if kind is FileKind.DIRECTORY else ""


def digest_of_parts(parts: Parts) -> str:
    return digest_of("job", KEY_VERSION, *[word for name in sorted(parts) for word in (name, parts[name])])


def differences(before: Parts, now: Parts) -> list[Difference]:
    """In the order of the parts as they are now; those that are gone last."""
    names = [*now, *(name for name in before if name not in now)]
    return [Difference(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)]
