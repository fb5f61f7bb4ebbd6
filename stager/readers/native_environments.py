"""`venv:` and `conda:` of a job: the lock file of the packages that its environment has.

May know: forms, references. One rule: the lock file is an input like any other, so that its content is in the key of the job.
"""

from __future__ import annotations

import re

from stager.readers.native_form import Fields
from stager.readers.native_references import Names
from stager.readers.native_spec import InputSpec, JobSettings

NO_ENVIRONMENT = "none"
# What other systems have for `conda:`: a file that is solved, or packages themselves (`bioconda::bwa=0.7.15`).
WISHED = re.compile(r".*(?:\.ya?ml|pixi\.lock)\Z|(?:[\w.-]+::)?[\w.-]+\s*[=<>~!]|[\w.-]+::[\w.-]+")
HOW = (
    "a lock file lists what is installed, with digests: write it with `conda list --explicit --sha256`, "
    "`micromamba env export --explicit`, `conda-lock -k explicit` or `pixi workspace export conda-explicit-spec`, and name that"
)


def read_locks(fields: Fields, names: Names, base: JobSettings, container: InputSpec | None) -> tuple[InputSpec | None, InputSpec | None]:
    """(of `venv`, of `conda`). `container`: the one that the job has; an image brings its own packages."""
    venv, conda = read_lock(fields, names, "venv", base.venv), read_lock(fields, names, "conda", base.conda)
    there = [name for name, each in (("venv", venv), ("conda", conda), ("container", container)) if each is not None]
    if len(there) > 1:
        name = next((name for name in there if fields.get(name) is not None), there[0])
        text = f"a job has the packages of one of {', '.join(there[:-1])} and {there[-1]}; leave the others out, or write none for them"
        fields.form.findings.note(fields.place(name), fields.at(name), text)
    return venv, conda


def read_lock(fields: Fields, names: Names, name: str, base: InputSpec | None) -> InputSpec | None:
    node, key = fields.get(name), fields.at(name)
    if node is None:
        return base
    if node.kind == "scalar" and node.text == NO_ENVIRONMENT:
        return None
    if name == "conda" and node.kind == "scalar" and WISHED.match(node.text):
        fields.form.findings.note(node.place, key, f"{node.text} says what to install, and not what exactly; {HOW}")
        return None
    reference = names.reference(node, key)
    if reference is None:
        return None
    if reference.glob or reference.directory:
        fields.form.findings.note(node.place, key, "a lock file is one file; name it")
        return None
    return InputSpec(reference, node.place, key)
