"""The order between tenants: fair by weight, within their quotas.

May know: the state. One rule: nobody starves. Of two tenants the one that has had less by its weight comes first, and a tenant that is over
a quota may still have one job at a time.

What counts is core seconds by weight (`TenantEntry.used_s`). They are charged when a job starts, as its plan expects them, and set right
when it ends. A tenant that comes back stands where the others are: what it did not use while it was away is no credit.
"""

from __future__ import annotations

from collections.abc import Mapping

from stager.scheduler.lanes import Lane, Queued
from stager.scheduler.state import AttemptEntry, RunEntry, State
from stager.scheduler.tenant_entry import TenantEntry

# Of a job that nobody knows anything of, or that takes no time: so that it counts at all.
LEAST_S = 0.001


def tenant_of(state: State, name: str) -> TenantEntry:
    return state.tenants.get(name) or state.tenants.setdefault(name, TenantEntry())


def pool_of(state: State, run: RunEntry) -> str:
    """Whose hosts its jobs run on: its tenant's own, or (empty) those of all who have none."""
    tenant = state.tenants.get(run.tenant)
    return run.tenant if tenant is not None and tenant.share.has_pool else ""


def begin_sharing(state: State, run: RunEntry) -> None:
    """It is about to be active again, or for the first time."""
    tenant = tenant_of(state, run.tenant)
    active = {state.runs[name].tenant for name in state.active if name != run.id}
    if active and run.tenant not in active:
        tenant.used_s = max(tenant.used_s, min([tenant_of(state, name).used_s for name in active]))


def charge(state: State, run: RunEntry, attempt: AttemptEntry, cores: int) -> None:
    tenant = tenant_of(state, run.tenant)
    job = run.jobs[attempt.job]
    attempt.slot_cores, attempt.slot_s = cores, state.now
    compute_s = run.plan.jobs[job.order].compute_s
    attempt.charged_s = cores * (compute_s if compute_s > LEAST_S else LEAST_S) / tenant.share.weight
    tenant.used_s += attempt.charged_s
    tenant.cores_used += cores


def settle_charge(state: State, run: RunEntry, attempt: AttemptEntry) -> None:
    tenant = tenant_of(state, run.tenant)
    since_s = state.now - attempt.slot_s
    taken_s = attempt.slot_cores * (since_s if since_s > LEAST_S else LEAST_S) / tenant.share.weight
    tenant.used_s += taken_s - attempt.charged_s
    tenant.cores_used -= attempt.slot_cores
    attempt.slot_cores, attempt.charged_s = 0, 0.0


def order_of(state: State, lanes: Mapping[Lane, list[Queued]]) -> list[Lane]:
    """The lanes in which jobs wait, those first whose tenant has had least; of one tenant by priority."""
    if len(lanes) < 2:
        return list(lanes)
    return sorted(lanes, key=lambda lane: (state.tenants[lane[0]].used_s, lane[0], lane[1]))


def over_cores(state: State, run: RunEntry, cores: int) -> bool:
    """Whether these are more than its tenant may have now."""
    tenant = state.tenants.get(run.tenant)
    quota = None if tenant is None else tenant.share.quota_cores
    return tenant is not None and quota is not None and tenant.cores_used > 0 and tenant.cores_used + cores > quota


def over_bytes(state: State, run: RunEntry, more_bytes: int) -> bool:
    tenant = state.tenants.get(run.tenant)
    quota_bytes = None if tenant is None else tenant.share.quota_bytes
    if quota_bytes is None or run.is_engines:
        return False
    promised_bytes, live_bytes = held_bytes(state, run.tenant)
    return promised_bytes > 0 and promised_bytes + live_bytes + more_bytes > quota_bytes


def held_bytes(state: State, tenant: str) -> tuple[int, int]:
    """The bytes that its active runs may yet make, and those that they have made and that are nowhere but on nodes."""
    runs = [run for name in state.active if (run := state.runs[name]).tenant == tenant]
    return sum([run.promised_bytes for run in runs]), sum([run.live_bytes for run in runs])
