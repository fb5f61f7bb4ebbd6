"""Results that are kept for later runs: what jobs made, no run needs any more, and a record of results names.

May know: the state. One rule: they stay in room that nobody wants. They are the first to go, the cheapest to make again for their size
before the others, and nobody waits for anything but their deletion.
"""

from __future__ import annotations

from stager.model.files import FileKind
from stager.scheduler.commands import RunOutcome
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import Copy, FileEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState, RunState

# Bytes for each second of making it again: more would not fit into a key beside `NEVER`.
RANK_MAX = 1 << 60
REMAKE_S_MIN = 1e-3
# What an input of a job costs that would have to be had again, whatever it comes from: a line of 100 Mbit/s.
INPUT_BYTES_PER_S = 12.5e6


def rank_of(state: State, file: FileEntry, copy: Copy) -> int:
    """The greatest goes first; at least 1. 0: it is not to be kept."""
    if not is_result(state, file):
        return 0
    return 1 + min(RANK_MAX, int(copy.size_bytes / max(file.remake_s, REMAKE_S_MIN)))


def count_kept(node: NodeEntry, copy: Copy, rank: int) -> None:
    """That it is there for later runs only, or not any more."""
    node.kept_bytes += copy.size_bytes * ((rank != 0) - (copy.result_rank != 0))
    copy.result_rank = rank
    if rank:
        # It may be more than is to be kept.
        node.dirty = True


def is_result(state: State, file: FileEntry) -> bool:
    """Whether a record names it, by which a later run may find it."""
    run = state.runs.get(file.run)
    if not file.blake3 or file.kind is not FileKind.FILE or file.destination is not None:
        return False
    if run is None:
        return file.remake_s > 0
    job = run.jobs.get(file.producer)
    if job is None or job.state is not JobState.DONE:
        return False
    if run.state is RunState.CANCELLING or run.outcome is RunOutcome.CANCELLED:
        # What it made itself goes, as was asked for.
        return job.reused_from != ""
    return job.reused_from != "" or is_recorded(state, run, job.id)


def is_recorded(state: State, run: RunEntry, job_id: str) -> bool:
    """Whether all that bears on what the job makes is known by content."""
    job = run.workflow.jobs[job_id]
    if run.is_engines or not job.reuse or any(name not in run.passed for name in job.env_pass):
        return False
    return all(not run.reads_directly(entry.lfn) and state.files[run.file_ids[entry.lfn]].blake3 for entry in job.inputs)


def remake_s(took_s: float, input_bytes: int) -> float:
    return took_s + input_bytes / INPUT_BYTES_PER_S


def may_be_linked(state: State, file: FileEntry | None, tenant: str, blake3: str) -> bool:
    """Whether a run of this tenant may take it for what its own job would make."""
    if (
        file is None
        or file.is_external
        or file.blake3 != blake3
        or file.destination is not None
        or file.spilled is not None
        or file.spilling
    ):
        return False
    run = state.runs.get(file.run)
    if (file.tenant if run is None else run.tenant) != tenant or (run is not None and run.is_engines):
        return False
    return any(copy.state is CopyState.PRESENT and can_be_asked(state, node) for node, copy in file.copies.items())


def can_be_asked(state: State, node_id: str) -> bool:
    """It can be reached, or has not been heard yet since the scheduler started."""
    node = state.nodes[node_id]
    return node.reachable or (not node.gone and node.since < state.started_at)


def is_away_for_long(state: State, file: FileEntry, long_s: float) -> bool:
    """Each node that holds it cannot be asked, for so long."""
    there = [state.nodes[node] for node, copy in file.copies.items() if copy.state is CopyState.PRESENT]
    return all(not node.reachable and state.now - max(node.since, state.started_at) > long_s for node in there)
