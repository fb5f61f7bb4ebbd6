"""A run that goes on with another definition, since its workflow file or one of its inputs was mended: what stands, what differs, in words.

May know: the state (read only), the model. One rule: what was made stands as it was, in its definition and at its destination; where that
is not so the definitions do not fit, and the jobs are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from stager.model.files import File
from stager.model.workflow import Job, Workflow
from stager.scheduler.entering import content_of
from stager.scheduler.state import HeldAt, RunEntry, State
from stager.scheduler.states import JobState

NAMED = 3
# What of a job's definition bears on what it makes, and what to call it. Cores, memory, tries and times may change.
PARTS = (
    ("command", ("argv", "shell", "interpreter", "stdin", "stdout", "stderr")),
    ("inputs", ("inputs",)),
    ("outputs", ("outputs",)),
    ("environment", ("env",)),
)


def is_made(state: State, run: RunEntry, job_id: str) -> bool:
    """It is done, or was, and what it made may be somewhere: made again it has to come out the same."""
    outputs = run.workflow.jobs[job_id].outputs
    return run.jobs[job_id].state is JobState.DONE or any(state.files[run.file_ids[output.lfn]].blake3 for output in outputs)


def with_known_shells(old: Workflow, new: Workflow) -> Workflow:
    """Jobs that began before a workflow could say its shell keep theirs."""
    jobs = {job_id: replace(job, interpreter=()) if keeps_shell(old.jobs.get(job_id), job) else job for job_id, job in new.jobs.items()}
    return replace(new, jobs=jobs)


def keeps_shell(old: Job | None, new: Job) -> bool:
    return old is not None and bool(old.shell and new.shell) and not old.interpreter


def conflicts_of(state: State, run: RunEntry, new: Workflow) -> list[str]:
    """`'job' is done, and …` for each that was made and would not be what it was. Empty: the run can go on so."""
    found = []
    for job_id in run.by_order:
        if is_made(state, run, job_id):
            why = why_not(state, run, new, job_id)
            if why:
                found.append(f"{job_id!r} is done, and {why}")
    return found


def why_not(state: State, run: RunEntry, new: Workflow, job_id: str) -> str:
    old_job, job = run.workflow.jobs[job_id], new.jobs.get(job_id)
    if job is None:
        return "the file does not have it any more"
    for name, fields in PARTS:
        if any(getattr(job, field) != getattr(old_job, field) for field in fields):
            return f"its {name} changed"
    for entry in job.inputs:
        if source_of(run.workflow, entry.lfn) != source_of(new, entry.lfn):
            return f"its input {entry.lfn!r} comes from elsewhere"
    return next((why for output in job.outputs if (why := why_output_not(state, run, new, output.lfn))), "")


def source_of(workflow: Workflow, lfn: str) -> tuple[str, str] | None:
    """(place, path) of an external file, whatever it holds there."""
    file = workflow.files[lfn]
    if not file.is_external:
        return None
    location = file.sources[0].location
    return workflow.origins[location.origin].place, location.path


def why_output_not(state: State, run: RunEntry, new: Workflow, lfn: str) -> str:
    old_file, file, entry = run.workflow.files[lfn], new.files[lfn], state.files[run.file_ids[lfn]]
    if file.kind is not old_file.kind:
        return f"its output {lfn!r} changed"
    for held in (entry.durable, entry.spilled):
        if held is not None and place_of(run.workflow, held) != place_of(new, held):
            return f"its output {lfn!r} is at the origin {held.origin!r}, which is elsewhere now"
    if final_place(run.workflow, old_file) == final_place(new, file):
        return ""
    if entry.durable is not None or None in (final_place(run.workflow, old_file), final_place(new, file)):
        return f"the destination of its output {lfn!r} changed"
    # It never got home, and may go elsewhere.
    return ""


def place_of(workflow: Workflow, held: HeldAt) -> str | None:
    origin = workflow.origins.get(held.origin)
    return None if origin is None else origin.place


def final_place(workflow: Workflow, file: File) -> tuple[str, str] | None:
    if file.destination is None:
        return None
    location = file.destination.location
    return workflow.origins[location.origin].place, location.path


def changes_of(state: State, run: RunEntry, new: Workflow) -> list[str]:
    """The differences from now on, a line for each thing."""
    old = run.workflow
    found = list(changed_inputs(state, run, new))
    changed = [
        job_id for job_id, job in new.jobs.items() if job_id in old.jobs and not is_made(state, run, job_id) and job != old.jobs[job_id]
    ]
    groups = (
        ("takes its new definition", "take their new definitions", changed),
        ("is new", "are new", [job_id for job_id in new.jobs if job_id not in old.jobs]),
        ("is dropped", "are dropped", [job_id for job_id in old.jobs if job_id not in new.jobs]),
    )
    found += [f"{named(jobs, 'job')} {one if len(jobs) == 1 else many}" for one, many, jobs in groups if jobs]
    for lfn, file in new.files.items():
        before = old.files.get(lfn)
        if before is not None and before.destination and file.destination and before.destination != file.destination:
            found.append(f"{lfn!r} goes to {file.destination.location.origin}:{file.destination.location.path}")
    return found


def changed_inputs(state: State, run: RunEntry, new: Workflow) -> Iterator[str]:
    for lfn, file in new.files.items():
        before = run.workflow.files.get(lfn)
        if before is None or not (before.is_external and file.is_external):
            continue
        if content_of(run.workflow, before, run.ids) == content_of(new, file, run.ids):
            continue
        readers = run.graph.readers.get(lfn, ())
        made = [job_id for job_id in readers if is_made(state, run, job_id)]
        to_run = [job_id for job_id, job in new.jobs.items() if job_id not in made and any(entry.lfn == lfn for entry in job.inputs)]
        if to_run:
            which = f"the input {lfn!r} changed: {named(to_run, 'job')} {'takes' if len(to_run) == 1 else 'take'} it as it is now"
            yield which + (f"; {named(made, 'job')}, done, had it as it was (to have all of it anew, submit again)" if made else "")


def named(names: Iterable[str], word: str) -> str:
    every = list(names)
    shown = ", ".join(repr(name) for name in every[:NAMED])
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return f"{word if len(every) == 1 else word + 's'} {shown}{more}"
