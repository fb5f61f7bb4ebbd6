"""The relay: the node on the scheduler's host through which files beside a workflow come to nodes on other hosts, and finals go home.

May know: the state. One rule: what waits for room there comes before what would only be brought ahead of its use.
"""

from __future__ import annotations

from stager.model.errors import NO_NODE_CODE, ErrorClass, Fault
from stager.model.units import format_size
from stager.scheduler.accounting import inputs_of
from stager.scheduler.decision import Decision
from stager.scheduler.eviction import free_space
from stager.scheduler.migration import migrate
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import FileEntry, State
from stager.scheduler.states import CopyState, JobState


def relay_for(state: State, file: FileEntry) -> NodeEntry | None:
    """One that has it or is getting it, else the roomiest. None: none can be asked now."""
    able = [node for node in state.nodes.values() if node.reachable and not node.apart]
    return min(able, key=lambda node: (node.id not in file.copies, node.draining, -node.spare_bytes, node.id), default=None)


def has_room(decision: Decision, relay: NodeEntry, file: FileEntry) -> bool:
    """Else room is made for it, and the relay brings nothing ahead of its use until it is there."""
    waits = decision.state.relay_waits
    if free_space(decision, relay, file.size_bytes):
        waits.pop(file.id, None)
        return True
    waits[file.id] = None
    migrate(decision, relay, file.size_bytes)
    return False


def is_waited_for(state: State, node: NodeEntry) -> bool:
    """Whether others wait for room on this node, as a relay."""
    for file_id in list(state.relay_waits) if not node.apart else ():
        file = state.files[file_id]
        owed = file.run in state.active and state.owes_upload(file)
        if owed or any(copy.state is CopyState.WANTED and state.nodes[holder].apart for holder, copy in file.copies.items()):
            return True
        del state.relay_waits[file_id]
    return False


def next_lacks_bytes(state: State, relay: NodeEntry) -> int:
    """The room that the first of the jobs in line there is missing. What came ahead for other nodes would be called off for it at once, and
    brought again, and so on for ever.
    """
    lacks = 0
    for queue in relay.ready.by_lane.values():
        _, run_id, job_id = queue[0]
        run = state.runs[run_id]
        job = run.jobs.get(job_id)
        if job is not None and job.state is JobState.READY and job.node == relay.id and run.may_start:
            missing = [file.size_bytes for file in inputs_of(state, run, job_id) if relay.id not in file.copies]
            lacks = max(lacks, job.reserve_bytes + sum(missing))
    return lacks


def never_by_relay(state: State, file: FileEntry) -> Fault | None:
    """Why waiting for room on the relay is in vain, or for a copy from there."""
    relay = relay_for(state, file)
    if relay is None:
        if not all(node.apart or node.gone for node in state.nodes.values()):
            return None
        message = f"no I/O node is left through which {file.lfn!r}, which is beside the workflow, could come or go"
        return Fault(ErrorClass.REFUSED, NO_NODE_CODE, message, file.lfn)
    if file.size_bytes > relay.capacity_bytes:
        message = (
            f"{file.lfn!r} has {format_size(file.size_bytes)}, and {relay.id}, through which files beside the workflow come and go, has "
            f"{format_size(relay.capacity_bytes)}: give it more capacity, or name an origin that all nodes reach"
        )
        return Fault(ErrorClass.REFUSED, "no_space_node", message, file.lfn)
    held, tries = file.copies.get(relay.id), file.fetch
    if held is not None and held.state is CopyState.PRESENT and tries is not None and tries.last is not None:
        return tries.last
    return None
