"""Where a file is fetched from, and for which run. An external file is shared by all runs that declare it; each has its own names for where
it is.

May know: the state. One rule: a fetch is for one run and goes where that run says, by the name it has for the origin; a denial or a failure
counts for the run that met it.
"""

from __future__ import annotations

from collections.abc import Iterator

from stager.model.errors import Fault
from stager.model.files import Source
from stager.model.record import Record
from stager.scheduler import commands as cmd
from stager.scheduler.calls import refuse
from stager.scheduler.decision import Decision
from stager.scheduler.state import FileEntry, HeldAt, State
from stager.scheduler.states import ENDED, RUNNING


class FetchPlace(Record):
    """`origin` is the run's name for it. With a fault, nothing is to be asked of it now."""

    lfn: str
    origin: str
    path: str
    token: str
    fault: Fault | None = None


def place_for(state: State, file: FileEntry, run: str) -> FetchPlace:
    """Where this run would fetch it from: the first source left to try whose origin is not paused."""
    held: HeldAt | None = file.spilled or file.durable
    if held is not None:
        return FetchPlace(file.lfn, held.origin, held.path, held.token, state.paused(run, held.origin))
    lfn, sources = sources_left(state, file, run)
    at, fault = 0, None
    if state.paused_origins:
        paused = [state.paused(run, source.location.origin) for source in sources]
        at = paused.index(None) if None in paused else 0
        fault = paused[at]
    location = sources[at].location
    return FetchPlace(lfn, location.origin, location.path, sources[at].token or "", fault)


def denial(state: State, file: FileEntry, run: str) -> Fault | None:
    """Why nothing is to be asked now of the place where this run would fetch it from."""
    return place_for(state, file, run).fault if state.paused_origins else None


def sources_left(state: State, file: FileEntry, run: str) -> tuple[str, tuple[Source, ...]]:
    """The name of an external file in this run, and the sources from which it has not yet tried to get it."""
    if file.run == run:
        return file.lfn, file.sources[file.source_at :]
    lfn = state.runs[run].shared[file.id]
    return lfn, state.runs[run].workflow.files[lfn].sources


def own_fault(file: FileEntry, run: str) -> Fault | None:
    """Why this run gave up fetching it. A fault that another run met is not held against it."""
    return file.fetch.fault if file.fetch is not None and file.run == run else None


def is_too_early(state: State, file: FileEntry, run: str) -> bool:
    return file.fetch is not None and file.run == run and file.fetch.not_before > state.now


def is_long_away(state: State, file: FileEntry) -> bool:
    """Its origin has not been reached for so long that nobody should hold space, or stand in another's way, until it is tried again."""
    retries = file.fetch
    return retries is not None and retries.outages >= state.policy.transfer_attempts_max and retries.not_before > state.now


def has_other_way(state: State, file: FileEntry, run: str) -> bool:
    """Whether this run can ask an origin for it that the run which waits for its own cannot."""
    origins, tried = state.runs[run].workflow.origins, state.runs[file.run].workflow.origins
    mine = {origins[source.location.origin].identity for source in sources_left(state, file, run)[1]}
    return bool(mine - {tried[source.location.origin].identity for source in file.sources})


def is_for_another(state: State, file: FileEntry, run: str) -> bool:
    """Another run waits for it at an origin that is away. It is left to that one, unless this run has a way of its own that was not
    tried yet.
    """
    retries = file.fetch
    if (
        file.run == run
        or retries is None
        or retries.fault is not None
        or retries.away_since is None
        or not still_reads(state, file, file.run)
    ):
        return False
    return not (is_long_away(state, file) and run not in retries.had_by and has_other_way(state, file, run))


def must_wait(state: State, file: FileEntry, run: str) -> bool:
    """A job of this run that needs it is better not admitted now."""
    return is_long_away(state, file) and (file.run == run or is_for_another(state, file, run))


def still_reads(state: State, file: FileEntry, run: str) -> bool:
    return run in state.active and any(
        state.runs[run].jobs[job].state not in ENDED for _, reader, job in file.uses[file.use_at :] if reader == run
    )


def fetching_run(state: State, file: FileEntry) -> str:
    """The run that a fetch of it is under way for, if that run lives: then it is better not asked for by another. Empty: none."""
    under_way = file.fetch is not None and file.fetch.transfer in state.transfers
    return file.run if under_way and file.run in state.active else ""


def runs_waiting(state: State, file: FileEntry) -> Iterator[str]:
    """Runs with a reader that has not ended, each once, in the order of use; one whose fetch is under way comes first."""
    first = fetching_run(state, file)
    if first:
        yield first
    state.next_use(file)
    told = {first: None}
    for _, run, job in file.uses[file.use_at :]:
        if run not in told and run in state.active and state.runs[run].jobs[job].state not in ENDED:
            told[run] = None
            yield run


def give_up_fetch(decision: Decision, file: FileEntry, run: str, origin: str, fault: Fault) -> None:
    """A job of this run that reads it and has not begun cannot run. Another run may have a way of its own."""
    state = decision.state
    decision.emit(cmd.GiveUpTransfer, file=file.id, run=run, upload=False, fault=fault, origin=origin)
    for _, run_id, job_id in list(file.uses[file.use_at :]):
        reader = state.job(run_id, job_id) if (run_id == run or file.links) and run_id in state.active else None
        if reader is not None and reader.state not in ENDED and reader.state is not RUNNING:
            refuse(decision, state.runs[run_id], reader, fault)


def waits_for(origin: str) -> str:
    return f"origin {origin!r} cannot be reached"


def may_be_fetched(state: State, file: FileEntry, run: str) -> bool:
    """From an origin, for this run, now."""
    if own_fault(file, run) is not None or not state.can_be_had(file):
        return False
    return not (file.fetch is not None and must_wait(state, file, run)) and denial(state, file, run) is None
