"""Write-back and tidying: finals go home as soon as they exist, what nobody wants goes away, spills are erased. One rule: deletes name a
generation.
"""

from __future__ import annotations

from heapq import heappop, heappush

from stager.model.files import Destination, FileKind, OnExists
from stager.scheduler import commands as cmd
from stager.scheduler.copying import give_copy
from stager.scheduler.decision import Decision
from stager.scheduler.eviction import delete_replica
from stager.scheduler.reach import reaches
from stager.scheduler.relay import has_room, never_by_relay, relay_for
from stager.scheduler.state import FileEntry, State
from stager.scheduler.states import ACTIVE, PRESENT, RunState

WRITE_BACK = 10
# Under way to nodes that reach their places. What comes there needs room until it is home.
RELAYS_MAX = 8
# Finals that cannot go now are looked past, and no more than these at a step.
LOOKS_MAX = 256


def send_finals(decision: Decision) -> None:
    """In the order of their producers; at most `uploads_max` at a time."""
    state = decision.state
    kept: list[tuple[int, str]] = []
    while state.due_uploads and state.uploads_live < state.policy.uploads_max and len(kept) < LOOKS_MAX:
        entry = heappop(state.due_uploads)
        file = state.files[entry[1]]
        if is_due(state, file) and not send_final(decision, file):
            kept.append(entry)
    for entry in kept:
        heappush(state.due_uploads, entry)


def is_due(state: State, file: FileEntry) -> bool:
    run = state.runs.get(file.run)
    if run is None or run.state not in (ACTIVE, RunState.DRAINING) or file.destination is None or file.durable is not None:
        return False
    retries = file.upload
    return retries is None or not (retries.transfer or retries.fault or retries.not_before > state.now)


def send_final(decision: Decision, file: FileEntry) -> bool:
    """False: its node cannot be asked now, it stays due."""
    state = decision.state
    source = state.holding(file)
    there = [node for node, copy in source.copies.items() if copy.state is PRESENT]
    reachable = [node for node in there if state.nodes[node].reachable]
    destination = file.destination
    if destination is None or not reachable:
        return not there
    origin = destination.location.origin
    paused = state.paused(file.run, origin)
    if paused is not None:
        decision.emit(cmd.GiveUpTransfer, file=file.id, run=file.run, upload=True, fault=paused, origin=origin)
        return True
    able = [node for node in reachable if reaches(state, state.nodes[node], file.run, origin)]
    if not able and source is not file:
        return make_instead(decision, file, there, origin)
    if not able:
        return send_to_relay(decision, file, reachable[0], origin)
    copy = source.copies[able[0]]
    decision.emit(
        cmd.Upload,
        node=able[0],
        transfer=decision.new_transfer(),
        file=file.id,
        generation=copy.generation,
        lfn=file.lfn,
        run=file.run,
        origin=origin,
        path=destination.location.path,
        size_bytes=copy.size_bytes,
        purpose=cmd.Purpose.FINAL,
        priority=WRITE_BACK,
        replace=destination.on_exists is OnExists.REPLACE,
        executable=file.executable,
        attempt_number=(file.upload.failures + file.upload.outages if file.upload else 0) + 1,
        replaces=file.left.token if file.left is not None else "",
        made_at=file.made_at if may_be_superseded(state, able[0], file, destination) else None,
        reads=source.id if source is not file else "",
    )
    return True


def make_instead(decision: Decision, file: FileEntry, there: list[str], origin: str) -> bool:
    """What is lent to it is on no node any more that reaches its place. False: one that does may come back, it stays due."""
    state = decision.state
    if any(reaches(state, state.nodes[node], file.run, origin) for node in there):
        return False
    decision.emit(cmd.RemakeFile, run=file.run, file=file.id, job=file.producer)
    return True


def send_to_relay(decision: Decision, file: FileEntry, source: str, origin: str) -> bool:
    """To a node from which its place can be reached; when it is there it is due again. False: not now, it stays due."""
    state = decision.state
    relay, fault = relay_for(state, file), never_by_relay(state, file)
    if fault is not None:
        decision.emit(cmd.GiveUpTransfer, file=file.id, run=file.run, upload=True, fault=fault, origin=origin)
        return True
    if relay is None or relay.id in file.copies or len(state.relaying) >= RELAYS_MAX or not has_room(decision, relay, file):
        return False
    give_copy(decision, relay, file, file.run, source, cmd.Purpose.RELAY, WRITE_BACK)
    return True


def may_be_superseded(state: State, node: str, file: FileEntry, destination: Destination) -> bool:
    """Whether somebody may have written something newer where it goes: it was made, and then the node, or the one that it was relayed
    from, or the scheduler was away. Where nothing may be replaced what is there stays anyway; of a directory one part would stay and
    another not.
    """
    maker = state.nodes[state.runs[file.run].jobs[file.producer].node]
    back_at = max(state.nodes[node].back_at, maker.back_at if maker.apart else 0.0)
    return destination.on_exists is OnExists.REPLACE and file.kind is FileKind.FILE and 0 < file.made_at <= back_at


def tidy_up(decision: Decision) -> None:
    """Deletes what nobody wants. An entry may be out of date: it is checked again."""
    state = decision.state
    useless, state.useless = state.useless, []
    for node_id, file_id, generation in useless:
        file, node = state.files.get(file_id), state.nodes[node_id]
        copy = file.copies.get(node_id) if file is not None else None
        size_bytes = node.garbage.get((file_id, generation)) if node.garbage else None
        why = "it does not count: damaged, or made by an attempt that was given up"
        if size_bytes is None:
            if file is None or copy is None or copy.generation != generation or copy.state is not PRESENT or copy.pins:
                continue
            goes_home = (file.destination is not None and state.owes_upload(file)) or (file.lent_to and state.is_lent(file))
            if goes_home or file.use_at < len(file.uses):
                continue
            size_bytes, why = copy.size_bytes, "its last reader is done"
        if not node.reachable:
            state.useless.append((node_id, file_id, generation))
            continue
        delete_replica(decision, node_id, file_id, generation, size_bytes, why)
    if state.spills_to_erase:
        erase_spills(decision)


def erase_spills(decision: Decision) -> None:
    """By the node named, or by another once that is gone. Where none can be asked they stay due."""
    state = decision.state
    entries, state.spills_to_erase = state.spills_to_erase, []
    for file_id, held, node_id in entries:
        file, eraser = state.files[file_id], eraser_for(state, node_id)
        if eraser and (file.spilled is held or (file.spilled is None and state.runs[file.run].is_engines)):
            facts = {"node": eraser, "run": file.run, "file": file_id, "origin": held.origin, "path": held.path, "token": held.token}
            decision.emit(cmd.EraseSpill, **facts)
        elif not eraser:
            state.spills_to_erase.append((file_id, held, node_id))


def eraser_for(state: State, node_id: str) -> str:
    """The node itself, unless it is gone. Empty: there is none."""
    if not state.nodes[node_id].gone:
        return node_id
    return next((node.id for node in state.nodes.values() if node.reachable), "")


def erase_again(decision: Decision) -> None:
    """What nodes that are gone were asked to erase and did not say that they had."""
    state = decision.state
    for (origin, path), entry in list(state.erasing.items()):
        if state.nodes[entry.node].gone and (eraser := eraser_for(state, entry.node)):
            facts = {"node": eraser, "run": entry.run, "file": entry.file, "origin": origin, "path": path, "token": entry.token}
            decision.emit(cmd.EraseSpill, **facts)
