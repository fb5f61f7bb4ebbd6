"""The nodes for which a run waits: those that do not answer and hold what it needs, and those that are gone with what is made again.

May know: the Machine's state (read only), wire. One rule: it walks a run's files only while a node is away or gone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from stager import wire
from stager.model.units import counted, format_duration, format_size
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import NEVER, FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState, RunState
from stager.service.giving_up import Patience

AWAY_CODE, GONE_CODE = "node_away", "node_gone"
READY_STATES = (JobState.READY, JobState.ADMITTED)


@dataclass(frozen=True, slots=True)
class Part:
    """Of a run: these of its jobs and files, and no others."""

    jobs: Collection[JobEntry]
    files: Collection[FileEntry]


def whole(state: State, run: RunEntry) -> Part:
    return Part(run.jobs.values(), [state.files[file_id] for file_id in run.file_ids.values()])


def nodes_waited_for(state: State, run: RunEntry, now: float, patience: Patience, part: Part | None = None) -> Iterator[wire.WaitingView]:
    """`part`: what is asked about; None: all of the run."""
    if run.state is RunState.FINISHED:
        return
    away = {node.id: node for node in state.nodes.values() if not node.reachable and not node.gone and node.incarnation}
    gone = [node for node in state.nodes.values() if node.gone and node.since >= run.submitted_at]
    if not away and not gone:
        return
    of = part or whole(state, run)
    files, names = of.files, {job.id for job in of.jobs}
    for node in away.values():
        held = [file for file in files if is_waited_for(state, run, file) and is_only_on(file, node.id, away)]
        mine = (attempt for attempt in state.attempts.values() if attempt.run == run.id and attempt.job in names)
        begun = sum(attempt.node == node.id for attempt in mine)
        ready = sum(job.node == node.id and job.state in READY_STATES for job in of.jobs)
        if held or begun or ready:
            yield away_view(node, held, begun, ready, now, patience.of_node(node))
    lost = [file for file in files if gone and is_made_again(state, run, file)]
    if lost:
        yield gone_view(gone, lost, now)


def is_waited_for(state: State, run: RunEntry, file: FileEntry) -> bool:
    """By this run: one of its jobs is to read it, or it is to go home."""
    reads = any(use[1] == run.id and not state.use_is_over(use) for use in file.uses[file.use_at :])
    return reads or (file.run == run.id and not file.is_external and state.owes_upload(file))


def is_only_on(file: FileEntry, node_id: str, away: dict[str, NodeEntry]) -> bool:
    """It is there, and on no node that answers. An input that is to be had from its origin is not waited for."""
    there = [holder for holder, copy in file.copies.items() if copy.state is CopyState.PRESENT]
    spare = file.is_external or file.durable is not None or file.spilled is not None
    return not spare and node_id in there and all(holder in away for holder in there)


def is_made_again(state: State, run: RunEntry, file: FileEntry) -> bool:
    """It was made before, nobody has it any more, and somebody is to read it or it is to go home."""
    if file.is_external or file.run != run.id or not file.blake3 or file.copies or file.durable is not None or file.spilled is not None:
        return False
    return run.jobs[file.producer].state is not JobState.DONE and (state.next_use(file) != NEVER or file.destination is not None)


def away_view(node: NodeEntry, held: list[FileEntry], begun: int, ready: int, now: float, given_up_at: float | None) -> wire.WaitingView:
    since_s = max(0.0, now - node.since)
    size = format_size(sum(file.size_bytes for file in held))
    parts = [f"it alone holds {counted(len(held), 'file')} ({size})"] if held else []
    parts += [f"{counted(begun, 'job')} began beside it"] if begun else []
    parts += [f"{counted(ready, 'job')} may begin beside it"] if ready else []
    message = f"node {node.id}: no answer for {format_duration(since_s) if since_s >= 10 else f'{round(since_s)} s'}; {', '.join(parts)}"
    hint = until_text(given_up_at, now) or f"`stager node forget {node.id}` if it does not come back"
    return view_of(node.id, AWAY_CODE, "it does not answer", since_s, f"{message}; {hint}")


def until_text(given_up_at: float | None, now: float) -> str:
    """Empty: it is waited for until somebody gives it up."""
    if given_up_at is None:
        return ""
    clock = time.strftime("%H:%M:%S", time.localtime(given_up_at))
    return f"it is given up at {clock}, in {format_duration(max(0.0, given_up_at - now))}, if it does not come back"


def gone_view(gone: list[NodeEntry], lost: list[FileEntry], now: float) -> wire.WaitingView:
    names, since = ", ".join(node.id for node in gone), max(node.since for node in gone)
    size = format_size(sum(file.size_bytes for file in lost))
    why = "; ".join(dict.fromkeys(node.gone for node in gone))
    message = f"node {names}: gone ({why}); {counted(len(lost), 'file')} ({size}) that nobody else held "
    return view_of(names, GONE_CODE, why, max(0.0, now - since), message + ("are" if len(lost) > 1 else "is") + " made again")


def view_of(node: str, code: str, reason: str, since_s: float, message: str) -> wire.WaitingView:
    """No transfer of it failed, and nothing of it is tried at a time."""
    return wire.WaitingView(
        origin="", node=node, code=code, reason=reason, since_s=since_s, fetches=0, uploads=0, next_try_s=0.0, message=message
    )
