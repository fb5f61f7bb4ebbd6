"""Clean files that are to be deleted for room and will be read again: a node with plenty of room takes them first, where that costs little.

May know: the state. One rule: only what would have to come over the origin's line again goes to another node, never what must not be lost
(migration.py), and only into room that nobody is likely to want.
"""

from __future__ import annotations

from stager.scheduler import commands as cmd
from stager.scheduler.copying import fastest, give_copy, migrations_under_way
from stager.scheduler.decision import Decision
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import NEVER, FileEntry, State

# The job that wants the room waits for the copy. It may take that share of what the origin's line would take.
COPYING_SHARE = 0.25
# So much of the other node stays free.
FREE_SHARE = 0.5
# From one node at once; beyond them a file is deleted.
AT_ONCE_MAX = 8
PRIORITY = 1


def hand_over(decision: Decision, node: NodeEntry, file: FileEntry) -> bool:
    """Whether a copy of the file now goes to another node. Its arrival deletes the one here."""
    state = decision.state
    if len(state.nodes) == 1 or node.sending >= AT_ONCE_MAX or not would_come_again(state, file):
        return False
    run = file.uses[file.use_at][1]
    if fastest(state) > COPYING_SHARE * state.runs[run].plan.copying_bytes_per_s:
        return False
    other = roomiest(state, node)
    if other is None or other.free_bytes - file.size_bytes < FREE_SHARE * other.capacity_bytes:
        return False
    give_copy(decision, other, file, run, node.id, cmd.Purpose.MOVE, PRIORITY)
    return True


def would_come_again(state: State, file: FileEntry) -> bool:
    return state.next_use(file) != NEVER and len(file.copies) == 1 and not file.moves_failed


def roomiest(state: State, node: NodeEntry) -> NodeEntry | None:
    able = [
        other for other in state.nodes.values() if other is not node and other.is_open and other.reachable and not other.waiting_attempts
    ]
    return max(able, key=lambda other: (other.free_bytes, other.id), default=None)


def handing_over_bytes(state: State, node: NodeEntry) -> int:
    """What is about to be free here once its copies are on other nodes."""
    moves = migrations_under_way(state) if state.moving else []
    return sum(move.size_bytes for move in moves if move.source == node.id and not move.cancelled)
