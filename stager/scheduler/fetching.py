"""Transfers that bring files to a node: inputs that admitted jobs wait for, and ahead of their readers, with the room that is left.

May know: the state. One rule: what another node has, or is getting, comes from there.
"""

from __future__ import annotations

from heapq import heappop, heappush

from stager.scheduler import commands as cmd
from stager.scheduler.accounting import footprints_of
from stager.scheduler.budget import affords_fetch
from stager.scheduler.copying import give_copy
from stager.scheduler.decision import Decision
from stager.scheduler.eviction import free_space_ahead, may_fit_ahead
from stager.scheduler.holding import may_come_ahead
from stager.scheduler.migration import is_wanted_elsewhere
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.peers import fetching_elsewhere, is_at_hand, nearer_soon, next_use_on, peer_for
from stager.scheduler.profiles import would_stay
from stager.scheduler.reach import is_beside_workflow, reaches
from stager.scheduler.relay import has_room, is_waited_for, never_by_relay, next_lacks_bytes, relay_for
from stager.scheduler.sources import (
    denial,
    fetching_run,
    give_up_fetch,
    is_for_another,
    is_long_away,
    is_too_early,
    own_fault,
    place_for,
    runs_waiting,
)
from stager.scheduler.state import FileEntry, RunEntry, State
from stager.scheduler.states import WANTED
from stager.scheduler.stripes import DEMAND, give_stripes, reprioritize

FIRST_PREFETCH, LAST_PRIORITY = 10, 1_000_000


def give_fetch(decision: Decision, node: NodeEntry, file: FileEntry, run: str, purpose: cmd.Purpose, priority: int) -> None:
    place = place_for(decision.state, file, run)
    if not affords_fetch(decision, decision.state.runs[run], place.origin, file.size_bytes):
        if node.id in file.copies:
            # Another run may wait for it, too.
            decision.state.want(node.id, file)
        return
    own = file.spilled is not None or file.durable is not None
    earlier = file.fetch.failures + file.fetch.outages if file.fetch is not None and file.run == run else 0
    whole = cmd.Fetch(
        id=decision.next_id(),
        at=decision.state.now,
        cause=decision.cause,
        node=node.id,
        transfer=decision.new_transfer(),
        file=file.id,
        lfn=place.lfn,
        run=run,
        origin=place.origin,
        path=place.path,
        size_bytes=file.size_bytes,
        token=place.token,
        purpose=purpose,
        priority=priority,
        attempt_number=earlier + 1,
        blake3=file.blake3 if own else "",
        sha256=file.sha256,
        executable=file.executable,
    )
    if is_beside_workflow(decision.state, run, place.origin) or not give_stripes(decision, node, file, whole):
        decision.give(whole)


def send_wanted(decision: Decision, node: NodeEntry) -> None:
    """Pinned inputs whose transfer is not under way."""
    state = decision.state
    mine = [entry for entry in state.to_fetch if entry[0] == node.id]
    state.to_fetch = [entry for entry in state.to_fetch if entry[0] != node.id]
    for _, file_id in mine:
        file = state.files[file_id]
        if is_at_hand(state, file, node.id):
            fetch_wanted(decision, node, file)


def fetch_wanted(decision: Decision, node: NodeEntry, file: FileEntry) -> None:
    """For the first run that waits for it and has a way to it; the readers of those that have none fail."""
    state = decision.state
    for run in list(runs_waiting(state, file)):
        copy = file.copies.get(node.id)
        if copy is None or copy.state is not WANTED:
            return
        if is_too_early(state, file, run):
            if is_long_away(state, file):
                continue
            return
        peer = peer_for(state, file, node.id)
        other = nearer_soon(state, file, peer) if peer else fetching_elsewhere(state, file, node.id)
        if peer and other is None:
            give_copy(decision, node, file, run, peer, cmd.Purpose.DEMAND, DEMAND)
            return
        if other is not None:
            if other.purpose is not cmd.Purpose.DEMAND:
                reprioritize(decision, other)
            return
        if is_for_another(state, file, run) or own_fault(file, run) is not None:
            continue
        place = place_for(state, file, run)
        if place.fault is None and reaches(state, node, run, place.origin):
            give_fetch(decision, node, file, run, cmd.Purpose.DEMAND, DEMAND)
            return
        fault = place.fault or never_by_relay(state, file)
        if fault is None:
            fetch_by_relay(decision, node, file, run)
            return
        give_up_fetch(decision, file, run, place.origin, fault)


