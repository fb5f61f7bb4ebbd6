"""Jobs that are left out by their `when`: what they would have made, for messages about what is missing without them.

May know: spec, paths. One rule: nothing is made of such a job.
"""

from __future__ import annotations

from stager.readers.native_spec import JobSpec, WorkflowSpec
from stager.readers.native_template import Template
from stager.readers.paths import pattern_of


def left_out_maker(spec: WorkflowSpec, name: str) -> str:
    """The job that would make this file; nothing where there is none."""
    return next((told(job) for job in spec.left_out.values() for output in job.outputs if may_be(output.path, name)), "")


def left_out_match(spec: WorkflowSpec, glob: str) -> str:
    """The job that would make what this pattern matches, as the end of a sentence. A foreach may have any value."""
    pattern = pattern_of(glob) if spec.left_out else None
    for job in spec.left_out.values():
        for output in job.outputs:
            if pattern is not None and pattern.fullmatch(output.path.shape):
                return f"; what matches it is made by {told(job)}"
    return ""


def may_be(template: Template, name: str) -> bool:
    """Some values make this name of it. In one pass: names come from strangers."""
    at, ahead = 0, False
    for piece in template.pieces:
        if not isinstance(piece, str):
            ahead = True
            continue
        found = name.find(piece, at) if ahead else at if name.startswith(piece, at) else -1
        if found < 0:
            return False
        at, ahead = found + len(piece), False
    last = template.pieces[-1]
    return ahead or at == len(name) or (isinstance(last, str) and len(template.pieces) > 1 and name.endswith(last))


def told(job: JobSpec) -> str:
    advice = "write the same 'when' here, or take the file from an origin"
    return f"job {job.name!r}, which is left out by its 'when' ({job.when}); {advice}"
