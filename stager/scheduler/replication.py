"""Extra copies: second copies of intermediates whose plan says that one is not enough (planning/durability.py), and of all that is made,
unflushed finals too, where the policy wants several copies.

May know: the state. One rule: an extra copy takes room and lines that nobody wants now, and never keeps a job waiting. One that the plan
wants is the first to go when somebody needs the room, one that the policy wants the last.
"""

from __future__ import annotations

from heapq import heappop, heappush

from stager.scheduler import commands as cmd
from stager.scheduler.accounting import footprints_of
from stager.scheduler.copies_wanted import copies_asked_for, copies_wanted, extra_copies_coming, is_worth_copies
from stager.scheduler.copying import give_copy
from stager.scheduler.decision import Decision
from stager.scheduler.fetching import LAST_PRIORITY
from stager.scheduler.migration import anything_leaves
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.peers import peer_for
from stager.scheduler.state import FileEntry, State
from stager.scheduler.states import CopyState

# Those needed next; one that has no place now stands in the way of no other, and none is looked at by thousands at every step.
LOOKS_MAX = 8
# Of one file, in all its life: what fails or is called off again and again is not worth more of the network.
EXTRA_COPIES_MAX = 3
# The same where the policy wants several of everything: then it is not a bet on what pays.
WANTED_COPIES_MAX = 16


def send_extra_copies(decision: Decision) -> None:
    state = decision.state
    call_off_unwanted(decision)
    if state.closed and anything_leaves(state):
        return
    kept = []
    for _ in range(min(LOOKS_MAX, len(state.to_replicate))):
        entry = heappop(state.to_replicate)
        file = state.files[entry[1]]
        if is_due(state, file) and (not send_extra_copy(decision, file) or is_due(state, file)):
            kept.append(entry)
    for entry in kept:
        heappush(state.to_replicate, entry)


def call_off_unwanted(decision: Decision) -> None:
    """On their way to nobody: the last reader is done."""
    state = decision.state
    for transfer in extra_copies_coming(state):
        if not is_worth_copies(state, state.files[transfer.file]):
            decision.emit(cmd.CancelTransfer, node=transfer.node, transfer=transfer.id)


def is_due(state: State, file: FileEntry) -> bool:
    """Somebody will read it, and fewer nodes than planned hold it or are getting it."""
    run = state.runs.get(file.run)
    if (
        run is None
        or not run.may_start
        or file.extra_copies >= (EXTRA_COPIES_MAX if copies_asked_for(state, file) < 2 else WANTED_COPIES_MAX)
        or not is_worth_copies(state, file)
    ):
        return False
    if file.spilled is not None or file.durable is not None:
        return False
    there = [copy for node, copy in file.copies.items() if not state.nodes[node].draining]
    held = sum(copy.state in (CopyState.PRESENT, CopyState.FETCHING) for copy in there)
    return held < copies_wanted(state, file)


def send_extra_copy(decision: Decision, file: FileEntry) -> bool:
    """False: no node has room to spare, or the one that holds it is busy with what somebody waits for."""
    state = decision.state
    source = peer_for(state, file, "")
    node = node_with_most_space(state, file)
    if not source or node is None or state.nodes[source].sending:
        return False
    give_copy(decision, node, file, file.run, source, cmd.Purpose.EXTRA_COPY, LAST_PRIORITY)
    return True


def node_with_most_space(state: State, file: FileEntry) -> NodeEntry | None:
    """The node with most room that has it not, no other extra copy on its way, and room for the next jobs beside it."""
    run = state.runs[file.run]
    taken = {transfer.node for transfer in extra_copies_coming(state)}
    footprints = footprints_of(state, run)
    staying = [node for node in state.nodes.values() if node.reachable and not node.draining]
    beside = {cores: sum(footprints[run.head : run.head + cores]) for cores in dict.fromkeys([node.cores for node in staying])}
    able = [
        node
        for node in staying
        if node.id not in file.copies and node.id not in taken and node.free_bytes >= file.size_bytes + beside[node.cores]
    ]
    return min(able, key=lambda node: (-node.spare_bytes, node.id), default=None)
