"""How many nodes are to hold what was made, and whether a file wants one more.

May know: the state. One rule: a file that comes from outside is at its origin, and wants no second copy for safety's sake.
"""

from __future__ import annotations

from heapq import heappush

from stager.scheduler.commands import Purpose
from stager.scheduler.state import NEVER, FileEntry, State, TransferEntry
from stager.scheduler.states import PRESENT


def copies_wanted(state: State, file: FileEntry) -> int:
    """The number of nodes that are to hold what was made: as many as were asked for, or more where the plan says so of this file."""
    if file.is_external:
        return 1
    run = state.runs.get(file.run)
    if run is None:
        return max(state.policy.copies, 1)
    asked_for, planned = copies_asked_for(state, file), run.planned.get(file.lfn)
    safe = planned.safe_copies if planned is not None else 1
    return safe if safe > asked_for else asked_for


def copies_asked_for(state: State, file: FileEntry) -> int:
    """Of all that is made: by the policy, or by the run."""
    copies, run = state.policy.copies, None if file.is_external else state.runs.get(file.run)
    return run.plan.copies if run is not None and run.plan.copies > copies else copies


def is_worth_copies(state: State, file: FileEntry) -> bool:
    """Whether somebody will read it. A final that is not home yet is worth them where they were asked for."""
    return state.next_use(file) != NEVER or (copies_asked_for(state, file) > 1 and state.owes_upload(file))


def is_one_of_those_wanted(state: State, file: FileEntry) -> bool:
    """Whether fewer nodes would hold it without this copy than are to."""
    there = sum(copy.state is PRESENT for copy in file.copies.values())
    return state.is_nowhere_else(file) and there <= copies_wanted(state, file)


def may_want_extra_copy(state: State, file: FileEntry) -> None:
    """It was made, or one of those that held it does not any more."""
    if copies_wanted(state, file) > 1 and is_worth_copies(state, file):
        heappush(state.to_replicate, (state.next_use(file), file.id))


def extra_copies_coming(state: State) -> list[TransferEntry]:
    """Under way, and not called off or reprioritized for a job."""
    found = []
    for transfer_id in list(state.replicating):
        transfer = state.transfers.get(transfer_id)
        if transfer is None or transfer.cancelled or transfer.purpose is not Purpose.EXTRA_COPY:
            del state.replicating[transfer_id]
        else:
            found.append(transfer)
    return found
