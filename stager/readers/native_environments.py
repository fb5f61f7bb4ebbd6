"""`venv:` of a job: the lock file of the packages that its environment has.

May know: forms, references. One rule: the lock file is an input like any other, so that its content is in the key of the job.
"""

from __future__ import annotations

from stager.readers.native_form import Fields
from stager.readers.native_references import Names
from stager.readers.native_spec import InputSpec

NO_ENVIRONMENT = "none"


def read_venv(fields: Fields, names: Names, base: InputSpec | None, container: InputSpec | None) -> InputSpec | None:
    """`container`: the one that the job has; an image brings its own packages."""
    node, key = fields.get("venv"), fields.at("venv")
    found = base
    if node is not None and node.kind == "scalar" and node.text == NO_ENVIRONMENT:
        return None
    if node is not None:
        reference = names.reference(node, key)
        if reference is None:
            return None
        if reference.glob or reference.directory:
            fields.form.findings.note(node.place, key, "a lock file is one file; name it")
            return None
        found = InputSpec(reference, node.place, key)
    if found is not None and container is not None:
        name = "venv" if node is not None else "container"
        text = "a job in a container has the packages of its image; leave one of venv and container out, or write none for it"
        fields.form.findings.note(fields.place(name), fields.at(name), text)
    return found
