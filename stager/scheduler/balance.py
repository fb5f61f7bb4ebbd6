"""Jobs that wait for a core, or for room, go to a node that has both to spare: what a plan foretold of times is never quite so.

May know: the state. One rule: a node is a wish. What goes to another goes by the same admission as at home, takes nothing away from it, and
brings its bytes along only where computing takes much longer.
"""

from __future__ import annotations

from heapq import heappop

from stager.scheduler import commands as cmd
from stager.scheduler.admission import admit_here, is_safe, send_wanted, start
from stager.scheduler.books import inputs_of
from stager.scheduler.peers import peer_for
from stager.scheduler.sources import denial, must_wait, own_fault
from stager.scheduler.state import FileEntry, JobEntry, NodeEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState
from stager.scheduler.turn import Turn

# A job may be brought so much that copying it takes a quarter of its computing.
COPYING_SHARE = 0.25
# Of each queue that many are looked at: the first and the two after which all others come.
LOOKED_AT = 3


def balance(turn: Turn) -> None:
    """Once all nodes have begun what they can. One pass over the nodes where nobody idles."""
    state = turn.state
    idle = [node for node in state.nodes.values() if not node.ready and has_cores(state, node)]
    if not idle or len(idle) == len(state.nodes):
        return
    loaded = [node for node in state.nodes.values() if (node.ready or node.startable) and not has_cores(state, node)]
    for node in idle:
        while loaded and has_cores(state, node) and any(take_one(turn, node, other) for other in loaded):
            send_wanted(turn, node)
            start(turn, node)


def has_cores(state: State, node: NodeEntry) -> bool:
    """Cores that nobody who is there waits for."""
    return node.reachable and not node.ready and node.cores_used + node.admitted_waiting < state.limits.cores


def take_one(turn: Turn, node: NodeEntry, other: NodeEntry) -> bool:
    state = turn.state
    for queue, waiting in ((other.startable, JobState.ADMITTED), (other.ready, JobState.READY)):
        while queue and not is_waiting(state, other, queue[0], waiting):
            heappop(queue)
        for entry in queue[:LOOKED_AT]:
            run = state.runs[entry[1]]
            job = run.jobs[entry[2]]
            if is_waiting(state, other, entry, waiting) and may_come(state, node, run, job):
                if waiting is JobState.ADMITTED:
                    why = f"node {node.id} has a core to spare"
                    turn.give(cmd.RequeueJob, run=run.id, job=job.id, not_before=state.now, counts=False, why=why)
                admit_here(turn, node, run, job, inputs_of(state, run, job.id), job.reserve_bytes)
                return True
    return False


def is_waiting(state: State, node: NodeEntry, entry: tuple[int, str, str], waiting: JobState) -> bool:
    """Whether what stands in a queue of this node is still so."""
    run = state.runs[entry[1]]
    job = run.jobs[entry[2]]
    return job.state is waiting and job.node == node.id and run.may_start


def may_come(state: State, node: NodeEntry, run: RunEntry, job: JobEntry) -> bool:
    if run.workflow.jobs[job.id].cores + node.cores_used + node.admitted_waiting > state.limits.cores:
        return False
    missing = 0
    for file in inputs_of(state, run, job.id):
        copy = file.copies.get(node.id)
        if copy is None:
            if not can_come(state, node, run, file):
                return False
            missing += file.size_bytes
        elif copy.state is not CopyState.PRESENT:
            return False
    if missing + job.reserve_bytes > node.free_bytes:
        return False
    if missing / run.plan.copying_bytes_per_s > COPYING_SHARE * run.plan.jobs[job.order].compute_s:
        return False
    return is_safe(state, node, run, job)


def can_come(state: State, node: NodeEntry, run: RunEntry, file: FileEntry) -> bool:
    """From a node that holds it, or from an origin if no node does."""
    if peer_for(state, file, node.id):
        return True
    if file.copies or own_fault(file, run.id) is not None or not state.can_be_had(file):
        return False
    return not (file.fetch is not None and must_wait(state, file, run.id)) and denial(state, file, run.id) is None
