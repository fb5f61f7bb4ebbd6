"""Copies between nodes: who can give a file to whom, and who waits for whom.

May know: the state. One rule: a byte crosses the wide area once; where a node has a file, or is fetching it, the others get it from there.
"""

from __future__ import annotations

from heapq import heappush
from itertools import islice

from stager.scheduler.state import NEVER, FileEntry, State, TransferEntry
from stager.scheduler.states import FETCHING, PRESENT, WANTED


def peer_for(state: State, file: FileEntry, node_id: str) -> str:
    """The node to copy it from: one that can be reached and gives it to the fewest, then sends the least. Empty: none, or copying it failed
    too often and an origin has it.
    """
    if not file.copies or (len(file.copies) == 1 and node_id in file.copies):
        return ""
    retries = file.fetch
    if retries is not None and retries.copies_failed >= state.policy.transfer_attempts_max and state.can_be_had(file):
        return ""
    holding = [node for node, copy in file.copies.items() if copy.state is PRESENT and node != node_id]
    if len(holding) < 2:
        return next((node for node in holding if state.nodes[node].reachable), "")
    giving = copies_under_way(state, file)
    ranked = [(node in giving, state.nodes[node].sending, node) for node in holding if state.nodes[node].reachable]
    return min(ranked, default=(False, 0, ""))[2]


def copies_under_way(state: State, file: FileEntry) -> dict[str, TransferEntry]:
    """By the node that gives it: the copy of it to a node that can be reached."""
    found = {}
    for node, copy in file.copies.items():
        if copy.state is FETCHING and state.nodes[node].reachable:
            transfer = state.transfers.get(copy.generation)
            if transfer is not None and transfer.source:
                found[transfer.source] = transfer
    return found


def nearer_soon(state: State, file: FileEntry, peer: str) -> TransferEntry | None:
    """The copy under way from the least busy node that has it, where that is worth waiting for: to begin a second one beside it would take
    each as long as both after one another, and when the first has ended there are two to copy from.
    """
    return copies_under_way(state, file).get(peer) if file.size_bytes >= state.policy.fan_out_bytes_min else None


def is_at_hand(state: State, file: FileEntry, node_id: str) -> bool:
    """Whether this node could get it without its producer."""
    return state.can_be_had(file) or bool(peer_for(state, file, node_id))


def is_out_of_reach(state: State, file: FileEntry) -> bool:
    """It exists, on nodes that cannot be asked now."""
    return any(copy.state is PRESENT and not state.nodes[node].reachable for node, copy in file.copies.items())


def fetching_elsewhere(state: State, file: FileEntry, node_id: str) -> TransferEntry | None:
    """Its fetch from an origin to another node: from there it can be copied soon."""
    for node, copy in file.copies.items():
        if node != node_id and copy.state is FETCHING and state.nodes[node].reachable:
            transfer = state.transfers.get(copy.generation)
            if transfer is not None and not transfer.source:
                return transfer
    return None


def next_use_on(state: State, file: FileEntry, node_id: str) -> tuple[int, str, str] | None:
    """(order key, run, job) of the first reader on this node that still has to run. For one that waits for another run's job nothing is
    brought.
    """
    if state.next_use(file) == NEVER:
        return None
    first = file.uses[file.use_at]
    reader = state.runs[first[1]].jobs[first[2]]
    if reader.node == node_id and reader.awaits is None:
        return first
    for use in islice(file.uses, file.use_at + 1, None):
        if not state.use_is_over(use) and (reader := state.runs[use[1]].jobs[use[2]]).node == node_id and reader.awaits is None:
            return use
    return None


def offer_for_prefetch(state: State, file: FileEntry, node_id: str) -> None:
    """If somebody will read it there and it can be had."""
    if (use := next_use_on(state, file, node_id)) is not None and is_at_hand(state, file, node_id):
        node = state.nodes[node_id]
        heappush(node.candidates, (use[0], file.id))
        node.dirty = True


def tell_other_nodes(state: State, file: FileEntry) -> None:
    """Where it can be had from has changed: nodes that wait for it look again."""
    if len(state.nodes) == 1 or state.next_use(file) == NEVER:
        return
    for node, copy in file.copies.items():
        if copy.state is WANTED:
            state.want(node, file)
    for node in dict.fromkeys([state.runs[run].jobs[job].node for _, run, job in file.uses[file.use_at :] if run in state.active]):
        if node not in file.copies and node in state.nodes:
            offer_for_prefetch(state, file, node)
