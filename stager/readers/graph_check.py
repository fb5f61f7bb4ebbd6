"""What a workflow's graph must be, whatever it was written in.

May know: model, paths. One rule: it gives all findings, each with the job and file it is about; whoever read the file knows where that
stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from stager.model.workflow import CycleFound, Job, Workflow, graph_of
from stager.readers.paths import ancestors


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
    """Finals land beside each other and beside what the run reads, never on it. Places are compared as URLs, so two origins over one
    directory are seen."""
    bases = {name: unquote(origin.url).rstrip("/") for name, origin in workflow.origins.items()}
    finals: dict[str, str] = {}
    for lfn, file in workflow.files.items():
        if file.destination is None:
            continue
        location = file.destination.location
        url = f"{bases.get(location.origin, location.origin)}/{location.path}"
        other = finals.setdefault(url, lfn)
        if other != lfn:
            yield GraphFinding(
                f"{lfn!r} and {other!r} have the same destination {location.origin}:{location.path}; give each its own", lfn=lfn
            )
    yield from check_beside(finals, workflow)
    if finals:
        yield from check_sources(finals, bases, workflow)


def check_beside(finals: Mapping[str, str], workflow: Workflow) -> Iterator[GraphFinding]:
    for url, lfn in finals.items():
        for above in ancestors(url):
            if above in finals:
                yield GraphFinding(f"the destination of {lfn!r} lies inside that of {finals[above]!r}; give it another directory", lfn=lfn)
                break


def check_sources(finals: Mapping[str, str], bases: Mapping[str, str], workflow: Workflow) -> Iterator[GraphFinding]:
    above_finals = {above: url for url in finals for above in ancestors(url)}
    for file in workflow.files.values():
        for source in file.sources:
            url = f"{bases.get(source.location.origin, source.location.origin)}/{source.location.path}"
            shown = f"{source.location.origin}:{source.location.path}"
            if url in finals:
                yield GraphFinding(
                    f"final {finals[url]!r} would overwrite {shown}, which this run reads; choose another destination", lfn=finals[url]
                )
            elif url in above_finals:
                lfn = finals[above_finals[url]]
                yield GraphFinding(
                    f"the destination of {lfn!r} lies below {shown}, which is a file that this run reads; choose another", lfn=lfn
                )
            for above in ancestors(url):
                if above in finals and workflow.files[finals[above]].kind == "directory":
                    message = f"directory {finals[above]!r} would be written over {shown}, which this run reads; choose another destination"
                    yield GraphFinding(message, lfn=finals[above])
                    break
