"""What a run made, by content: the key of a job that is done, what it made, and what lay where. From the state of the Machine (read only).

May know: keys of jobs, the state. One rule: nothing is told of which not all is known by content.
"""

from __future__ import annotations

from collections.abc import Iterator

from stager.model.files import FileKind
from stager.model.results import KeptOutput, MadeOutput, Result, SeenAt, origin_key
from stager.model.workflow import Job
from stager.planning.job_key import JobKey, key_of, unknown_input, unknown_variable
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import CopyState, JobState

# Two clocks that count the same seconds differ by less.
AHEAD_S_MIN = 1.0


def result_in(state: State, run: RunEntry, job_id: str, at: float, compute_s: float | None) -> Result | None:
    """None: it is not done by itself, or not all that bears on it is known by content."""
    entry, job = run.jobs[job_id], run.workflow.jobs[job_id]
    if entry.state is not JobState.DONE or entry.reused_from or not job.outputs or not job.reuse:
        return None
    key = key_in(state, run, job)
    outputs = tuple(outputs_of(state, run, job))
    if key is None or len(outputs) < sum(not output.optional for output in job.outputs):
        return None
    return Result(key.digest, run.id, job_id, job.profile, run.workflow.name, key.parts, outputs, at, compute_s)


def contents_in(state: State, run: RunEntry, job: Job) -> dict[str, str]:
    """What is read directly at its origin has passed no node that would have hashed it for this run."""
    lfns = [entry.lfn for entry in job.inputs if not run.reads_directly(entry.lfn)]
    return {lfn: state.files[run.file_ids[lfn]].blake3 for lfn in lfns}


def key_in(state: State, run: RunEntry, job: Job) -> JobKey | None:
    """None: not all that bears on it is known."""
    contents = contents_in(state, run, job)
    if unknown_input(job, contents) is not None or unknown_variable(job, run.passed) is not None:
        return None
    return key_of(run.workflow, job, contents, run.passed)


def outputs_of(state: State, run: RunEntry, job: Job) -> Iterator[MadeOutput]:
    for output in job.outputs:
        file = state.files[run.file_ids[output.lfn]]
        if file.blake3:
            yield MadeOutput(output.path, file.size_bytes, file.blake3, file.executable)


def kept_of(state: State, run: RunEntry, result: Result) -> Iterator[tuple[str, str, KeptOutput]]:
    """By key and path, what nodes hold of this result and may keep."""
    for output in run.workflow.jobs[result.job].outputs:
        file = state.files[run.file_ids[output.lfn]]
        if file.blake3 and file.kind is FileKind.FILE and is_held(state, file.id):
            yield result.key, output.path, KeptOutput(file.id, file.size_bytes, file.blake3, file.executable, file.remake_s)


def is_held(state: State, file_id: str) -> bool:
    """By any node."""
    file = state.files.get(file_id)
    return file is not None and any(copy.state is CopyState.PRESENT for copy in file.copies.values())


def seen_of(state: State, run: RunEntry, ahead_s: float) -> Iterator[SeenAt]:
    """Inputs as they were when the run was submitted, and finals as they are at their destinations. `ahead_s`: of the scheduler's clock,
    before that of this machine, which was set back: by that one the times of its files are told.
    """
    ahead_s = ahead_s if ahead_s > AHEAD_S_MIN else 0.0
    keys = {name: origin_key(origin) for name, origin in run.workflow.origins.items()}
    for lfn, declared in run.workflow.files.items():
        file = state.files[run.file_ids[lfn]]
        if not file.blake3:
            continue
        if declared.sources:
            first = declared.sources[0]
            # What a tenant sent lies elsewhere the next time.
            if first.token and not (run.tenant and run.workflow.origins[first.location.origin].beside_workflow):
                where = first.location
                yield SeenAt(keys[where.origin], where.path, first.token, file.size_bytes, file.blake3, run.submitted_at - ahead_s)
        elif file.durable is not None and file.run == run.id and file.durable.origin in keys:
            held = file.durable
            # Written in the run's time, and not known closer.
            facts = (file.size_bytes, file.blake3, (run.finished_at or state.now) - ahead_s, held.verified or "size", held.synced)
            yield SeenAt(keys[held.origin], held.path, held.token, *facts)
