"""What of a workflow need not run, since an earlier run made it and it is still where it is wanted.

May know: the model, keys of jobs. One rule: each input of a job that runs can be had: from its origin, from where it lies as a final, from
a node that keeps it, or of a job that runs. And what a run hands over never comes from two makings of one file, unless the job that made
both is deterministic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from stager.model.errors import InvalidInput
from stager.model.files import FileKind
from stager.model.results import KeptOutput, Result, SeenAt
from stager.model.scatter import Scatter
from stager.model.workflow import Job, JobOutput, Workflow, graph_of
from stager.planning.job_key import JobKey, key_of, unknown_variable

ASKED = "it was asked for (--rerun)"
NO_REUSE = "it is never reused (reuse: false, or deterministic: false)"
NO_OUTPUTS = "it has no outputs: it is run for what it does"
NEVER_MADE = "no run that is remembered made this"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before a run. `contents`: the BLAKE3 of external files by lfn; `unknown`: why that of the others is not. `held`: what
    lies at the destinations of finals under the token that was remembered. `result_of`: by the digest of a key. `passed`: keyed digests of
    the variables of `env_pass`. `kept`: what nodes keep of results, by the digest of a key and the path in the sandbox.
    """

    contents: Mapping[str, str]
    held: Mapping[str, SeenAt]
    result_of: Callable[[str], Result | None]
    passed: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[tuple[str, str], KeptOutput] = field(default_factory=dict)


@dataclass(slots=True)
class Reuse:
    """`reused`: by job, what made it. `runs`: every other job, and why. `keys`: of each job whose inputs are all known. `held`: finals of
    reused jobs, by lfn. `contents`: of all files that are known now. `kept`: the files that nodes keep and that are these, by lfn. `lent`:
    the same of finals that are not at their destinations, and go there from these nodes.
    """

    reused: dict[str, Result] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    keys: dict[str, JobKey] = field(default_factory=dict)
    held: dict[str, SeenAt] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    kept: dict[str, KeptOutput] = field(default_factory=dict)
    lent: dict[str, KeptOutput] = field(default_factory=dict)

    def linked(self, workflow: Workflow) -> list[str]:
        """What jobs that run read of what nodes keep, by lfn."""
        return [lfn for lfn in self.kept if any(reader in self.runs for reader in graph_of(workflow).readers[lfn])]


def decide(workflow: Workflow, known: Known, rerun: Collection[str] = ()) -> Reuse:
    """`rerun`: jobs that are to run whatever is known. An engine runs its own jobs, so of those nothing is reused."""
    found = Reuse(contents=dict(known.contents))
    if workflow.engine:
        found.runs = dict.fromkeys(workflow.jobs, f"{workflow.engine} runs it")
        return found
    for job_id in graph_of(workflow).order:
        job = workflow.jobs[job_id]
        why = why_by_itself(workflow, job, known, found, job_id in rerun)
        if why:
            found.runs[job_id] = why
            continue
        result = known.result_of(found.keys[job_id].digest)
        assert result is not None
        found.reused[job_id] = result
        made = {output.path: output.blake3 for output in result.outputs}
        found.contents |= {output.lfn: made[output.path] for output in job.outputs if output.path in made}
    run_what_is_not_at_hand(workflow, known, found)
    for job_id in found.reused:
        for output in workflow.jobs[job_id].outputs:
            is_final = workflow.files[output.lfn].is_final
            if is_final and is_held(output.lfn, known, found):
                found.held[output.lfn] = known.held[output.lfn]
            elif (kept := kept_output(workflow, job_id, output, known, found)) is not None:
                (found.lent if is_final else found.kept)[output.lfn] = kept
    return found


def why_by_itself(workflow: Workflow, job: Job, known: Known, found: Reuse, asked: bool) -> str:
    """Why this job runs, whatever others need of it; empty: an earlier result stands. Notes its key where it can be told."""
    graph = graph_of(workflow)
    blocked = ""
    for entry in job.inputs:
        if entry.lfn in found.contents:
            continue
        producer = graph.producer.get(entry.lfn)
        if producer is None:
            blocked = f"the content of its input {entry.lfn!r} is not known: {known.unknown.get(entry.lfn, 'it was not seen yet')}"
        elif producer in found.runs:
            blocked = f"its input {entry.lfn!r} is made anew by {producer!r}"
        else:
            blocked = f"its input {entry.lfn!r} was not made by {producer!r}"
        break
    variable = unknown_variable(job, known.passed)
    if not blocked and variable is not None:
        blocked = f"the value of its variable {variable!r} is not known"
    if not blocked:
        found.keys[job.id] = key_of(workflow, job, found.contents, known.passed)
    if asked:
        return ASKED
    if not job.reuse:
        return NO_REUSE
    if not job.outputs:
        return NO_OUTPUTS
    if blocked:
        return blocked
    result = known.result_of(found.keys[job.id].digest)
    if result is None:
        return NEVER_MADE
    paths = {output.path for output in result.outputs}
    missing = [output.path for output in job.outputs if not output.optional and output.path not in paths]
    return f"what is remembered of it has no {missing[0]!r}" if missing else ""


