"""The quotas of its tenant that jobs of a run wait for.

May know: the Machine's state (read only), wire. One rule: it looks at the first job of each queue, never at all jobs.
"""

from __future__ import annotations

from collections.abc import Iterator

from stager import wire
from stager.model.units import counted, format_size
from stager.scheduler.lanes import Lanes
from stager.scheduler.shares import held_bytes, over_bytes, over_cores
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import JobState

# The codes of what is waited for.
QUOTAS = ("quota_cores", "quota_bytes")


def quotas_waited_for(state: State, run: RunEntry) -> Iterator[wire.WaitingView]:
    tenant = state.tenants.get(run.tenant)
    if tenant is None or not run.may_start:
        return
    share = tenant.share
    if share.quota_cores is not None:
        firsts = first_of(run, JobState.ADMITTED, [node.startable for node in state.nodes.values()])
        if any(over_cores(state, run, run.workflow.jobs[job].cores) for job in firsts):
            reason = f"{tenant.cores_used} of the {counted(share.quota_cores, 'core')} that it may have are in use"
            yield view("quota_cores", run, reason)
    if share.quota_bytes is not None:
        firsts = first_of(run, JobState.READY, [node.ready for node in state.nodes.values()])
        if any(over_bytes(state, run, run.jobs[job].reserve_bytes) for job in firsts):
            held = format_size(sum(held_bytes(state, run.tenant)))
            yield view("quota_bytes", run, f"it holds {held} of the {format_size(share.quota_bytes)} that it may hold")


def first_of(run: RunEntry, waiting: JobState, queues: list[Lanes]) -> list[str]:
    """Its jobs that are next in some queue."""
    heads = [queue.by_lane[run.lane][0] for queue in queues if run.lane in queue.by_lane]
    return [job for _, name, job in heads if name == run.id and run.jobs[job].state is waiting]


def view(code: str, run: RunEntry, reason: str) -> wire.WaitingView:
    message = f"the quota of the tenant {run.tenant}: {reason}"
    return wire.WaitingView(origin="", code=code, reason=reason, since_s=None, fetches=0, uploads=0, next_try_s=0.0, message=message)
