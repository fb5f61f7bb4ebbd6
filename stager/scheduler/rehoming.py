"""A new home for jobs whose node takes none: it is gone, drains, or was never heard of.

May know: the state. One rule: a job that has not been admitted goes where it is expected to begin first; one that has begun stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from stager.scheduler import commands as cmd
from stager.scheduler.accounting import inputs_of
from stager.scheduler.decision import Decision
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.placing import Prospect, prospect_of
from stager.scheduler.shares import pool_of
from stager.scheduler.state import FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import ENDED, CopyState, JobState

NOT_BEGUN = (JobState.WAITING, JobState.READY, JobState.BACKOFF)
IN_HAND = (CopyState.PRESENT, CopyState.FETCHING, CopyState.WANTED)


def open_nodes(state: State) -> list[NodeEntry]:
    """Those that take jobs; where some of these can be reached, only they."""
    able = [node for node in state.nodes.values() if node.is_open]
    return [node for node in able if node.reachable] or able


def rehome_jobs(decision: Decision, runs: Iterable[str]) -> None:
    """All of these runs that have not been admitted and whose node takes none, at once: so their inputs can come ahead there."""
    state = decision.state
    if not state.closed or not (nodes := open_nodes(state)):
        return
    loads_s = planned_loads_s(state, nodes)
    for run in [state.runs[run_id] for run_id in runs if run_id in state.active]:
        for job_id in run.by_order:
            job = run.jobs[job_id]
            if job.node in state.closed and job.state in NOT_BEGUN:
                find_home(decision, run, job, nodes, loads_s)


def rehome_ready(decision: Decision) -> bool:
    """Those that became ready later, since a file has to be made again. True if there was one."""
    state, found = decision.state, False
    waiting = [node for node_id in state.closed if (node := state.nodes[node_id]).ready]
    if not waiting or not (nodes := open_nodes(state)):
        return False
    loads_s = {node.id: float(len(node.ready) + len(node.startable) + node.cores_used) for node in nodes}
    for node in waiting:
        queued = sorted(node.ready)
        node.ready.clear()
        for key, run_id, job_id in queued:
            run = state.runs[run_id]
            job = run.jobs[job_id]
            if job.state is JobState.READY and job.node == node.id and run.may_start and key == run.key(job.order):
                find_home(decision, run, job, nodes, loads_s)
                found = True
    return found


def planned_loads_s(state: State, nodes: list[NodeEntry]) -> dict[str, float]:
    """By node, the seconds of computing that are left for its jobs, side by side."""
    loads_s = {node.id: 0.0 for node in nodes}
    for run_id in state.active:
        run = state.runs[run_id]
        for job in run.jobs.values():
            if job.node in loads_s and job.state not in ENDED:
                loads_s[job.node] += load_s(state.nodes[job.node], run, job)
    return loads_s


def load_s(node: NodeEntry, run: RunEntry, job: JobEntry) -> float:
    """Of the whole of a node."""
    return run.plan.jobs[job.order].compute_s * run.workflow.jobs[job.id].cores / max(1, node.cores)


def find_home(decision: Decision, run: RunEntry, job: JobEntry, nodes: list[NodeEntry], loads_s: dict[str, float]) -> None:
    state, inputs = decision.state, inputs_of(decision.state, run, job.id)
    needed_bytes = sum(file.size_bytes for file in inputs) + job.reserve_bytes
    # Where it fits nowhere it fails on the largest, and says what it lacks.
    able = [node for node in nodes if node.capacity_bytes >= needed_bytes] or [max(nodes, key=lambda node: (node.capacity_bytes, node.id))]
    if state.on_hosts and not run.is_engines:
        spec = run.workflow.jobs[job.id]
        able = [node for node in able if prospect_of(node, pool_of(state, run), spec, job.reserve_bytes) is Prospect.NOW] or able
    able = [node for node in able if not run.plan.keeps_to or node.id in run.plan.keeps_to] or able
    home = min(able, key=lambda node: (begins_s(state, run, inputs, node, loads_s), node.id))
    loads_s[home.id] += load_s(home, run, job)
    why = f"{job.node} {state.nodes[job.node].why_closed}"
    decision.emit(cmd.RehomeJob, run=run.id, job=job.id, node=home.id, why=why)


def begins_s(state: State, run: RunEntry, inputs: list[FileEntry], node: NodeEntry, loads_s: dict[str, float]) -> float:
    missing_bytes = sum(file.size_bytes for file in inputs if not will_be_there(state, file, node.id))
    return loads_s[node.id] + missing_bytes / run.plan.copying_bytes_per_s


def will_be_there(state: State, file: FileEntry, node_id: str) -> bool:
    copy = file.copies.get(node_id)
    if copy is not None:
        return copy.state in IN_HAND
    maker = state.job(file.run, file.producer) if file.producer else None
    return maker is not None and maker.state not in ENDED and maker.node == node_id
