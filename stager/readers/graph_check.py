"""The rules for a workflow's graph, whatever it was written in.

May know: the model. One rule: it gives all findings, each with the job and file it is about; whoever read the file knows where that
stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stager.model.places import ancestors
from stager.model.workflow import CycleFound, Job, OriginKind, Workflow, final_places, graph_of


@dataclass(frozen=True, slots=True)
class GraphFinding:
    message: str
    job: str = ""
    path: str = ""
    role: str = ""
    lfn: str = ""


def check_graph(workflow: Workflow) -> list[GraphFinding]:
    """Empty means: every promise that planning relies on holds."""
    findings = [] if workflow.jobs else [GraphFinding("the workflow has no jobs")]
    for job in workflow.jobs.values():
        findings += check_sandbox(job)
        findings += [
            GraphFinding(f"there is no job {name!r} to wait for", job.id, role="after") for name in job.after if name not in workflow.jobs
        ]
    findings += check_producers(workflow)
    if not findings:
        findings += check_cycles(workflow)
    findings += check_destinations(workflow)
    return findings


def check_sandbox(job: Job) -> Iterator[GraphFinding]:
    """Every path of a sandbox stands for one thing, and nothing lies below a file or in a directory output."""
    taken: dict[str, tuple[str, str]] = {}
    nested = False
    for role, entries in (("input", job.inputs), ("output", job.outputs)):
        for entry in entries:
            nested = nested or "/" in entry.path
            if entry.path not in taken:
                taken[entry.path] = (role, entry.lfn)
                continue
            other_role, other = taken[entry.path]
            if role == other_role == "input":
                message = f"two inputs at {entry.path!r} in the sandbox: {other!r} and {entry.lfn!r}; put one elsewhere with 'as'"
            elif role == other_role:
                message = f"the output {entry.path!r} is listed twice; leave one out"
            else:
                message = f"{entry.path!r} is an input and an output; inputs are never changed, so write the result under another name"
            yield GraphFinding(message, job.id, entry.path, role, entry.lfn)
    if nested:
        yield from check_nesting(job, taken)


def check_nesting(job: Job, taken: Mapping[str, tuple[str, str]]) -> Iterator[GraphFinding]:
    for path, (role, lfn) in taken.items():
        for above in ancestors(path):
            if above in taken:
                message = f"{role} {path!r} lies inside {taken[above][0]} {above!r}; choose a path beside it"
                yield GraphFinding(message, job.id, path, role, lfn)
                break


def check_producers(workflow: Workflow) -> Iterator[GraphFinding]:
    producer: dict[str, str] = {}
    for job in workflow.jobs.values():
        for output in job.outputs:
            if workflow.files[output.lfn].is_external:
                message = f"{output.lfn!r} is made here, and comes from an origin as well; rename one of them"
                yield GraphFinding(message, job.id, output.path, "output", output.lfn)
            elif producer.setdefault(output.lfn, job.id) != job.id:
                message = f"{output.lfn!r} has two producers: {producer[output.lfn]!r} and {job.id!r}; give each its own name"
                yield GraphFinding(message, job.id, output.path, "output", output.lfn)


def check_cycles(workflow: Workflow) -> Iterator[GraphFinding]:
    try:
        graph_of(workflow)
    except CycleFound as cycle:
        makes = {output.lfn: job.id for job in (workflow.jobs[name] for name in cycle.jobs) for output in job.outputs}
        steps = []
        for parent, child in zip(cycle.jobs, cycle.jobs[1:], strict=False):
            shared = next((entry.lfn for entry in workflow.jobs[child].inputs if makes.get(entry.lfn) == parent), None)
            steps.append(f"{child!r} waits for {parent!r}" + (f" by {shared!r}" if shared else " by 'after'"))
        message = f"jobs wait for each other in a circle: {', '.join(steps)}; take one of these away"
        yield GraphFinding(message, cycle.jobs[-1])


def check_destinations(workflow: Workflow) -> Iterator[GraphFinding]:
    """Finals land beside each other and beside what the run reads, never on it, also where two origins stand for one directory."""
    finals: dict[str, str] = {}
    for lfn, place in final_places(workflow):
        other = finals.setdefault(place, lfn)
        if other != lfn:
            destination = workflow.files[lfn].destination
            shown = f"{destination.location.origin}:{destination.location.path}" if destination is not None else place
            yield GraphFinding(f"{lfn!r} and {other!r} have the same destination {shown}; give each its own", lfn=lfn)
    yield from check_beside(finals)
    yield from check_names(workflow)
    if finals:
        yield from check_sources(finals, workflow)


def check_names(workflow: Workflow) -> Iterator[GraphFinding]:
    """Names that an origin of the kind cannot hold at all (ionode/origins: object_store's PathPart refuses ASCII control characters)."""
    for lfn, file in workflow.files.items():
        if file.destination is None or (path := file.destination.location.path).isprintable():
            continue
        origin = workflow.origins.get(file.destination.location.origin)
        if origin is not None and origin.kind is OriginKind.S3 and any(sign < " " or sign == "\x7f" for sign in path):
            shown = f"{origin.name}:{path}"
            message = f"{shown!r} holds a control character, as a newline is one, and no name at an s3 origin may; choose another name"
            yield GraphFinding(message, lfn=lfn)


def check_beside(finals: Mapping[str, str]) -> Iterator[GraphFinding]:
    for place, lfn in finals.items():
        for above in ancestors(place):
            if above in finals:
                yield GraphFinding(f"the destination of {lfn!r} lies inside that of {finals[above]!r}; give it another directory", lfn=lfn)
                break


def check_sources(finals: Mapping[str, str], workflow: Workflow) -> Iterator[GraphFinding]:
    roots = {name: origin.place for name, origin in workflow.origins.items()}
    above_finals = {above: place for place in finals for above in ancestors(place)}
    for file in workflow.files.values():
        for source in file.sources:
            place = f"{roots.get(source.location.origin, source.location.origin)}/{source.location.path}"
            shown = f"{source.location.origin}:{source.location.path}"
            if place in finals:
                yield GraphFinding(
                    f"final {finals[place]!r} would overwrite {shown}, which this run reads; choose another destination", lfn=finals[place]
                )
            elif place in above_finals:
                lfn = finals[above_finals[place]]
                yield GraphFinding(
                    f"the destination of {lfn!r} lies below {shown}, which is a file that this run reads; choose another", lfn=lfn
                )
            for above in ancestors(place):
                if above in finals and workflow.files[finals[above]].kind == "directory":
                    message = f"directory {finals[above]!r} would be written over {shown}, which this run reads; choose another destination"
                    yield GraphFinding(message, lfn=finals[above])
                    break
