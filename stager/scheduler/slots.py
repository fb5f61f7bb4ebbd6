"""The part of a node, or of a host, that attempts have.

May know: the state. One rule: an attempt is on one host; what it has there is given back to that host, wherever the host is by then.
"""

from __future__ import annotations

from stager.scheduler.node_entry import HostEntry, NodeEntry
from stager.scheduler.shares import charge, settle_charge
from stager.scheduler.state import AttemptEntry, RunEntry, State


def slot_of(state: State, run: RunEntry, job_id: str, host: str = "") -> tuple[int, int]:
    """(cores, bytes of memory) that an attempt takes: nothing of ours where an engine runs it. Without hosts a job that wants more cores
    than there are runs alone on all of them.
    """
    if run.is_engines:
        return 0, 0
    spec, most = run.workflow.jobs[job_id], state.limits.cores
    return spec.cores if host or spec.cores < most else most, spec.memory_bytes or 0


def take_slot(state: State, attempt: AttemptEntry, sign: int = 1) -> None:
    """Or with a minus sign gives it back."""
    run = state.runs[attempt.run]
    cores, memory_bytes = slot_of(state, run, attempt.job, attempt.host)
    if sign > 0:
        charge(state, run, attempt, cores)
    else:
        settle_charge(state, run, attempt)
    node = state.nodes[attempt.node]
    node.dirty = True
    if not attempt.host:
        if not state.on_hosts:
            node.cores_used += sign * cores
            node.memory_used_bytes += sign * memory_bytes
        return
    host = host_of(state, attempt.host)
    if host is None:
        return
    host.cores_used += sign * cores
    host.memory_used_bytes += sign * memory_bytes
    beside = state.nodes[host.node]
    beside.dirty = True
    if host.is_open:
        beside.cores_used += sign * cores


def free_slot(state: State, attempt: AttemptEntry) -> None:
    take_slot(state, attempt, -1)


def take_scratch(state: State, attempt: AttemptEntry, more_bytes: int) -> None:
    """For its outputs, which stand there from its beginning to its end."""
    host = host_of(state, attempt.host) if attempt.host else None
    if host is not None:
        host.scratch_used_bytes += more_bytes


def host_of(state: State, host: str) -> HostEntry | None:
    node = state.hosts.get(host)
    return None if node is None else state.nodes[node].hosts[host]


def count_cores(state: State, node: NodeEntry) -> None:
    """Those of its hosts that are open; where nobody ever reported a host, those of the limits."""
    node.dirty = True
    if not state.on_hosts:
        node.cores = state.limits.cores
        return
    hosts = [host for host in node.hosts.values() if host.is_open]
    node.cores = sum([host.size.cores for host in hosts])
    node.cores_used, node.memory_used_bytes = sum([host.cores_used for host in hosts]), 0
