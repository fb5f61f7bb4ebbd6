"""A digest that tells whether two workflows are the same to a plan and to a run.

May know: the model. One rule: a digest of a workflow that was planned before never changes, whatever its classes look like by now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from stager.model.files import File
from stager.model.ids import digest_along, digest_of
from stager.model.workflow import Workflow

Value = TypeVar("Value")


def workflow_digest(workflow: Workflow) -> str:
    """Changes when anything changes that a plan or a run depends on: jobs, files, tokens, origins. Not when only the order of writing does,
    nor with the age of an input. Made once: each plan of a workflow asks for it.
    """
    digest: str | None = getattr(workflow, "digest", None)
    if digest is None:
        digest = digested(workflow)
        object.__setattr__(workflow, "digest", digest)
    return digest


def digested(workflow: Workflow) -> str:
    who = (workflow.engine,) if workflow.engine else ()
    running = digest_of(workflow.name, workflow.on_failure.value, workflow.spill_origin or "", *who)
    running = with_table(running, workflow.origins, repr)
    running = with_table(running, workflow.hints, repr)
    running = with_table(running, workflow.files, text_of)
    running = with_table(running, workflow.jobs, repr)
    for job_id in sorted([job.id for job in workflow.jobs.values() if job.interpreter]):
        running = digest_of(running, job_id, *workflow.jobs[job_id].interpreter)
    return running


def with_table(running: str, table: Mapping[str, Value], text: Callable[[Value], str]) -> str:
    running = digest_along(running, map(text, map(table.__getitem__, sorted(table))))
    return digest_of(running, str(len(table)))


def text_of(file: File) -> str:
    """Without the word on whether its inputs had settled when they were listed: that changes by itself."""
    for source in file.sources:
        if not source.settled:
            return repr(replace(file, sources=tuple(replace(source, settled=True) for source in file.sources)))
    return repr(file)
