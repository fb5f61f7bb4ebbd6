"""Files that runs take over from earlier ones: the same entry, and so the same replicas, under the names of several runs. No byte moves.

May know: the state, accounting. One rule: as long as its content is anywhere the runs share it; when that is lost, each has a file of its
own again, which its own job makes.
"""

from __future__ import annotations

from stager.model.ids import produced_file_id
from stager.scheduler.accounting import count_parents, inputs_of, make_ready_or_wait, recount_live, settle, withdraw
from stager.scheduler.awaiting import forget_wait
from stager.scheduler.going_home import give_back
from stager.scheduler.keeping import is_away_for_long
from stager.scheduler.peers import offer_for_prefetch
from stager.scheduler.state import FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState

# A node that was heard of and does not answer may well be back before.
LONG_AWAY_S = 30.0


def link(state: State, run: RunEntry, lfn: str, file: FileEntry) -> None:
    """From now on this is what the run has under this name. Before its readers are entered."""
    if not file.links and file.run in state.runs:
        file.links[file.run] = file.lfn
    file.links[run.id] = lfn
    run.file_ids[lfn] = file.id
    if file.run not in state.active:
        answer_for(state, file, run)


def answer_for(state: State, file: FileEntry, run: RunEntry) -> None:
    """Of the runs that share it, this one spills it, has it copied and counts its bytes from now on."""
    before = state.runs.get(file.run)
    if before is not None:
        before.live_bytes -= file.live_bytes
    file.live_bytes, file.fetch, file.upload = 0, None, None
    for copy in file.copies.values():
        # How many copies there are to be is another run's word now.
        copy.extra_copy = False
    file.run, file.lfn = run.id, file.links[run.id]
    file.producer = run.graph.producer[file.lfn]
    recount_live(state, file)


def pass_on(state: State, file: FileEntry) -> None:
    """The run that answered for it is over, or has it no more: another one that shares it does, if it is active."""
    heir = next((run for run in file.links if run in state.active and run != file.run), None)
    if heir is not None:
        answer_for(state, file, state.runs[heir])


def is_gone(file: FileEntry) -> bool:
    """Its content is nowhere."""
    here = any(copy.state in (CopyState.PRESENT, CopyState.DELETING) for copy in file.copies.values())
    return not here and file.spilled is None and file.durable is None


def part_if_gone(state: State, file: FileEntry) -> None:
    if file.links and is_gone(file):
        part(state, file)


def part(state: State, file: FileEntry) -> None:
    """It stays with the run that made it, and each of the others has a file of its own, that only its own job can make."""
    maker = maker_of(file)
    if maker and file.run != maker:
        answer_for(state, file, state.runs[maker])
    for run_id, lfn in [entry for entry in file.links.items() if entry[0] != maker]:
        unlink(state, state.runs[run_id], file)
        if run_id in state.active:
            state.lost.append((state.runs[run_id].file_ids[lfn], ""))
    if not maker and file.run:
        forget_run(state, file)
    file.links = {}


def maker_of(file: FileEntry) -> str:
    """Of the runs that share it, the one whose job made it. Empty: that is not known any more."""
    return next((run for run, lfn in file.links.items() if produced_file_id(run, lfn) == file.id), "")


def forget_run(state: State, file: FileEntry) -> None:
    run = state.runs.get(file.run)
    if run is not None:
        run.live_bytes -= file.live_bytes
        file.tenant = run.tenant
    file.live_bytes, file.run, file.producer = 0, "", ""


def unlink(state: State, run: RunEntry, file: FileEntry) -> None:
    """Jobs that were admitted on it go back; running ones hold what they read. What is known of its content stays known."""
    lfn = file.links[run.id]
    own = state.files[produced_file_id(run.id, lfn)]
    own.uses, own.use_at = [use for use in file.uses if use[1] == run.id], 0
    own.size_bytes, own.blake3, own.executable = file.size_bytes, file.blake3, file.executable
    file.uses, file.use_at = [use for use in file.uses if use[1] != run.id], 0
    run.file_ids[lfn] = own.id
    leave(state, run, file)
    for job_id in run.graph.readers[lfn]:
        job = run.jobs[job_id]
        if job.state is JobState.ADMITTED:
            withdraw(state, run, job)
            job.waits_for = count_parents(state, run, job_id)
            make_ready_or_wait(state, job, state.now)
        if run.inputs.pop(job_id, None) is not None:
            inputs_of(state, run, job_id)
        # What the other run makes of it is made of another making from now on.
        stop_awaiting(state, run, job)
    recount_live(state, file)
    for node_id in list(file.copies):
        settle(state, file, node_id)


def leave(state: State, run: RunEntry, file: FileEntry) -> None:
    """It is no file of this run any more."""
    del file.links[run.id]
    if file.run == run.id:
        pass_on(state, file)
    if file.run == run.id and (maker := maker_of(file)):
        answer_for(state, file, state.runs[maker])
    elif file.run == run.id:
        forget_run(state, file)


def own_instead(state: State, run: RunEntry, file: FileEntry) -> str:
    """The run's own file, where what it shares was made by an earlier one and is on nodes that have been away for long: without that its
    own job would make it and not wait. Empty: it waits, or comes from where it was spilled.
    """
    if state.can_be_had(file):
        return ""
    own = str(produced_file_id(run.id, file.links[run.id]))
    return own if own != file.id and is_away_for_long(state, file, LONG_AWAY_S) else ""


def stop_awaiting(state: State, run: RunEntry, first: JobEntry) -> None:
    """It runs itself, and so does all below it that waits for another run's job: that one rests on another making."""
    waiting = [first] if first.awaits is not None else []
    for job in waiting:
        if job.awaits is None:
            continue
        forget_wait(state, job)
        waiting += [child for child_id in run.graph.children[job.id] if (child := run.jobs[child_id]).awaits is not None]
        make_ready_or_wait(state, job, state.now)
        for file in inputs_of(state, run, job.id):
            if job.node not in file.copies:
                offer_for_prefetch(state, file, job.node)


def is_on_its_way(state: State, file: FileEntry) -> bool:
    """What was lent to it may be at its destination at any moment."""
    return file.lender != "" and file.upload is not None and file.upload.transfer in state.transfers


def begin_anew(state: State, run: RunEntry, job_id: str, file_id: str) -> None:
    """A job that an earlier run made has to run after all. Where no job has begun on what it made, all of it is as if it had never been;
    else only the file that is lost is.
    """
    outputs = [output.lfn for output in run.workflow.jobs[job_id].outputs]
    files = {lfn: state.files[run.file_ids[lfn]] for lfn in outputs}
    begun = (JobState.DONE, JobState.RUNNING)
    rests = any(run.jobs[reader].state in begun for lfn in outputs for reader in run.graph.readers[lfn])
    rests = rests or any(file.durable is not None or is_on_its_way(state, file) for file in files.values())
    for lfn, file in files.items():
        if file.lender and (not rests or file.id == file_id):
            give_back(state, file)
        if file.links and produced_file_id(run.id, lfn) != file.id and (not rests or produced_file_id(run.id, lfn) == file_id):
            unlink(state, run, file)
        if not rests and not state.files[run.file_ids[lfn]].copies:
            state.files[run.file_ids[lfn]].blake3 = ""
