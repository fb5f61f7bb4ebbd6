"""Timers: the entries that are due at a time. One rule: a timer only puts what it stands for back into its queue; nothing is
decided here.
"""

from __future__ import annotations

from heapq import heappop, heappush

from stager.scheduler import events as ev
from stager.scheduler.accounting import make_ready_or_wait, settle
from stager.scheduler.apply_hosts import NOWHERE, back_in_queues, host_is_away
from stager.scheduler.peers import offer_for_prefetch
from stager.scheduler.state import FileEntry, State
from stager.scheduler.states import JobState


def woken(state: State, event: ev.Woken) -> None:
    """Timers that are due put what they stand for back into its queue.

    A waking before the one that is waited for was asked for twice and does not count, or there would be ever more of them.
    """
    if state.wake_at is not None and state.wake_at <= state.now:
        state.wake_at = None
    while state.timers and state.timers[0][0] <= state.now:
        _, what, first, second = heappop(state.timers)
        if what == "job":
            job = state.runs[first].jobs[second]
            if job.state is JobState.BACKOFF and job.not_before <= state.now:
                make_ready_or_wait(state, job, state.now)
        elif what == "host":
            host_is_away(state, first)
        elif what == "hosts":
            back_in_queues(state, NOWHERE)
        elif what == "garbage":
            file_id, _, generation = second.partition(" ")
            state.useless.append((first, file_id, generation))
        elif what == "settle":
            settle(state, state.files[second], first)
        elif what == "fetch":
            for node_id in (first,) if first else state.nodes:
                retry_fetch(state, node_id, state.files[second])
        else:
            heappush(state.due_uploads, (0, second))


def retry_fetch(state: State, node_id: str, file: FileEntry) -> None:
    if node_id in file.copies:
        state.want(node_id, file)
    else:
        offer_for_prefetch(state, file, node_id)
