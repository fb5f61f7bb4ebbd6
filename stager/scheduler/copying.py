"""The command that sends a file from one node to another, and the moves under way.

May know: the state. One rule: whoever wants a copy made gives it here, whatever for.
"""

from __future__ import annotations

from stager.scheduler import commands as cmd
from stager.scheduler.decision import Decision
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import FileEntry, State, TransferEntry


def give_copy(decision: Decision, node: NodeEntry, file: FileEntry, run: str, source: str, purpose: cmd.Purpose, priority: int) -> None:
    """What was made is copied for the run that answers for it, whichever reads it."""
    run = run if file.is_external else file.run
    decision.emit(
        cmd.CopyReplica,
        node=node.id,
        transfer=decision.new_transfer(),
        file=file.id,
        lfn=file.lfn if file.run == run else decision.state.runs[run].shared.get(file.id, file.lfn),
        run=run,
        source=source,
        source_generation=file.copies[source].generation,
        size_bytes=file.size_bytes,
        purpose=purpose,
        priority=priority,
        attempt_number=file.fetch.copies_failed + 1 if file.fetch is not None and file.run == run else 1,
        blake3=file.blake3,
    )


def migrations_under_way(state: State) -> list[TransferEntry]:
    found = []
    for transfer_id in list(state.moving):
        transfer = state.transfers.get(transfer_id)
        if transfer is None or transfer.purpose is not cmd.Purpose.MOVE:
            del state.moving[transfer_id]
        else:
            found.append(transfer)
    return found


def fastest(state: State) -> float:
    """What a line is expected to have of the origins of active runs, at most: in bytes per second."""
    return max(
        [link.node_fetch_bytes_per_s or link.fetch_bytes_per_s for run in state.active for link in state.runs[run].plan.links], default=1.0
    )
