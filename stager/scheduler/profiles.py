"""Space over the serial order of each run that has to be careful: what is held ahead of its place, and what sizes have turned out to be.

One rule: a profile is a sum of the plan and of what has come of it so far; it can be made anew at any time.
"""

from __future__ import annotations

from stager.planning.space import SpaceProfile, serial_usage
from stager.planning.staying import stays_from
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import BEGUN, JobState


def end_early_span(run: RunEntry, job: JobEntry) -> None:
    """The job is back before its place in the serial order: its outputs are not ahead of it any more."""
    if job.early_span is not None:
        low, high, size = job.early_span
        for profile in (run.safety, run.ahead):
            if profile is not None:
                profile.add(low, high, -size)
        job.early_span = None


def begin_early_span(run: RunEntry, job: JobEntry, size_bytes: int) -> None:
    """The job is before its place in the serial order: until then its outputs are held beside those of the jobs it overtook."""
    job.early_span = (run.head, job.order, size_bytes)
    for profile in (run.safety, run.ahead):
        if profile is not None:
            profile.add(*job.early_span)


def profile_if_tight(state: State, capacity_bytes: int) -> None:
    """Where all files of all active runs fit at once, nothing can go wrong and nothing is watched. Else each run's space is, also that of
    one begun before.
    """
    if fits_at_once(state, capacity_bytes):
        return
    for run in (state.runs[run_id] for run_id in state.active):
        if run.ahead is None:
            begin_profiles(state, run)


def fits_at_once(state: State, capacity_bytes: int) -> bool:
    """All files of all active runs."""
    return sum([entry.size_bytes for run_id in state.active for entry in state.runs[run_id].plan.files]) <= capacity_bytes


def begin_profiles(state: State, run: RunEntry) -> None:
    """From the plan, and from what has come of it so far: jobs that overtook others, sizes that are known now."""
    base = serial_usage(run.workflow, run.graph, run.plan)
    run.ahead = SpaceProfile(base)
    run.safety = SpaceProfile(base) if run.plan.spill_origin is None and not run.is_engines else None
    for lfn in run.fell_back:
        hold_for_readers(run, lfn, state.file_of(run.id, lfn).size_bytes)
    planned = {entry.lfn: entry.size_bytes for entry in run.plan.files}
    for job in run.jobs.values():
        job.early_span = None
        if job.state in BEGUN and job.order > run.head:
            begin_early_span(run, job, job.reserve_bytes)
        if job.state is JobState.DONE:
            for output in run.workflow.jobs[job.id].outputs:
                file = state.file_of(run.id, output.lfn)
                adjust_profile(run, job, file, file.size_bytes - planned[output.lfn])


def hold_for_readers(run: RunEntry, lfn: str, size_bytes: int) -> None:
    """A file that was planned to be read directly is held while each of its readers runs."""
    for profile in (run.safety, run.ahead):
        if profile is not None:
            for order in [run.jobs[job_id].order for job_id in run.graph.readers[lfn]]:
                profile.add(order, order + 1, size_bytes)


def adjust_profile(run: RunEntry, job: JobEntry, file: FileEntry, delta: int) -> None:
    """The size of a file that was planned with an estimate is now known, from its making to its last reader.

    A file with a second home is planned with only while a job has it open: what it is smaller is not gained in between.
    """
    if run.safety is None and run.ahead is None:
        return
    stays = file.destination is None and run.plan.spill_origin is None
    # Other runs may share the file, and come after this one.
    own = next((run.jobs[use[2]].order for use in reversed(file.uses) if use[1] == run.id), job.order)
    last = own if stays or delta > 0 else job.order
    for profile in (run.safety, run.ahead):
        if profile is not None:
            profile.add(job.early_span[0] if job.early_span else job.order, last + 1, delta)


def would_stay(state: State, run: RunEntry, node: NodeEntry, order: int, size_bytes: int) -> bool:
    """Whether so much, brought now for the job at that place, is probably still there when it begins. An engine's run has no order that
    tells.
    """
    if run.ahead is None or run.head >= order:
        return True
    if run.ahead.max(run.head, order) + size_bytes > node.capacity_bytes:
        return False
    # As many have ended as if all before that place had: where one takes long, the others go on.
    place = len(run.by_order) - run.unended
    return run.is_engines or place >= stays_on(state, run, node)[order]


def stays_on(state: State, run: RunEntry, node: NodeEntry) -> list[int]:
    """Found once for a node as large as it is now: it follows from the plan alone."""
    capacity_bytes, cores = node.capacity_bytes, node.cores
    known = run.stays_from.get(node.id)
    if known is None or known[:2] != (capacity_bytes, cores):
        places = stays_from(run.workflow, run.plan, node.id, capacity_bytes, cores)
        known = run.stays_from[node.id] = (capacity_bytes, cores, places)
    return known[2]
