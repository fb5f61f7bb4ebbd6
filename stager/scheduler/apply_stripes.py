"""The effect of commands and events on the accounting about parts of files that come in stripes.

May know: the state and accounting. One rule: a part takes space on its node from the moment it is asked for until the node has said that it
is gone; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappush

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler import line
from stager.scheduler.accounting import add_garbage, unpin
from stager.scheduler.state import State, TransferEntry
from stager.scheduler.stripe_entries import PartEntry, StripedFetch


def begin_part(state: State, command: cmd.Fetch, stripe: cmd.Stripe) -> None:
    entry = state.striped.setdefault(stripe.assembly, StripedFetch(stripe.assembly, command.file, stripe.target))
    entry.parts[command.node] = command.transfer
    state.parts[command.transfer] = PartEntry(
        command.transfer, stripe.assembly, command.node, command.file, command.run, command.size_bytes
    )
    node = state.nodes[command.node]
    node.fetching_bytes += command.size_bytes
    line.ask(node, command.size_bytes, command.at)


def cancel_part(state: State, part: PartEntry) -> None:
    if not part.cancelled:
        part.cancelled = True
        state.nodes[part.node].cancelling_bytes += part.size_bytes


def part_done(state: State, part: PartEntry, size_bytes: int) -> None:
    """All of it is there. Where nobody assembles it any more, it is to be deleted."""
    if part.here:
        state.stale += 1
        return
    no_longer_comes(state, part, size_bytes)
    run = state.runs.get(part.run)
    if run is not None:
        run.fetched_bytes += size_bytes
    part.here = True
    state.nodes[part.node].present_bytes += part.size_bytes
    if part.assembly not in state.striped:
        throw_away(state, part)


def part_failed(state: State, part: PartEntry, why: str) -> None:
    """Or was called off, or vanished: nothing of it takes space."""
    if part.here:
        state.stale += 1
        return
    no_longer_comes(state, part)
    forget(state, part, why)


def part_damaged(state: State, part: PartEntry, why: str) -> None:
    """It came and is no good; the node still holds it."""
    throw_away(state, part)
    forget(state, part, why)


def no_longer_comes(state: State, part: PartEntry, arrived_bytes: int = 0) -> None:
    node = state.nodes[part.node]
    node.fetching_bytes -= part.size_bytes
    line.let_go(node, part.size_bytes, state.now, arrived_bytes)
    node.cancelling_bytes -= part.size_bytes if part.cancelled else 0


def forget(state: State, part: PartEntry, why: str) -> None:
    state.parts.pop(part.id, None)
    if part.assembly in state.striped:
        state.broken_stripes[part.assembly] = why


def throw_away(state: State, part: PartEntry) -> None:
    del state.parts[part.id]
    node = state.nodes[part.node]
    node.present_bytes -= part.size_bytes
    add_garbage(node, part.file, part.id, part.size_bytes)
    state.useless.append((part.node, part.file, part.id))


def lose_part(state: State, part: PartEntry) -> None:
    """Its node is gone, with it or before it came."""
    if not part.here:
        part_failed(state, part, f"{part.node}, which was to fetch a part of it, is gone")
        return
    state.nodes[part.node].present_bytes -= part.size_bytes
    forget(state, part, f"{part.node}, which had a part of it, is gone")


def parts_reported(state: State, node_id: str, seen: Mapping[tuple[str, str], ev.ReplicaSeen], known: frozenset[str]) -> None:
    """The node's word on parts is taken. `seen`: sound replicas that it has; `known`: transfers that it has under way."""
    for part in [part for part in state.parts.values() if part.node == node_id]:
        there = seen.get((part.file, part.id))
        if there is not None and not part.here:
            part_done(state, part, there.size_bytes)
        elif there is None and part.here:
            state.nodes[node_id].present_bytes -= part.size_bytes
            forget(state, part, f"its part on {node_id} is gone")
        elif there is None and part.id not in known:
            part_failed(state, part, f"{node_id} does not know of its part")
        elif there is None and part.assembly not in state.striped:
            # The word to call it off may have been lost.
            state.orphaned_parts.append(part.id)


def disband(state: State, assembly: str) -> None:
    """Assembled, or called off: what came is to be deleted, what still comes to be called off."""
    entry = state.striped.pop(assembly, None)
    state.broken_stripes.pop(assembly, None)
    for part_id in entry.parts.values() if entry is not None else ():
        part = state.parts.get(part_id)
        if part is not None and part.here:
            throw_away(state, part)
        elif part is not None:
            state.orphaned_parts.append(part_id)


def let_go_of_source(state: State, transfer: TransferEntry | None, arrived_bytes: int = 0) -> None:
    """Something that brought a replica to its node has ended, one way or the other."""
    if transfer is not None and transfer.on_line:
        line.let_go(state.nodes[transfer.node], transfer.size_bytes, state.now, arrived_bytes)
    if transfer is not None and transfer.assembles:
        disband(state, transfer.id)
    if transfer is None or not transfer.source:
        return
    if transfer.id in state.relaying:
        end_relay(state, transfer)
    state.nodes[transfer.source].sending -= 1
    if transfer.copy is not None:
        unpin(state, state.files[transfer.file], transfer.source, transfer.copy)


def end_relay(state: State, transfer: TransferEntry) -> None:
    """The final is where its place can be reached from, or did not come there: either way it is due again."""
    del state.relaying[transfer.id]
    file, run = state.files[transfer.file], state.runs[transfer.run]
    if file.upload is not None and file.upload.transfer == transfer.id:
        file.upload.transfer = ""
    heappush(state.due_uploads, (run.key(run.jobs[file.producer].order), file.id))


def end_part(state: State, transfer_id: str, why: str) -> None:
    if (part := state.parts.get(transfer_id)) is not None:
        part_failed(state, part, why)
    else:
        state.stale += 1
