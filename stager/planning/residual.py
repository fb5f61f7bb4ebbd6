"""The plan of a run of which earlier runs made a part: made for the jobs that run, and widened to all jobs of the workflow.

May know: the model, plans. One rule: jobs that are reused stand in the plan without time, each behind those it depends on, with room set
aside as if they ran: should one have to after all, the order still fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from heapq import heappop, heappush

from msgspec import structs

from stager.model.files import File, Location, Source
from stager.model.workflow import Origin, OriginKind, Workflow, graph_of
from stager.planning.digest import workflow_digest
from stager.planning.plan import Access, Basis, FilePlan, JobPlan, Plan, tidy
from stager.planning.reuse import Reuse

# Stands in the plan for the nodes that keep what earlier runs made: it is there already, and nothing is fetched.
KEPT = Origin("kept results", OriginKind.FILE, "file:///")


def residual(workflow: Workflow, reuse: Reuse) -> Workflow:
    """Of the jobs that run alone. What reused jobs made and these read comes from where it lies."""
    graph = graph_of(workflow)
    jobs = {
        job_id: replace(job, after=tuple(other for other in job.after if other in reuse.runs))
        for job_id, job in workflow.jobs.items()
        if job_id in reuse.runs
    }
    files: dict[str, File] = {}
    used = dict.fromkeys(lfn for job in jobs.values() for lfn in job.lfns)
    for lfn in used:
        file = workflow.files[lfn]
        files[lfn] = as_source(file, reuse) if graph.producer.get(lfn) in reuse.reused else file
    origins = workflow.origins | {KEPT.name: KEPT} if reuse.kept else workflow.origins
    return replace(workflow, jobs=jobs, origins=origins, files={lfn: files[lfn] for lfn in workflow.files if lfn in files})


def as_source(file: File, reuse: Reuse) -> File:
    if (kept := reuse.kept.get(file.lfn)) is not None:
        source = Source(Location(KEPT.name, kept.file), kept.size_bytes, kept.blake3)
        return replace(file, size_bytes=kept.size_bytes, sources=(source,))
    held, destination = reuse.held[file.lfn], file.destination
    assert destination is not None
    source = Source(destination.location, held.size_bytes, held.token)
    return replace(file, size_bytes=held.size_bytes, sources=(source,), destination=None)


def widened(plan: Plan, workflow: Workflow, reuse: Reuse, node: str) -> Plan:
    """`plan`: of the residual workflow. `node`: where reused jobs would run, should one have to."""
    sizes = sizes_of(workflow, reuse, plan)
    planned = {entry.job: entry for entry in plan.jobs}
    order = whole_order(workflow, planned)
    place = {job_id: number for number, job_id in enumerate(order)}
    jobs = [
        structs.replace(planned[job_id], order=place[job_id])
        if job_id in planned
        else reused_job(workflow, reuse, job_id, order=place[job_id], node=node, sizes=sizes)
        for job_id in order
    ]
    readers = graph_of(workflow).readers
    known = {entry.lfn: entry for entry in plan.files}
    files = []
    for lfn in sorted(workflow.files):
        uses = [place[job_id] for job_id in readers[lfn]]
        first, last = (min(uses), max(uses)) if uses else (-1, -1)
        if lfn in known:
            token = "" if lfn in reuse.kept else known[lfn].token
            files.append(structs.replace(known[lfn], first_use=first, last_use=last, token=token))
        else:
            sources = workflow.files[lfn].sources
            token = (sources[0].token or "") if sources else ""
            files.append(FilePlan(lfn, sizes[lfn], Basis.MEASURED, Access.LINK, node, 1, first, last, token, sizes[lfn], 1.0))
    kept_bytes = sum(known[lfn].expected_bytes for lfn in reuse.kept if lfn in known)
    links = tuple(link for link in plan.links if link.origin != KEPT.name)
    whole = replace(plan, workflow_digest=workflow_digest(workflow), jobs=tuple(jobs), files=tuple(files))
    lent_bytes = sum(kept.size_bytes for kept in reuse.lent.values())
    fetch_bytes, upload_bytes = max(0, plan.fetch_bytes - kept_bytes), plan.upload_bytes + lent_bytes
    return replace(whole, links=links, fetch_bytes=fetch_bytes, upload_bytes=upload_bytes)


def sizes_of(workflow: Workflow, reuse: Reuse, plan: Plan) -> dict[str, int]:
    """Of each file: as it was listed, as it was made, or as the plan has it. An optional output that was not made has none."""
    sizes = {lfn: file.size_bytes or 0 for lfn, file in workflow.files.items()}
    sizes |= {entry.lfn: entry.size_bytes for entry in plan.files}
    for job_id, result in reuse.reused.items():
        made = {output.path: output.size_bytes for output in result.outputs}
        sizes |= {output.lfn: made.get(output.path, 0) for output in workflow.jobs[job_id].outputs}
    return sizes


def whole_order(workflow: Workflow, planned: Mapping[str, JobPlan]) -> list[str]:
    """All jobs, each behind those it depends on: reused ones as soon as they can be, the others as they were planned."""
    graph = graph_of(workflow)
    left = {job_id: len(above) for job_id, above in graph.parents.items()}
    ready: list[tuple[int, int]] = []
    names = list(workflow.jobs)
    numbers = {job_id: number for number, job_id in enumerate(names)}

    def offer(job_id: str) -> None:
        heappush(ready, (planned[job_id].order + 1 if job_id in planned else 0, numbers[job_id]))

    for job_id, count in left.items():
        if not count:
            offer(job_id)
    order = []
    while ready:
        job_id = names[heappop(ready)[1]]
        order.append(job_id)
        for child in graph.children[job_id]:
            left[child] -= 1
            if not left[child]:
                offer(child)
    return order


def reused_job(workflow: Workflow, reuse: Reuse, job_id: str, *, order: int, node: str, sizes: Mapping[str, int]) -> JobPlan:
    job = workflow.jobs[job_id]
    reserve_bytes = sum(sizes[output.lfn] for output in job.outputs)
    footprint_bytes = reserve_bytes + sum(sizes[lfn] for lfn in dict.fromkeys(entry.lfn for entry in job.inputs))
    compute_s, measured = reuse.reused[job_id].compute_s or 0.0, Basis.MEASURED
    return JobPlan(job_id, order, 0.0, node, 0.0, 0.0, tidy(compute_s), measured, reserve_bytes, footprint_bytes, measured, 1.0)