def run_what_is_not_at_hand(workflow: Workflow, known: Known, found: Reuse) -> None:
    """Finals that are neither where they are wanted nor on a node, then all that those jobs need and nobody has, and all that would rest on
    two makings.
    """
    why: dict[str, str] = {}
    for job_id in found.reused:
        for output in workflow.jobs[job_id].outputs:
            if not workflow.files[output.lfn].is_final or output.lfn not in found.contents:
                continue
            if not is_held(output.lfn, known, found) and kept_output(workflow, job_id, output, known, found) is None:
                why[job_id] = why_not_held(output.lfn, known)
                break
    found.runs |= why
    more = run_as_well(workflow, found.runs, lambda lfn: is_at_hand(workflow, lfn, known, found))
    found.runs |= more
    found.reused = {job_id: result for job_id, result in found.reused.items() if job_id not in found.runs}


def run_as_well(workflow: Workflow, runs: Collection[str], is_at_hand: Callable[[str], bool]) -> dict[str, str]:
    """The jobs beside these that have to run, and why: those that make what these read and nobody has, and those that read what these make.
    `is_at_hand`: of a file that no job makes that runs.
    """
    graph, found, waiting = graph_of(workflow), dict[str, str](), deque(runs)

    def run(job_id: str, why: str) -> None:
        if job_id not in runs and job_id not in found:
            found[job_id] = why
            waiting.append(job_id)

    while waiting:
        job = workflow.jobs[waiting.popleft()]
        for entry in job.inputs:
            producer = graph.producer.get(entry.lfn)
            if producer is not None and producer not in runs and producer not in found and not is_at_hand(entry.lfn):
                run(producer, f"its output {entry.lfn!r} is read by {job.id!r} and was not kept")
        if job.deterministic:
            continue
        for output in job.outputs:
            for reader in graph.readers[output.lfn]:
                run(reader, f"{job.id!r}, whose output {output.lfn!r} it reads, runs again and is not declared deterministic")
    return found


def is_at_hand(workflow: Workflow, lfn: str, known: Known, found: Reuse) -> bool:
    """As a final at its destination, or on a node that keeps it."""
    if workflow.files[lfn].is_final:
        return is_held(lfn, known, found)
    producer = graph_of(workflow).producer[lfn]
    output = next(output for output in workflow.jobs[producer].outputs if output.lfn == lfn)
    return kept_output(workflow, producer, output, known, found) is not None


def kept_output(workflow: Workflow, job_id: str, output: JobOutput, known: Known, found: Reuse) -> KeptOutput | None:
    """The file that nodes keep and that is this one."""
    key = found.keys.get(job_id)
    if key is None or workflow.files[output.lfn].kind is not FileKind.FILE:
        return None
    kept = known.kept.get((key.digest, output.path))
    return kept if kept is not None and kept.blake3 == found.contents.get(output.lfn) else None


def is_held(lfn: str, known: Known, found: Reuse) -> bool:
    there = known.held.get(lfn)
    return there is not None and there.blake3 == found.contents.get(lfn)


def why_not_held(lfn: str, known: Known) -> str:
    if lfn in known.held:
        return f"its final {lfn!r} is at its destination with other content"
    return f"its final {lfn!r} is not at its destination as it was left there, and on no node"


def as_far_as(workflow: Workflow, targets: Sequence[str]) -> Workflow:
    """Only what is needed for these: jobs by id or type, or files that jobs make. Raises InvalidInput for another name."""
    if not targets:
        return workflow
    graph = graph_of(workflow)
    jobs, strange = jobs_named(workflow, [name for name in targets if name not in graph.producer])
    if strange:
        text = f"--until {strange[0]!r} names no job, no type of jobs and no file that a job of this workflow makes"
        raise InvalidInput(text, subject=strange[0])
    kept = closure(jobs | {graph.producer[name] for name in targets if name in graph.producer}, graph.parents)
    used = {lfn for job_id in kept for lfn in workflow.jobs[job_id].lfns}
    return replace(
        workflow,
        jobs={job_id: job for job_id, job in workflow.jobs.items() if job_id in kept},
        files={lfn: file for lfn, file in workflow.files.items() if lfn in used},
        until=tuple(targets),
        scatters=tuple(kept_of(each, kept) for each in workflow.scatters if each.rows is not None or not kept.isdisjoint(each.jobs)),
    )


def kept_of(scatter: Scatter, kept: Collection[str]) -> Scatter:
    jobs, follow = (tuple([job for job in jobs if job in kept]) for jobs in (scatter.jobs, scatter.follow))
    return msgspec.structs.replace(scatter, jobs=jobs, follow=follow)


def closure(jobs: Collection[str], beside: Mapping[str, Sequence[str]]) -> set[str]:
    """These and all that can be reached from them."""
    found, waiting = set(jobs), list(jobs)
    while waiting:
        more = [other for other in beside[waiting.pop()] if other not in found]
        found.update(more)
        waiting += more
    return found


def jobs_named(workflow: Workflow, names: Collection[str]) -> tuple[set[str], list[str]]:
    """(the jobs that these names stand for, names that stand for none): `all`, a job's id, or a type of jobs."""
    found: set[str] = set()
    strange: list[str] = []
    by_type: dict[str, list[str]] = {}
    for job in workflow.jobs.values():
        by_type.setdefault(job.job_type, []).append(job.id)
    for name in names:
        if name == "all":
            found |= workflow.jobs.keys()
        elif name in workflow.jobs:
            found.add(name)
        elif name in by_type:
            found.update(by_type[name])
        else:
            strange.append(name)
    return found, strange
