"""A plan with its jobs in another order than the planner's, for a run that is under way.

May know: the model, plans. One rule: the order is one in which each job stands behind those it waits for; times stay predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from stager.model.workflow import Workflow, graph_of
from stager.planning.plan import Access, FilePlan, Plan


def reordered(workflow: Workflow, plan: Plan, order: Sequence[str], before: Mapping[str, FilePlan]) -> Plan:
    """`before`: files as they were planned so far. They are read in the same way, and are to be on as many nodes. No other is read
    directly.
    """
    place = {job_id: number for number, job_id in enumerate(order)}
    planned = {entry.job: entry for entry in plan.jobs}
    readers = graph_of(workflow).readers
    files: list[FilePlan] = []
    for entry in plan.files:
        uses = [place[job_id] for job_id in readers[entry.lfn]]
        first, last = (min(uses), max(uses)) if uses else (-1, -1)
        known = before.get(entry.lfn)
        if known is not None:
            entry = structs.replace(entry, access=known.access, safe_copies=known.safe_copies, must_copy=known.must_copy)
        elif entry.access is Access.DIRECT:
            entry = structs.replace(entry, access=Access.LINK)
        files.append(structs.replace(entry, first_use=first, last_use=last))
    jobs = tuple([structs.replace(planned[job_id], order=number) for number, job_id in enumerate(order)])
    return replace(plan, jobs=jobs, files=tuple(files))
