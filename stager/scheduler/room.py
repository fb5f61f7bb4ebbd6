"""Making room on a node: evict what is clean and next used farthest away, call off prefetches, spill intermediates that are used farther
away than all that is clean. Space counts as free only when the node has said so.

One rule: nothing pinned, nothing dirty, nothing the asking job itself needs is ever given away.
"""

from __future__ import annotations

from heapq import heappop, heappush

from stager.scheduler import commands as cmd
from stager.scheduler.books import eviction_key, settle, spares_coming
from stager.scheduler.state import NEVER, FileEntry, NodeEntry, State
from stager.scheduler.states import CopyState
from stager.scheduler.stripes import give_up_parts_on
from stager.scheduler.turn import Turn


def make_room(turn: Turn, node: NodeEntry, need_bytes: int, protect: frozenset[str] = frozenset()) -> bool:
    """True if `need_bytes` are free now. Else sets free what it may and says False: ask again at the next event."""
    if node.free_bytes >= need_bytes:
        return True
    gap = need_bytes - node.free_bytes - node.deleting_bytes - node.cancelling_bytes - node.spilling_bytes
    if gap <= 0 or not node.reachable:
        return False
    gap = give_up_clean(turn, node, gap, protect)
    if gap > 0 and turn.state.parts:
        gap = give_up_parts_on(turn, node, gap)
    if gap > 0:
        give_up(turn, node, gap, protect, clean_only=False)
    return False


def clear(turn: Turn, node: NodeEntry, need_bytes: int) -> bool:
    """The same with only what can be had again: for what another node would send here."""
    gap = need_bytes - node.free_bytes
    if gap <= 0:
        return True
    gap -= node.deleting_bytes + node.cancelling_bytes + node.spilling_bytes
    give_up_clean(turn, node, gap, frozenset())
    return False


def give_up_clean(turn: Turn, node: NodeEntry, gap: int, protect: frozenset[str]) -> int:
    """What can be had again, in the order in which it is missed least. Returns what is still missing."""
    if gap > 0:
        gap = call_off_spares(turn, node, gap)
    if gap > 0:
        gap = give_up(turn, node, gap, protect, clean_only=True)
    return call_off_prefetches(turn, node, gap, protect) if gap > 0 else gap


def make_room_ahead(turn: Turn, node: NodeEntry, need_bytes: int) -> bool:
    """The same for a prefetch: only what nobody will read goes for it. Anything else would have to be fetched again, and whether it is the
    farthest is known only when a job asks for the room.
    """
    gap = need_bytes - node.free_bytes
    if gap <= 0:
        return True
    gap -= node.deleting_bytes + node.cancelling_bytes
    while gap > 0 and node.reachable and holds_unread(node):
        tidy(turn, node)
        if holds_unread(node):
            gap -= evict_one(turn, node, frozenset())
    return False


def holds_unread(node: NodeEntry) -> bool:
    """Whether nobody will read the first that may be evicted, or it is a spare: as far as known, until the queue is tidied."""
    return bool(node.evictable) and node.evictable[0][0] <= -NEVER


def give_up(turn: Turn, node: NodeEntry, gap: int, protect: frozenset[str], clean_only: bool) -> int:
    """Farthest next use first, whether it can be evicted or has to be spilled before; `clean_only` stops where the next would be spilled.
    Returns what is still missing.
    """
    while gap > 0:
        tidy(turn, node)
        spills = bool(node.spillable) and (not node.evictable or node.spillable[0][0] < node.evictable[0][0])
        if spills and clean_only:
            return gap
        freed = spill_one(turn, node, protect) if spills else 0
        freed = freed or evict_one(turn, node, protect)
        if not freed:
            return gap
        gap -= freed
    return gap


def tidy(turn: Turn, node: NodeEntry) -> None:
    """Leaves at the top of both queues what may go that way. What is in the wrong one moves: with several nodes a copy becomes the only
    one when the other holder cannot be reached, and is not any more when it is back.
    """
    state = turn.state
    for heap, spills in ((node.evictable, False), (node.spillable, True)):
        while heap:
            file = state.files[heap[0][1]]
            current, only = is_current(turn, node, heap[0]), state.holds_only_copy(file)
            if current and only is spills and (not spills or may_be_spilled(state, file)):
                break
            heappop(heap)
            if current and only is not spills:
                settle(state, file, node.id)


def may_be_spilled(state: State, file: FileEntry) -> bool:
    """Ever, if its origin can be reached."""
    return state.runs[file.run].plan.spill_origin is not None and not file.spilling and not state.owes_upload(file)


def is_current(turn: Turn, node: NodeEntry, entry: tuple[int, str, str]) -> bool:
    key, file_id, generation = entry
    file = turn.state.files[file_id]
    copy = file.copies.get(node.id)
    if copy is None or copy.generation != generation or copy.state is not CopyState.PRESENT or copy.pins:
        return False
    return -key == eviction_key(copy, turn.state.next_use(file))


def evict_one(turn: Turn, node: NodeEntry, protect: frozenset[str]) -> int:
    """Bytes of what goes; 0: there is nothing."""
    kept: list[tuple[int, str, str]] = []
    state, freed = turn.state, 0
    while not freed and node.evictable:
        entry = heappop(node.evictable)
        file = state.files[entry[1]]
        if not is_current(turn, node, entry):
            continue
        if state.holds_only_copy(file):
            settle(state, file, node.id)
            continue
        if file.id in protect:
            kept.append(entry)
            continue
        freed = max(1, delete(turn, node, file, "evicted: its next use is farthest"))
    for entry in kept:
        heappush(node.evictable, entry)
    return freed


def delete(turn: Turn, node: NodeEntry, file: FileEntry, why: str) -> int:
    copy = file.copies[node.id]
    facts = {"node": node.id, "file": file.id, "generation": copy.generation, "size_bytes": copy.size_bytes}
    turn.give(cmd.DeleteReplica, why=why, **facts)
    return copy.size_bytes


def call_off_spares(turn: Turn, node: NodeEntry, gap: int) -> int:
    """Those on their way to this node, of which there is one as a rule."""
    for transfer in spares_coming(turn.state):
        if gap > 0 and transfer.node == node.id and not turn.state.files[transfer.file].copies[node.id].pins:
            gap -= transfer.size_bytes
            turn.give(cmd.CancelTransfer, node=node.id, transfer=transfer.id)
    return gap


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


def spill_one(turn: Turn, node: NodeEntry, protect: frozenset[str]) -> int:
    """An intermediate goes to the spill origin; once there it can be evicted. Its bytes; 0: there is none."""
    state, kept, freed = turn.state, [], 0
    while not freed and node.spillable:
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
        freed = max(1, copy.size_bytes)
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
    return freed