def fetch_by_relay(decision: Decision, node: NodeEntry, file: FileEntry, run: str) -> None:
    """To a node that reaches its origin, from which this one gets it when it is there. Where there is none now, it is wanted again."""
    state = decision.state
    relay = relay_for(state, file)
    if relay is not None and relay.id not in file.copies and has_room(decision, relay, file):
        give_fetch(decision, relay, file, run, cmd.Purpose.DEMAND, DEMAND)
    else:
        state.want(node.id, file)


def prefetch(decision: Decision, node: NodeEntry) -> None:
    """Files that can be had, in the order of their first reader, as far ahead as there is room: nothing that will be read goes for
    them, and what the next jobs need has room beside them.
    """
    state = decision.state
    if state.relay_waits and is_waited_for(state, node):
        return
    while node.candidates and len(node.prefetching) < state.policy.fetches_ahead_max:
        key, file_id = node.candidates[0]
        file = state.files[file_id]
        use = next_use_on(state, file, node.id)
        if use is None or use[0] != key:
            # Out of date. Taken off before it is put back: its true use may be earlier, when a job has to run again.
            heappop(node.candidates)
            if use is not None:
                heappush(node.candidates, (use[0], file_id))
            continue
        if not wants_prefetch(state, node, file, use[1]):
            heappop(node.candidates)
            continue
        _, run_id, job_id = use
        run = state.runs[run_id]
        order, needed = run.jobs[job_id].order, file.size_bytes + beside_bytes(state, run, node)
        if not may_fit_ahead(node, needed) or not would_stay(state, run, node, order, file.size_bytes):
            return
        held_back = is_wanted_elsewhere(state, node) or not may_come_ahead(state, run, node, needed)
        if held_back or not free_space_ahead(decision, node, needed):
            return
        heappop(node.candidates)
        if not bring_ahead(decision, node, file, run_id, min(FIRST_PREFETCH + order, LAST_PRIORITY)):
            heappush(node.candidates, (key, file_id))
            return


def bring_ahead(decision: Decision, node: NodeEntry, file: FileEntry, run: str, priority: int) -> bool:
    """False: it waits for room on the node that reaches its origin."""
    state = decision.state
    peer = peer_for(state, file, node.id)
    if peer:
        give_copy(decision, node, file, run, peer, cmd.Purpose.PREFETCH, priority)
        return True
    by = fetching_run(state, file) or run
    if not node.apart or reaches(state, node, by, place_for(state, file, by).origin):
        give_fetch(decision, node, file, by, cmd.Purpose.PREFETCH, priority)
        return True
    relay = relay_for(state, file)
    if relay is None or len(relay.prefetching) >= state.policy.fetches_ahead_max or is_waited_for(state, relay):
        return False
    if relay.id not in file.copies and not free_space_ahead(decision, relay, file.size_bytes + next_lacks_bytes(state, relay)):
        return False
    if relay.id not in file.copies:
        give_fetch(decision, relay, file, by, cmd.Purpose.PREFETCH, priority)
    return True


def beside_bytes(state: State, run: RunEntry, node: NodeEntry) -> int:
    """The needs of the jobs that may run beside the first one, if they are next in order."""
    return sum(footprints_of(state, run)[run.head + 1 : run.head + node.cores])


def wants_prefetch(state: State, node: NodeEntry, file: FileEntry, reader: str) -> bool:
    """`reader`: the run of its first reader on this node."""
    run = state.runs[reader]
    if file.fetch is None and not file.copies:
        # Nobody has asked for it yet, as for most.
        return run.may_start and state.can_be_had(file) and (not state.paused_origins or denial(state, file, run.id) is None)
    if node.id in file.copies or own_fault(file, run.id) is not None or is_too_early(state, file, run.id):
        return False
    peer = peer_for(state, file, node.id)
    if peer:
        return run.may_start and nearer_soon(state, file, peer) is None
    if not state.can_be_had(file) or is_for_another(state, file, run.id) or fetching_elsewhere(state, file, node.id) is not None:
        return False
    return run.may_start and denial(state, file, run.id) is None
