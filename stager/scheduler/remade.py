"""Files that had to be made again. One rule: what a run hands over never comes from two different makings of one file.

A job that runs again may make something else (a time stamp, another order of sums). That does not matter while nothing rests on what it
made before:
no job has read it, no copy or origin holds it. If something does and the new making would be needed beside it, the job is not believed and
the run says which file.
"""

from __future__ import annotations

from collections.abc import Sequence

from stager.model.errors import ErrorClass, Fault
from stager.scheduler.events import OutputMade
from stager.scheduler.state import FileEntry, RunEntry, State
from stager.scheduler.states import DONE


def differs(file: FileEntry, made: OutputMade) -> bool:
    return bool(file.blake3 and made.blake3 and file.blake3 != made.blake3)


def is_kept(file: FileEntry) -> bool:
    """The earlier making is still to be had, and stays the one that counts."""
    return bool(file.copies or file.lender) or file.durable is not None or file.spilled is not None


def was_read(run: RunEntry, file: FileEntry) -> bool:
    return any(run_id == run.id and run.jobs[job].state is DONE for _, run_id, job in file.uses)


def conflict_of(state: State, run: RunEntry, job: str, outputs: Sequence[OutputMade]) -> Fault | None:
    """None: what was made can be taken. An engine that has a job run again means the new one, and its readers to run again too."""
    if run.is_engines:
        return None
    made_before = [(file, made) for made in outputs if (file := state.files[run.file_ids.get(made.lfn, made.file)]).blake3]
    changed = [file for file, made in made_before if differs(file, made)]
    if not changed or all(is_kept(file) for file in changed):
        return None
    rests_on = [file for file in changed if is_kept(file) or was_read(run, file)]
    if not rests_on:
        return None
    lfn = rests_on[0].lfn
    message = (
        f"{lfn!r} had to be made again and came out different (job {job!r}), after other jobs or origins had got the first one; "
        "start a new run, and remove from the job what makes it differ"
    )
    return Fault(ErrorClass.CORRUPT, "remade_differs", message, lfn)
