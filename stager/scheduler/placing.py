"""The host of an attempt, and what becomes of a job that no host beside its node can take.

May know: the state. One rule: an attempt has all its cores, its memory and its scratch space on one host. A node is a wish: a job goes to
another node rather than wait for a host that will not come, and fails by name where no host is left that could take it.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

from stager.model.errors import ErrorClass, Fault
from stager.model.topology import Host
from stager.model.units import format_size
from stager.model.workflow import Job
from stager.planning.fitting import beside_room, too_large
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import inputs_of
from stager.scheduler.apply_hosts import NOWHERE, may_come
from stager.scheduler.calls import refuse
from stager.scheduler.decision import Decision
from stager.scheduler.node_entry import HostEntry, NodeEntry
from stager.scheduler.shares import pool_of
from stager.scheduler.state import JobEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState

NO_HOST_CODE = "no_host"


class Prospect(IntEnum):
    """When a host that is large enough could take a job: it is open, it may be back any moment, nobody knows when, never."""

    NOW = 0
    SOON = 1
    SOME_DAY = 2
    NEVER = 3


def prospect_of(node: NodeEntry, pool: str, spec: Job, reserve_bytes: int) -> Prospect:
    """`pool`: whose hosts (`shares.pool_of`)."""
    found = Prospect.NEVER
    for host in node.hosts.values():
        if host.tenant == pool and host.size.takes(spec.cores, spec.memory_bytes, reserve_bytes):
            found = min(found, prospect_by(host))
    return found


def prospect_beside(node: NodeEntry, pool: str, spec: Job, reserve_bytes: int) -> Prospect:
    """The same of a node that may take no jobs: then one of its hosts has to be put beside another one first."""
    found = prospect_of(node, pool, spec, reserve_bytes)
    return found if node.is_open or found is Prospect.NEVER else Prospect.SOME_DAY


def prospect_by(host: HostEntry) -> Prospect:
    if host.drains or host.is_away:
        return Prospect.SOME_DAY
    return Prospect.NOW if host.answers else Prospect.SOON


def host_for(node: NodeEntry, pool: str, spec: Job, reserve_bytes: int, claimed: Collection[str] = ()) -> HostEntry | None:
    """One that can take it now: the one where least is left beside it, of cores, then of memory and scratch space."""
    best: tuple[tuple[int, int, int, str], HostEntry] | None = None
    for host in node.hosts.values():
        if host.tenant != pool or not host.is_open or host.id in claimed:
            continue
        size = host.size
        cores = size.cores - host.cores_used - spec.cores
        memory = 0 if size.memory_bytes is None else size.memory_bytes - host.memory_used_bytes - (spec.memory_bytes or 0)
        scratch = 0 if size.scratch_bytes is None else size.scratch_bytes - host.scratch_used_bytes - reserve_bytes
        if cores < 0 or memory < 0 or scratch < 0:
            continue
        rank = (cores, memory, scratch, host.id)
        if best is None or rank < best[0]:
            best = (rank, host)
    return None if best is None else best[1]


def large_enough(node: NodeEntry, pool: str, spec: Job, reserve_bytes: int) -> list[str]:
    """The open hosts that could take it if they were free."""
    hosts = [host for host in node.hosts.values() if host.tenant == pool and host.is_open]
    return [host.id for host in hosts if host.size.takes(spec.cores, spec.memory_bytes, reserve_bytes)]


def has_host_here(decision: Decision, node: NodeEntry, run: RunEntry, job: JobEntry) -> bool:
    """Whether this node has an open host for the ready job. Else the job is elsewhere now, waits, or has failed."""
    state, spec = decision.state, run.workflow.jobs[job.id]
    pool = pool_of(state, run)
    here = prospect_of(node, pool, spec, job.reserve_bytes)
    if here is Prospect.NOW:
        return True
    if here is Prospect.SOON:
        park(state, node.id, run, job)
        return False
    size_bytes = footprint_of(state, run, job)
    if not go_elsewhere(decision, run, job, size_bytes, f"no host beside {node.id} can take it"):
        refuse(decision, run, job, no_host(state, pool, spec, job.reserve_bytes, size_bytes))
    return False


def go_elsewhere(decision: Decision, run: RunEntry, job: JobEntry, size_bytes: int, why: str) -> bool:
    """To a node that can hold what the ready job needs at once and has a host for it, or to wait for such a host. False: none will come."""
    state = decision.state
    prospects = prospects_of(state, run, job, size_bytes, job.reserve_bytes)
    able = [state.nodes[name] for name, prospect in prospects.items() if prospect is Prospect.NOW]
    if able:
        rehome(decision, run, job, able, why)
    elif min(prospects.values(), default=Prospect.NEVER) < Prospect.NEVER or (needs_host(state, run) and may_come(state)):
        park(state, NOWHERE, run, job)
    else:
        return False
    return True


def capacity_elsewhere(state: State, run: RunEntry, job: JobEntry, size_bytes: int, reserve_bytes: int) -> int:
    """The capacity of the largest node that could hold so much at once and has, or will have, a host for the job. 0: there is none."""
    prospects = prospects_of(state, run, job, size_bytes, reserve_bytes)
    able = [state.nodes[name] for name, prospect in prospects.items() if prospect < Prospect.NEVER]
    return max([node.capacity_bytes for node in able], default=0)


def prospects_of(state: State, run: RunEntry, job: JobEntry, size_bytes: int, reserve_bytes: int) -> dict[str, Prospect]:
    """By node that can hold so much at once, when a host beside it could take the job. Where no host is needed, of open nodes: now."""
    with_room = [node for node in state.nodes.values() if node.capacity_bytes >= size_bytes]
    if not needs_host(state, run):
        return {node.id: Prospect.NOW for node in with_room if node.is_open}
    pool, spec = pool_of(state, run), run.workflow.jobs[job.id]
    return {node.id: prospect_beside(node, pool, spec, reserve_bytes) for node in with_room}


def needs_host(state: State, run: RunEntry) -> bool:
    return state.on_hosts and not run.is_engines


def rehome(decision: Decision, run: RunEntry, job: JobEntry, able: list[NodeEntry], why: str) -> None:
    decision.emit(cmd.RehomeJob, run=run.id, job=job.id, node=nearest(decision.state, run, job, able).id, why=why)
    decision.rehomed = True


def footprint_of(state: State, run: RunEntry, job: JobEntry) -> int:
    return job.reserve_bytes + sum([file.size_bytes for file in inputs_of(state, run, job.id)])


def nearest(state: State, run: RunEntry, job: JobEntry, able: list[NodeEntry]) -> NodeEntry:
    """The one that has most of what it reads; then the one with most cores to spare, where fewest wait."""
    files = inputs_of(state, run, job.id)

    def rank(node: NodeEntry) -> tuple[bool, int, int, int, str]:
        there = [file.copies.get(node.id) for file in files]
        held_bytes = sum([copy.size_bytes for copy in there if copy is not None and copy.state is CopyState.PRESENT])
        waiting = len(node.ready) + node.admitted_waiting
        return not node.reachable, -held_bytes, node.cores_used + waiting - node.cores, waiting, node.id

    return min(able, key=rank)


def park(state: State, where: str, run: RunEntry, job: JobEntry) -> None:
    """Until something is heard of hosts (`apply_hosts.look_again`). It stands in nobody's way meanwhile, and holds no room."""
    state.parked.setdefault(where, []).append((run.id, job.id))


