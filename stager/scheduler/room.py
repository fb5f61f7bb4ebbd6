"""Making room on a node: evict what is clean and next used farthest away, call off prefetches, spill intermediates. Space counts as free
only when the node has said so.

One rule: nothing pinned, nothing dirty, nothing the asking job itself needs is ever given away.
"""

from __future__ import annotations

from heapq import heappop, heappush

from stager.scheduler import commands as cmd
from stager.scheduler.books import settle
from stager.scheduler.state import FileEntry, NodeEntry
from stager.scheduler.states import CopyState
from stager.scheduler.turn import Turn


def make_room(turn: Turn, node: NodeEntry, need_bytes: int, protect: frozenset[str] = frozenset(), horizon: int | None = None) -> bool:
    """True if `need_bytes` are free now. Else sets free what it may and says False: ask again at the next event.

    With a horizon (prefetch) only what is used after it may go, and nothing is called off or spilled.
    """
    if node.free_bytes >= need_bytes:
        return True
    gap = need_bytes - node.free_bytes - node.deleting_bytes - node.cancelling_bytes
    if gap <= 0 or not node.reachable:
        return False
    if horizon is not None and not enough_beyond(turn, node, horizon):
        return False
    gap = evict(turn, node, gap, protect, horizon)
    if gap > 0 and horizon is None:
        gap = call_off_prefetches(turn, node, gap, protect)
    if gap > 0 and horizon is None:
        spill(turn, node, gap - node.spilling_bytes, protect)
    return False


def enough_beyond(turn: Turn, node: NodeEntry, horizon: int) -> bool:
    """Whether the best victim is used after the horizon at all."""
    tidy(turn, node, node.evictable)
    return bool(node.evictable) and -node.evictable[0][0] > horizon


def tidy(turn: Turn, node: NodeEntry, heap: list[tuple[int, str, str]]) -> None:
    """Drops entries at the top that are out of date."""
    while heap and not is_current(turn, node, heap[0]):
        heappop(heap)


def is_current(turn: Turn, node: NodeEntry, entry: tuple[int, str, str]) -> bool:
    key, file_id, generation = entry
    file = turn.state.files[file_id]
    copy = file.copies.get(node.id)
    if copy is None or copy.generation != generation or copy.state is not CopyState.PRESENT or copy.pins:
        return False
    return -key == turn.state.next_use(file)


def evict(turn: Turn, node: NodeEntry, gap: int, protect: frozenset[str], horizon: int | None) -> int:
    """Farthest next use first. Returns what is still missing."""
    kept: list[tuple[int, str, str]] = []
    state = turn.state
    while gap > 0 and node.evictable:
        entry = heappop(node.evictable)
        file = state.files[entry[1]]
        if not is_current(turn, node, entry):
            continue
        if state.holds_only_copy(file):
            settle(state, file, node.id)
            continue
        if horizon is not None and -entry[0] <= horizon:
            kept.append(entry)
            break
        if file.id in protect:
            kept.append(entry)
            continue
        gap -= delete(turn, node, file, "evicted: its next use is farthest")
    for entry in kept:
        heappush(node.evictable, entry)
    return gap


def delete(turn: Turn, node: NodeEntry, file: FileEntry, why: str) -> int:
    copy = file.copies[node.id]
    facts = {"node": node.id, "file": file.id, "generation": copy.generation, "size_bytes": copy.size_bytes}
    turn.give(cmd.DeleteReplica, why=why, **facts)
    return copy.size_bytes


def call_off_prefetches(turn: Turn, node: NodeEntry, gap: int, protect: frozenset[str]) -> int:
    """Those used last first; there are at most `fetches_ahead_max`."""
    state = turn.state
    for file_id in sorted(node.prefetching, key=lambda f: (-state.next_use(state.files[f]), f)):
        copy = state.files[file_id].copies[node.id]
        if gap <= 0:
            break
        if file_id in protect or copy.pins or copy.state is not CopyState.FETCHING:
            continue
        gap -= copy.size_bytes
        turn.give(cmd.CancelTransfer, node=node.id, transfer=copy.generation)
    return gap


def spill(turn: Turn, node: NodeEntry, gap: int, protect: frozenset[str]) -> None:
    """Intermediates go to the spill origin, farthest next use first; once there they can be evicted."""
    state, kept = turn.state, []
    while gap > 0 and node.spillable:
        entry = heappop(node.spillable)
        file = state.files[entry[1]]
        run = state.runs[file.run]
        if not is_current(turn, node, entry) or file.spilling or state.owes_upload(file):
            continue
        if not state.holds_only_copy(file):
            settle(state, file, node.id)
            continue
        tries = file.upload
        if tries is not None and (tries.fault is not None or tries.not_before > state.now):
            continue
        if run.plan.spill_origin is None or state.paused(run.id, run.plan.spill_origin) is not None:
            continue
        if file.id in protect:
            kept.append(entry)
            continue
        copy = file.copies[node.id]
        gap -= copy.size_bytes
        turn.give(
            cmd.Upload,
            node=node.id,
            transfer=turn.new_transfer(),
            file=file.id,
            generation=copy.generation,
            lfn=file.lfn,
            run=run.id,
            origin=run.plan.spill_origin,
            path=f".stager-spill/{run.id}/{file.id}",
            size_bytes=copy.size_bytes,
            purpose=cmd.Purpose.SPILL,
            priority=5,
            replace=True,
        )
    for entry in kept:
        heappush(node.spillable, entry)
