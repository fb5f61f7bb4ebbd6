"""Jobs that wait for a core, or for room, go to a node that has both to spare: what a plan predicted of times is never quite so.

May know: the state. One rule: a node is a wish. A job that goes to another node goes by the same admission as at home, takes nothing away
from it, and brings its bytes along only where computing takes much longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from stager.scheduler import commands as cmd
from stager.scheduler.accounting import count_parents, inputs_of
from stager.scheduler.admission import admit_here, is_safe, start, start_calls
from stager.scheduler.decision import Decision
from stager.scheduler.fetching import send_wanted
from stager.scheduler.holding import helping, keeps_to, may_begin
from stager.scheduler.lanes import Lanes
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.peers import peer_for
from stager.scheduler.placing import host_for
from stager.scheduler.shares import order_of, over_bytes, over_cores, pool_of
from stager.scheduler.sources import may_be_fetched
from stager.scheduler.state import FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState

# A job may be brought so much that copying it takes a quarter of its computing.
COPYING_SHARE = 0.25
# Of each queue that many are looked at: the first and the two after which all others come.
LOOKED_AT = 3


def balance(decision: Decision) -> None:
    """Once all nodes have begun what they can. One pass over the nodes where nobody idles."""
    state = decision.state
    idle = [node for node in state.nodes.values() if node.cores > node.cores_used + node.admitted_waiting and has_cores(node)]
    if not idle or len(idle) == len(state.nodes):
        return
    if not (idle := helping(state, idle)):
        return
    loaded = [node for node in state.nodes.values() if (node.ready.by_lane or node.startable.by_lane) and not has_cores(node)]
    offers: Offers = {}
    served: set[str] | None = None
    for node in idle if loaded else ():
        if served is not None and node.id not in served:
            continue
        while has_cores(node) and any(take_one(decision, node, other, offers) for other in loaded):
            offers.clear()
            send_wanted(decision, node)
            start_calls(decision, node)
            start(decision, node)
        served = only_for(offers) if len(offers) == 2 * len(loaded) else None


def has_cores(node: NodeEntry) -> bool:
    """Cores that nobody who is there waits for."""
    free = node.cores - node.cores_used - node.admitted_waiting
    return free > 0 and node.reachable and not node.draining and not node.ready


@dataclass(slots=True)
class Offer:
    """A job that waits for its node. `known_at`: nodes that have, or wait for, something it reads; `comes`: whether all of that,
    `inputs_bytes`, could be brought to any other and is worth it, which is so for all those alike until something is decided.
    """

    run: RunEntry
    job: JobEntry
    known_at: set[str]
    inputs_bytes: int
    comes: bool


# Of each queue that was looked at: by its node, and what its jobs wait in.
Offers = dict[tuple[str, JobState], list[Offer]]


def only_for(offers: Offers) -> set[str] | None:
    """The nodes that any of all these could go to: those that know something it reads. None: maybe others too."""
    everything = [offer for queue in offers.values() for offer in queue]
    return None if any(offer.comes for offer in everything) else set().union(*(offer.known_at for offer in everything))


def take_one(decision: Decision, node: NodeEntry, other: NodeEntry, offers: Offers) -> bool:
    state = decision.state
    for queue, waiting in ((other.startable, JobState.ADMITTED), (other.ready, JobState.READY)):
        offered = offers.get((other.id, waiting))
        if offered is None:
            offered = offers[other.id, waiting] = offered_by(state, other, queue, waiting)
        for offer in offered:
            if may_take(state, node, offer):
                run, job = offer.run, offer.job
                if waiting is JobState.ADMITTED:
                    why = f"node {node.id} has a core to spare"
                    decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=state.now, counts=False, why=why)
                admit_here(decision, node, run, job, inputs_of(state, run, job.id), job.reserve_bytes)
                return True
    return False


def offered_by(state: State, other: NodeEntry, queue: Lanes, waiting: JobState) -> list[Offer]:
    offers = []
    for lane in order_of(state, queue.by_lane):
        while lane in queue.by_lane and not is_waiting(state, other, queue.by_lane[lane][0], waiting):
            queue.pop(lane)
        looked_at = queue.by_lane.get(lane, ())[:LOOKED_AT]
        offers += [
            offer_of(state, other, entry) for entry in looked_at if is_waiting(state, other, entry, waiting) and may_go(state, entry)
        ]
    return offers


def offer_of(state: State, other: NodeEntry, entry: tuple[int, str, str]) -> Offer:
    run = state.runs[entry[1]]
    job = run.jobs[entry[2]]
    files = inputs_of(state, run, job.id)
    known_at = {node for file in files for node in file.copies}
    # What nobody has yet comes from its origin here or there.
    inputs_bytes = sum(file.size_bytes for file in files)
    copied_bytes = sum(file.size_bytes for file in files if file.copies)
    # Not to its own node, which has no core for it: any that knows nothing of it does for the question.
    comes = is_worth_copying(run, job, copied_bytes) and all(can_come(state, "", run, file) for file in files)
    return Offer(run, job, known_at, inputs_bytes, comes and is_safe(state, other, run, job))


def may_take(state: State, node: NodeEntry, offer: Offer) -> bool:
    if not keeps_to(state, offer.run, node):
        return False
    if node.id in offer.known_at:
        return may_come(state, node, offer.run, offer.job)
    return offer.comes and has_place(state, node, offer.run, offer.job, offer.inputs_bytes)


def is_waiting(state: State, node: NodeEntry, entry: tuple[int, str, str], waiting: JobState) -> bool:
    """Whether what stands in a queue of this node is still so."""
    run = state.runs[entry[1]]
    job = run.jobs[entry[2]]
    return job.state is waiting and job.node == node.id and run.may_start


def may_go(state: State, entry: tuple[int, str, str]) -> bool:
    """Where one above it has to run again for another reader, it would wait for that once it was handed back."""
    return count_parents(state, state.runs[entry[1]], entry[2]) == 0


def may_come(state: State, node: NodeEntry, run: RunEntry, job: JobEntry) -> bool:
    missing = copied = 0
    for file in inputs_of(state, run, job.id):
        copy = file.copies.get(node.id)
        if copy is None:
            if not can_come(state, node.id, run, file):
                return False
            missing += file.size_bytes
            copied += file.size_bytes if file.copies else 0
        elif copy.state is not CopyState.PRESENT:
            return False
    return has_place(state, node, run, job, missing) and is_worth_copying(run, job, copied) and is_safe(state, node, run, job)


def has_place(state: State, node: NodeEntry, run: RunEntry, job: JobEntry, missing_bytes: int) -> bool:
    """Cores, and room for what it makes and what has to be brought."""
    spec = run.workflow.jobs[job.id]
    cores = spec.cores + node.cores_used + node.admitted_waiting
    if over_bytes(state, run, job.reserve_bytes) or over_cores(state, run, spec.cores):
        return False
    if state.on_hosts and host_for(node, pool_of(state, run), spec, job.reserve_bytes) is None:
        return False
    has_space = missing_bytes + job.reserve_bytes <= node.free_bytes and may_begin(state, run, node, job)
    return cores <= node.cores and has_space


def is_worth_copying(run: RunEntry, job: JobEntry, copied_bytes: int) -> bool:
    return copied_bytes / run.plan.copying_bytes_per_s <= COPYING_SHARE * run.plan.jobs[job.order].compute_s


def can_come(state: State, node: str, run: RunEntry, file: FileEntry) -> bool:
    """From a node that holds it, or from an origin if no node does."""
    return bool(peer_for(state, file, node)) or (not file.copies and may_be_fetched(state, file, run.id))