def no_host(state: State, pool: str, spec: Job, reserve_bytes: int, size_bytes: int) -> Fault:
    """`size_bytes`: what its node has to hold at once."""
    its = [(node, host.size) for node in state.nodes.values() for host in node.hosts.values() if host.tenant == pool]
    hosts = [host for node, host in its if node.capacity_bytes >= size_bytes]
    gone, why = state.host_gone or (Host("", 0), "")
    left = ""
    if state.host_gone_of == pool and gone.takes(spec.cores, spec.memory_bytes, reserve_bytes):
        left = f". Host {gone.id!r}, which could have taken it, is gone" + (f" ({why})" if why else "")
    small = [(node, host) for node, host in its if host.takes(spec.cores, spec.memory_bytes, reserve_bytes)]
    if small:
        node, host = max(small, key=lambda each: each[0].capacity_bytes)
        left += f". Host {host.id!r} could take it, and {node.id} beside it holds {format_size(node.capacity_bytes)}"
        left += f" of the {format_size(size_bytes)} that it needs at once"
    where = beside_room(size_bytes) if len(hosts) < len(its) else ""
    message = f"{too_large(spec, hosts, reserve_bytes, where)}{left}: add a host that can take it, then `stager resume`"
    return Fault(ErrorClass.REFUSED, NO_HOST_CODE, message, spec.id)


def call_back_stranded(decision: Decision) -> None:
    """Jobs that are admitted to nodes whose hosts went away hand back what was set aside for them, unless a host may take them soon."""
    state = decision.state
    stranded, state.stranded = dict.fromkeys(state.stranded), []
    if not any(state.nodes[name].admitted_waiting for name in stranded):
        return
    for run in [state.runs[name] for name in state.active if not state.runs[name].is_engines]:
        waiting = [job for job in run.jobs.values() if job.state is JobState.ADMITTED and job.node in stranded]
        for job in waiting:
            prospect = prospect_of(state.nodes[job.node], pool_of(state, run), run.workflow.jobs[job.id], job.reserve_bytes)
            if prospect > Prospect.SOON:
                why = f"no host beside {job.node} can take it any more"
                decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=state.now, counts=False, why=why)
