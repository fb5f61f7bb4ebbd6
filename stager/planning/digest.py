"""What tells whether two workflows are the same to a plan and to a run.

May know: the model. One rule: a digest of a workflow that was planned before never changes, whatever its classes look like by now.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

from stager.model.files import File
from stager.model.ids import digest_of
from stager.model.workflow import Workflow


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
    for table in (workflow.origins, workflow.hints, workflow.files, workflow.jobs):
        for _, value in sorted(table.items(), key=itemgetter(0)):
            running = digest_of(running, repr(ageless(value)))
        running = digest_of(running, str(len(table)))
    for job_id, job in sorted(workflow.jobs.items(), key=itemgetter(0)):
        if job.interpreter:
            running = digest_of(running, job_id, *job.interpreter)
    return running


def ageless(value: object) -> object:
    """A file without the word on whether its inputs had settled when they were listed: that changes by itself."""
    if not isinstance(value, File) or all(source.settled for source in value.sources):
        return value
    return replace(value, sources=tuple(replace(source, settled=True) for source in value.sources))
