"""How much room a run may take on a node at once, and how much may come ahead, where its plan says less than the node has: as if the node
were smaller.

May know: the state. One rule: it only holds back what would begin or move. Nothing is evicted or called off for it, and a run of which no
job holds room on a node may begin one there, however large.
"""

from __future__ import annotations

from collections.abc import Iterable

from stager.scheduler.accounting import inputs_of
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import JobEntry, RunEntry, State

# Worth of the line, in bytes, that are to be on their way. A small file takes two to four: a connection that was idle begins slowly. As
# many again wait in between.
ROUND_TRIPS_FULL = 8.0


def is_kept(state: State, run: RunEntry) -> bool:
    """Whether the run stays on the nodes that its plan keeps to: while all of them can be reached."""
    return all(node.reachable for name in run.plan.keeps_to if (node := state.nodes.get(name)) is not None)


def keeps_to(state: State, run: RunEntry, node: NodeEntry) -> bool:
    """Whether its plan lets the run use this node: one that is left idle helps out once another is away."""
    kept = run.plan.keeps_to
    return not kept or node.id in kept or not is_kept(state, run)


def room_kept_to(state: State, run: RunEntry) -> tuple[str, ...]:
    """The nodes whose room alone counts for the run: those that its plan keeps to, if that also says how much of each, while no other run
    is active. Otherwise it computes on these, and what is in the way there may go to others. None: all.
    """
    plan = run.plan
    if not plan.keeps_to or not plan.holds_max_bytes or len(state.active) > 1 or not is_kept(state, run):
        return ()
    return tuple([name for name in plan.keeps_to if name in state.nodes])


def helping(state: State, nodes: Iterable[NodeEntry]) -> list[NodeEntry]:
    """Of these nodes, those that some run may use. It is asked for at each step."""
    runs = [state.runs[run] for run in state.active]
    if not all(run.plan.keeps_to for run in runs):
        return list(nodes)
    return [node for node in nodes if any(keeps_to(state, run, node) for run in runs)]


def may_begin(state: State, run: RunEntry, node: NodeEntry, job: JobEntry, beside_bytes: int = 0) -> bool:
    """Whether the job may be admitted there; `beside_bytes`: and so much be left for others."""
    most_bytes = run.plan.holds_max_bytes
    if not most_bytes:
        return True
    inputs = inputs_of(state, run, job.id)
    more_bytes = job.reserve_bytes + beside_bytes
    if all_there(node) + sum([file.size_bytes for file in inputs]) + more_bytes <= most_bytes:
        return True
    held_bytes, files = held_by_jobs(run, node)
    if not held_bytes and not files:
        return True
    files |= coming_ahead(state, run, node)
    for file in inputs:
        files[file.id] = file.size_bytes
    return held_bytes + more_bytes + sum(files.values()) <= most_bytes


def may_come_ahead(state: State, run: RunEntry, node: NodeEntry, size_bytes: int) -> bool:
    """Whether a file for the run may be fetched there before its job is admitted; `size_bytes`: of it, and of what else needs room beside
    it.
    """
    if 0 < run.plan.ahead_max <= len(node.prefetching) and fills_line(state, run, node):
        return False
    most_bytes = run.plan.holds_max_bytes
    if not most_bytes or all_there(node) + size_bytes <= most_bytes:
        return True
    if size_bytes > most_bytes:
        return False
    held_bytes, files = held_by_jobs(run, node)
    files |= coming_ahead(state, run, node)
    return held_bytes + sum(files.values()) + size_bytes <= most_bytes


def fills_line(state: State, run: RunEntry, node: NodeEntry) -> bool:
    """Whether what is on its way there keeps the line busy until more that is asked for now begins to come. Two small files do not, nor
    does a large one with a small one behind it: nobody here knows how much of it is still to come.
    """
    nodes = len(run.plan.keeps_to) or run.plan.nodes
    ways = [link.fetch_bytes_per_s * link.latency_s for link in run.plan.links]
    largest_bytes = max([state.files[file].size_bytes for file in node.prefetching], default=0)
    return (node.line_bytes - largest_bytes) * nodes >= ROUND_TRIPS_FULL * max(ways, default=0.0)


def all_there(node: NodeEntry) -> int:
    """At least what anybody holds there, and quickly summed."""
    return node.capacity_bytes - node.free_bytes


def held_by_jobs(run: RunEntry, node: NodeEntry) -> tuple[int, dict[str, int]]:
    """The bytes set aside for the outputs of its jobs that are admitted or run, and their inputs by file: one that two read is
    there once.
    """
    reserved_bytes, files, jobs, here = 0, {}, run.jobs, node.id
    for job_id, pins in run.pinned.items():
        job = jobs[job_id]
        if job.node == here:
            reserved_bytes += job.reserve_bytes
            for file, copy in pins:
                files[file.id] = copy.size_bytes
    return reserved_bytes, files


def coming_ahead(state: State, run: RunEntry, node: NodeEntry) -> dict[str, int]:
    """By file, those on their way there that it is the first to read."""
    files = [state.files[file_id] for file_id in node.prefetching]
    return {file.id: file.size_bytes for file in files if file.use_at < len(file.uses) and file.uses[file.use_at][1] == run.id}
