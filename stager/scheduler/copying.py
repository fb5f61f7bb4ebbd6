"""The command that sends a file from one node to another. One rule: whoever wants a copy made gives it here, whatever for."""

from __future__ import annotations

from stager.scheduler import commands as cmd
from stager.scheduler.decision import Decision
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import FileEntry


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
