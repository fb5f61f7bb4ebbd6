"""The effect of what is heard of compute hosts on the state.

One rule: the same as for all events: what changes, and nothing that is decided. No attempt ends because of its host: the executor tells
each end.
"""

from __future__ import annotations

from heapq import heappush

from stager.model.topology import Host
from stager.scheduler import events as ev
from stager.scheduler.node_entry import HostEntry, NodeEntry
from stager.scheduler.slots import count_cores, host_of, slot_of
from stager.scheduler.state import State
from stager.scheduler.states import JobState

# So long a host may be silent before the jobs of its node that only it could take go elsewhere: a restart takes less.
PATIENCE_S = 60.0
# So long after a host came for the first time, a job that none is large enough for waits for others: hosts that are started together
# are heard of one by one.
COMING_S = 10.0
# Jobs that no node can take now wait under this name.
NOWHERE = ""


def host_reported(state: State, event: ev.HostReported) -> None:
    """From the first one on, cores are those of hosts, on all nodes."""
    if not state.on_hosts:
        state.on_hosts = True
        for node in state.nodes.values():
            count_cores(state, node)
    host, node = host_of(state, event.host), state.enter_node(event.node)
    if host is None:
        host = used_by_attempts(state, HostEntry(event.host, event.node, Host(event.host)))
        state.host_came_at = state.now
        heappush(state.timers, (state.now + COMING_S, "hosts", "", ""))
    else:
        before = state.nodes[host.node]
        del before.hosts[host.id]
        count_cores(state, before)
        if before is not node:
            state.stranded.append(before.id)
    host.node, host.pool, host.tenant = event.node, event.pool, event.tenant
    host.size = Host(event.host, event.cores, event.memory_bytes, event.scratch_bytes)
    host.drains = host.drains and host.incarnation == event.incarnation
    host.incarnation, host.answers, host.is_away = event.incarnation, True, False
    state.hosts[host.id] = node.id
    node.hosts[host.id] = host
    count_cores(state, node)
    # A host may come back smaller.
    state.stranded.append(node.id)
    look_again(state, node)


def used_by_attempts(state: State, host: HostEntry) -> HostEntry:
    """One that was gone may be back before all of its attempts have ended."""
    for attempt in state.attempts.values():
        if attempt.host == host.id:
            host.scratch_used_bytes += attempt.reserve_bytes
            if attempt.needed_bytes is None:
                cores, memory_bytes = slot_of(state, state.runs[attempt.run], attempt.job, host.id)
                host.cores_used += cores
                host.memory_used_bytes += memory_bytes
    return host


def host_lost(state: State, event: ev.HostLost) -> None:
    host = host_of(state, event.host)
    if host is None or not host.answers:
        state.stale += 1
        return
    lose_sight(state, host)
    count_cores(state, state.nodes[host.node])


def hosts_unheard(state: State) -> None:
    """The scheduler has come back, and has heard of none yet."""
    for node in state.nodes.values():
        for host in node.hosts.values():
            lose_sight(state, host)
        count_cores(state, node)


def lose_sight(state: State, host: HostEntry) -> None:
    host.answers, host.is_away, host.lost_at = False, False, state.now
    heappush(state.timers, (state.now + PATIENCE_S, "host", host.id, ""))


def host_is_away(state: State, name: str) -> None:
    """If it has not come back since. Its jobs go elsewhere."""
    host = host_of(state, name)
    if host is not None and not (host.answers or host.is_away) and host.lost_at + PATIENCE_S <= state.now:
        host.is_away = True
        leave(state, state.nodes[host.node])


def host_draining(state: State, event: ev.HostDraining) -> None:
    host = host_of(state, event.host)
    if host is None or host.drains:
        state.stale += 1
        return
    host.drains = True
    leave(state, state.nodes[host.node])


def host_gone(state: State, event: ev.HostGone) -> None:
    host = host_of(state, event.host)
    if host is None:
        state.stale += 1
        return
    node = state.nodes[state.hosts.pop(host.id)]
    del node.hosts[host.id]
    state.host_gone, state.host_gone_of = (host.size, event.why), host.tenant
    leave(state, node)


def leave(state: State, node: NodeEntry) -> None:
    """It has a host less that jobs might wait for."""
    count_cores(state, node)
    state.stranded.append(node.id)
    look_again(state, node)


def look_again(state: State, node: NodeEntry) -> None:
    """Jobs that waited for a host: this node's, and those that no node could take."""
    for name in (node.id, NOWHERE):
        back_in_queues(state, name)


def may_come(state: State) -> bool:
    """Another host, that was started with the one that came last."""
    return state.now < state.host_came_at + COMING_S


def back_in_queues(state: State, parked_at: str) -> None:
    for run_id, job_id in state.parked.pop(parked_at, ()):
        run = state.runs[run_id]
        job = run.jobs.get(job_id)
        if job is not None and job.state is JobState.READY:
            there = state.nodes[job.node]
            there.ready.push(run.lane, (run.key(job.order), run_id, job_id))
            there.dirty = True
