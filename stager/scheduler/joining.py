"""Jobs that two active runs want alike: the later run waits for what the earlier one makes, and takes it over.

May know: the state, keys of jobs. One rule: a job waits only for a job of a run that was entered before its own, that goes on and is tried,
and holds nothing meanwhile; so nobody waits in a circle, and whatever becomes of that job ends the wait.

What two jobs make is the same where their keys are. What is not made yet has no content to be known by: there the file itself stands for
it, which is the same for two jobs where both read what one job makes. Of what is handed over each run has a file of its own, which goes to
its own place: the run that did not make it borrows the other's copies for that, and its jobs never read it there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from stager.model.files import FileKind
from stager.model.workflow import Job
from stager.planning.job_key import parts_of, unknown_variable
from stager.planning.plan import ReusedOutput, Sharing
from stager.planning.reuse import run_as_well
from stager.scheduler import commands as cmd
from stager.scheduler.decision import Decision
from stager.scheduler.going_home import may_be_lent
from stager.scheduler.keeping import may_be_linked
from stager.scheduler.profiles import fits_at_once
from stager.scheduler.state import FileEntry, RunEntry, State
from stager.scheduler.states import JobState, RunState

FAILED, GOES, TIGHT = "the other run does not make it", "the other run is ending", "what the other run made cannot be shared"
Place = tuple[str, str]
Facts = tuple[tuple[str, str], ...]


def join_others(decision: Decision, run: RunEntry, sharing: Sharing) -> None:
    """Of a run that was just entered: jobs that others have done already are done, and jobs that others will do wait for that."""
    state = decision.state
    # The jobs of a run whose members are not known yet are entered anew when they are.
    others = list(others_of(state, run)) if not run.workflow.scatters else []
    if not others or not fits_at_once(state, run.plan.capacity_bytes):
        # What is taken over is held from the moment when it is made, and not from its turn in the order.
        return
    same = same_jobs(state, run, sharing.forced, known_jobs(state, others))
    same = {job_id: place for job_id, place in same.items() if is_still_had(state, run, job_id, *place)}

    def is_at_hand(lfn: str) -> bool:
        producer = run.graph.producer[lfn]
        if producer not in same:
            return True
        other, file = state.job(*same[producer]), file_made(state, run, producer, same, lfn)
        if run.workflow.files[lfn].is_final or file.destination is not None:
            return False
        return other.state is not JobState.DONE or is_there(state, run, lfn, file)

    runs = [job_id for job_id, job in run.jobs.items() if job.state is not JobState.DONE and job_id not in same]
    more = run_as_well(run.workflow, runs, is_at_hand)
    for job_id in run.graph.order:
        if job_id not in same or job_id in more:
            continue
        other_run, other_job = same[job_id]
        if state.job(other_run, other_job).state is JobState.DONE:
            made = taken_from(state, run, job_id, other_run, other_job)
            decision.emit(cmd.TakeOver, run=run.id, job=job_id, made_by=made_by(state, other_run, other_job), outputs=made)
        else:
            decision.emit(cmd.AwaitJob, run=run.id, job=job_id, other_run=other_run, other_job=other_job)


def others_of(state: State, run: RunEntry) -> Iterator[RunEntry]:
    """The oldest first. To wait for one of lower priority would be to have its priority."""
    for other_id in state.active:
        other = state.runs[other_id]
        known = other.tenant == run.tenant and not (other.is_engines or other.workflow.scatters) and other.sequence < run.sequence
        if known and other.state is RunState.ACTIVE and other.priority >= run.priority:
            yield other


def known_jobs(state: State, others: list[RunEntry]) -> dict[Facts, Place]:
    """Those that can be waited for, or taken over, by what bears on what they make."""
    found: dict[Facts, Place] = {}
    for run in others:
        for job_id, job in run.jobs.items():
            spec = run.workflow.jobs[job_id]
            if job.state in (JobState.FAILED, JobState.SKIPPED) or not is_joinable(run, spec):
                continue
            outputs = [state.files[run.file_ids[output.lfn]] for output in spec.outputs]
            if job.state is not JobState.DONE and any(file.blake3 for file in outputs):
                # It is made again, for what was lost: others rest on its first making.
                continue
            facts = facts_of(state, run, spec, {})
            if facts is not None:
                found.setdefault(facts, (run.id, job_id))
    return found


def same_jobs(state: State, run: RunEntry, forced: Collection[str], known: dict[Facts, Place]) -> dict[str, Place]:
    """Of each job of the run that is not done, the same of another run, if there is one. None is the same as two."""
    same: dict[str, Place] = {}
    for job_id in run.graph.order if known else ():
        spec = run.workflow.jobs[job_id]
        if run.jobs[job_id].state is JobState.DONE or job_id in forced or not is_joinable(run, spec):
            continue
        facts = facts_of(state, run, spec, same)
        if facts is not None and (place := known.pop(facts, None)) is not None:
            same[job_id] = place
    return same


def is_joinable(run: RunEntry, spec: Job) -> bool:
    files = [run.workflow.files[output.lfn] for output in spec.outputs]
    return spec.reuse and bool(files) and all(file.kind is FileKind.FILE for file in files)


def facts_of(state: State, run: RunEntry, spec: Job, same: Mapping[str, Place]) -> Facts | None:
    """All that bears on what it makes and on whether it can run. None: not all of it is known."""
    if unknown_variable(spec, run.passed) is not None:
        return None
    contents: dict[str, str] = {}
    for entry in spec.inputs:
        declared = run.workflow.files[entry.lfn]
        if declared.is_external and not declared.sources[0].token:
            return None
        file = file_read(state, run, entry.lfn, same)
        contents[entry.lfn] = file.blake3 or file.id
    parts = parts_of(run.workflow, spec, contents, run.passed)
    return (("", f"{spec.cores} {spec.memory_bytes}"), *sorted(parts.items()))


def file_read(state: State, run: RunEntry, lfn: str, same: Mapping[str, Place]) -> FileEntry:
    """The one that it will read under this name. What its job waits for is that of the job that makes it."""
    producer = run.graph.producer.get(lfn)
    if producer is None or (producer not in same and run.jobs[producer].awaits is None):
        return state.files[run.file_ids[lfn]]
    return file_made(state, run, producer, same, lfn)


def file_made(state: State, run: RunEntry, job_id: str, same: Mapping[str, Place], lfn: str) -> FileEntry:
    """What the job that is the same as this one makes where this one makes `lfn`."""
    place = same.get(job_id) or run.jobs[job_id].awaits
    assert place is not None, "only of jobs that have a twin"
    other = state.runs[place[0]]
    path = next(output.path for output in run.workflow.jobs[job_id].outputs if output.lfn == lfn)
    theirs = next(output.lfn for output in other.workflow.jobs[place[1]].outputs if output.path == path)
    return file_read(state, other, theirs, {})


def is_there(state: State, run: RunEntry, lfn: str, file: FileEntry) -> bool:
    """For the jobs of this run that read it, or to go home of it."""
    if run.workflow.files[lfn].is_final:
        return may_be_lent(state, file, run, lfn, file.blake3)
    return run.id not in file.links and bool(file.blake3) and may_be_linked(state, file, run.tenant, file.blake3)


def is_still_had(state: State, run: RunEntry, job_id: str, other_run: str, other_job: str) -> bool:
    """All that this job is to hand over, if the other one is done."""
    if state.job(other_run, other_job).state is not JobState.DONE:
        return True
    made = taken_from(state, run, job_id, other_run, other_job)
    return all(output.kept for output in made if run.workflow.files[output.lfn].is_final)


def is_needed(run: RunEntry, lfn: str) -> bool:
    """Should a job that waits run after all, what it reads is made for it then."""
    readers = (run.jobs[reader] for reader in run.graph.readers[lfn])
    return run.workflow.files[lfn].is_final or any(reader.state is not JobState.DONE and reader.awaits is None for reader in readers)


def taken_from(state: State, run: RunEntry, job_id: str, other_run: str, other_job: str) -> tuple[ReusedOutput, ...]:
    """What the run has of a job that is done, under its own names."""
    other, spec = state.runs[other_run], run.workflow.jobs[job_id]
    theirs = {output.path: output.lfn for output in other.workflow.jobs[other_job].outputs}
    found = []
    for output in spec.outputs:
        file = state.holding(state.files[other.file_ids[theirs[output.path]]])
        if file.blake3:
            kept = file.id if is_there(state, run, output.lfn, file) else ""
            found.append(ReusedOutput(output.lfn, file.size_bytes, file.blake3, file.executable, kept=kept))
    return tuple(found)


def made_by(state: State, run_id: str, job_id: str) -> str:
    """The run that ran it, which need not be the one that has it."""
    return state.job(run_id, job_id).reused_from or run_id


def settle_waits(decision: Decision) -> None:
    """Of jobs that were waited for and have ended, or will not be done: what was made is taken over, else each runs its own."""
    state = decision.state
    while state.awaited_ended:
        other_run, other_job = state.awaited_ended.pop(0)
        for run_id, job_id in list(state.awaited.get(other_run, {}).get(other_job, ())):
            take_over_or_run(decision, state.runs[run_id], job_id, other_run, other_job)
    for other_run in list(state.awaited):
        other = state.runs[other_run]
        if other.state is RunState.ACTIVE:
            continue
        for other_job, waiting in list(state.awaited.get(other_run, {}).items()):
            if other.state is RunState.DRAINING and other.jobs[other_job].state is JobState.RUNNING:
                continue
            for run_id, job_id in list(waiting):
                run_itself(decision, state.runs[run_id], job_id, GOES)


def take_over_or_run(decision: Decision, run: RunEntry, job_id: str, other_run: str, other_job: str) -> None:
    state = decision.state
    if state.job(other_run, other_job).state is not JobState.DONE:
        run_itself(decision, run, job_id, FAILED)
        return
    made = taken_from(state, run, job_id, other_run, other_job)
    if not all(output.kept for output in made if is_needed(run, output.lfn)) or not fits_at_once(state, run.plan.capacity_bytes):
        run_itself(decision, run, job_id, TIGHT)
        return
    decision.emit(cmd.TakeOver, run=run.id, job=job_id, made_by=made_by(state, other_run, other_job), outputs=made)


def run_itself(decision: Decision, run: RunEntry, job_id: str, why: str) -> None:
    if run.jobs[job_id].awaits is not None:
        decision.emit(cmd.StopAwaiting, run=run.id, job=job_id, why=why)
