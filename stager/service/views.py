"""The Machine's state as it is seen from outside: the bodies of the socket API.

May know: the Machine's state (read only), the counters, wire. One rule: on the driving thread, between two batches; nothing here changes
anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stager import wire
from stager.adapters.run_records import WORST_FIRST, RunGroup, RunRecord
from stager.model.errors import Fault
from stager.model.scatter import standing_jobs
from stager.model.workflow import Workflow, values_of
from stager.planning.plan import Basis
from stager.scheduler.ledger import LedgerRow, Standing, ledger_of
from stager.scheduler.spending import forecast_money, owed_money, rest_s, spent_money
from stager.scheduler.state import FileEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState, RunState
from stager.service.counters import Counters
from stager.service.rates import Moved
from stager.wire.node import NodeTransfer

PROBLEMS_MAX = 20
RUNNING_MAX = 200
TRANSFERS_MAX = 200
# Where nobody measured yet: what a byte over the WAN weighs beside a second of computing, for the ETA only.
WAN_BYTES_PER_S = 50e6
# And what a job costs beside its computing: many short jobs take their time too.
JOB_S = 0.05
# A transfer that the node does not list now.
UNSEEN = NodeTransfer(transfer_id="", state="queued", bytes_done=0, bytes_total=0)
COUNTED = {
    standing: standing.value
    for standing in (
        Standing.AT_RISK,
        Standing.SAFE,
        Standing.WRITTEN,
        Standing.DURABLE,
        Standing.SUPERSEDED,
        Standing.KEPT,
    )
}


def state_of(run: RunEntry) -> str:
    return run.outcome.value if run.state is RunState.FINISHED and run.outcome is not None else run.state.value


def run_info(record: RunRecord, run: RunEntry | None, now: float) -> wire.RunInfo:
    """The Machine's word on a run it knows, else the record's."""
    done, state, finished_at, reused = record.jobs_done, record.state, record.finished_at, 0
    if run is not None:
        done = sum(job.state is JobState.DONE for job in run.jobs.values())
        reused = jobs_reused(run)
        state = state_of(run)
        finished_at = run.finished_at if run.state is RunState.FINISHED else None
    return wire.RunInfo(
        run=record.run,
        workflow=record.workflow,
        state=state,
        submitted_at=record.submitted_at,
        finished_at=finished_at,
        took_s=max(0.0, (now if finished_at is None else finished_at) - record.submitted_at),
        jobs_total=record.jobs_total,
        jobs_done=done,
        jobs_reused=reused,
        source_path=record.source_path,
        removed=record.removed,
        tenant=record.tenant,
        part_of=record.part_of,
    )


def jobs_reused(run: RunEntry) -> int:
    return sum(job.reused_from != "" for job in run.jobs.values())


def line_info(first: RunRecord, line: RunGroup, known: Mapping[str, RunEntry], now: float) -> wire.RunInfo:
    """`first`: by which the line goes."""
    if line.runs == 1:
        return run_info(first, known.get(first.run), now)
    going_on = [run_info(record, known.get(record.run), now) for record in line.open]
    ends = [info.finished_at for info in going_on] + ([] if line.finished_at is None else [line.finished_at])
    finished_at = None if None in ends else max((end for end in ends if end is not None), default=None)
    return run_info(first, None, now).model_copy(
        update={
            "state": min(line.states.union(info.state for info in going_on), key=WORST_FIRST.index),
            "finished_at": finished_at,
            "took_s": max(0.0, (now if finished_at is None else finished_at) - first.submitted_at),
            "jobs_total": line.jobs_total + sum(info.jobs_total for info in going_on),
            "jobs_done": line.jobs_done + sum(info.jobs_done for info in going_on),
            "jobs_reused": sum(info.jobs_reused for info in going_on),
            "parts": line.runs,
        }
    )


def finals_of(state: State, run: RunEntry) -> list[FileEntry]:
    """Without those that never will be there: optional outputs that their job did not make, and what was superseded."""
    finals = [state.files[run.file_ids[lfn]] for lfn, file in run.workflow.files.items() if file.destination is not None]
    finals = [file for file in finals if file.id not in run.finals_superseded]
    return [file for file in finals if file.blake3 or run.jobs[file.producer].state is not JobState.DONE]


def is_durable(file: FileEntry) -> bool:
    return file.durable is not None and file.durable.verified not in ("", "size")


@dataclass(frozen=True, slots=True)
class RunSums:
    """The sums that take a walk over all jobs and files of a run. `work_s`: predicted computing, of all jobs and of those that have not
    ended.
    """

    jobs: dict[str, int]
    finals_total: int
    finals_durable: int
    ledger: wire.LedgerTotals
    missing_bytes: int
    work_s: float
    work_left_s: float
    guessed_bytes: int
    assumed: int


def run_sums(state: State, run: RunEntry) -> RunSums:
    finals = finals_of(state, run)
    ended = (JobState.DONE, JobState.FAILED, JobState.SKIPPED)
    left = (planned.compute_s + JOB_S for planned in run.plan.jobs if run.jobs[planned.job].state not in ended)
    return RunSums(
        jobs=dict(Counter(job.state.value for job in run.jobs.values())),
        finals_total=len(finals),
        finals_durable=sum(is_durable(file) for file in finals),
        ledger=ledger_totals(state, run),
        missing_bytes=missing_bytes(state, run),
        work_s=sum(planned.compute_s + JOB_S for planned in run.plan.jobs),
        work_left_s=sum(left),
        guessed_bytes=sum(run.planned[file.lfn].expected_bytes for file in finals if is_guessed(run, file)),
        assumed=len(standing_jobs(run.workflow.scatters)),
    )


def is_guessed(run: RunEntry, file: FileEntry) -> bool:
    """Nobody knows yet how large it will be."""
    return not file.blake3 and file.durable is None and file.lfn in run.planned and run.planned[file.lfn].size_basis is Basis.DEFAULT


def run_status(
    state: State,
    run: RunEntry,
    info: wire.RunInfo,
    sums: RunSums,
    moved: Moved,
    telemetry: Mapping[str, NodeTransfer],
    problems: list[wire.ErrorBody],
    nodes: list[wire.NodeView],
    waiting: list[wire.WaitingView],
) -> wire.RunStatus:
    fetch_bytes = run.fetched_bytes + sums.missing_bytes
    upload_bytes = max(0, run.plan.upload_bytes - run.adopted_bytes)
    return wire.RunStatus(
        info=info,
        jobs=sums.jobs,
        finals_total=sums.finals_total,
        finals_durable=sums.finals_durable,
        ledger=sums.ledger,
        fetched_bytes=moved.fetched_bytes,
        fetch_bytes_planned=fetch_bytes,
        uploaded_bytes=moved.uploaded_bytes,
        # The plan's is an estimate: what was sent is never more than what there is to send, and all of it once nothing is left.
        upload_bytes_planned=(
            moved.uploaded_bytes if sums.finals_durable == sums.finals_total else max(upload_bytes, moved.uploaded_bytes)
        ),
        fetch_bytes_per_s=moved.fetch_bytes_per_s,
        upload_bytes_per_s=moved.upload_bytes_per_s,
        eta_s=eta_s(run, state.now, moved, sums, fetch_bytes + upload_bytes),
        transfers=transfers_of(state, run, telemetry)[:TRANSFERS_MAX],
        running=running_of(state, run)[:RUNNING_MAX],
        problems=problems[:PROBLEMS_MAX],
        nodes=nodes,
        waiting=waiting,
        hit_rate=hit_rate_of(run),
        upload_bytes_guessed=sums.guessed_bytes,
        params=values_of(run.workflow),
        budget=budget_view(state, run),
        jobs_assumed=sums.assumed,
    )


def missing_bytes(state: State, run: RunEntry) -> int:
    """Inputs that are on no node and that somebody is still to read. A file that the cache holds is not fetched, whatever the plan
    counted on.
    """
    total = 0
    for lfn, file in run.workflow.files.items():
        if file.is_external:
            entry = state.files[run.file_ids[lfn]]
            here = any(copy.state is CopyState.PRESENT for copy in entry.copies.values())
            total += 0 if here or entry.use_at >= len(entry.uses) else entry.size_bytes
    return total


def eta_s(run: RunEntry, now: float, moved: Moved, sums: RunSums, bytes_total: int) -> float | None:
    """The work that is left as a share of all work predicted, at the pace so far. None before there is a pace."""
    if run.state is RunState.FINISHED:
        return None
    bytes_left = max(0, bytes_total - moved.fetched_bytes - moved.uploaded_bytes)
    total, left = sums.work_s + bytes_total / WAN_BYTES_PER_S, sums.work_left_s + bytes_left / WAN_BYTES_PER_S
    spent = max(0.0, now - run.submitted_at - run.interrupted_s)
    done_share = 1 - left / total if total > 0 else 0.0
    return spent * (1 - done_share) / done_share if done_share > 0.01 and spent > 0.5 else None


def budget_view(state: State, run: RunEntry) -> wire.BudgetView | None:
    budget, spent, now = run.budget, run.spent, state.now
    if budget is None or spent is None:
        return None
    goes_on = run.state is not RunState.FINISHED
    return wire.BudgetView(
        currency=budget.currency,
        amount=budget.amount,
        spent=spent_money(run, now),
        set_aside=owed_money(state, run, now) if goes_on else 0.0,
        forecast=forecast_money(run, now),
        finish_by=budget.finish_by,
        ends_at=now + rest_s(run, now) if goes_on else run.finished_at,
        paused=spent.paused.message if spent.paused is not None else "",
    )


def transfers_of(state: State, run: RunEntry, telemetry: Mapping[str, NodeTransfer]) -> list[wire.TransferView]:
    views = []
    for transfer in state.transfers.values():
        if transfer.run != run.id:
            continue
        said = telemetry.get(transfer.id, UNSEEN)
        view = wire.TransferView(
            transfer=transfer.id,
            direction="copy" if transfer.source else "fetch" if transfer.is_fetch else "upload",
            lfn=state.files[transfer.file].lfn,
            state="cancelling" if transfer.cancelled else said.state,
            purpose=transfer.purpose.value,
            origin=transfer.source or transfer.origin,
            bytes_done=said.bytes_done,
            bytes_total=said.bytes_total or transfer.size_bytes,
        )
        views.append(view)
    return sorted(views, key=lambda view: view.state != "running")


def running_of(state: State, run: RunEntry) -> list[wire.RunningJob]:
    return [
        wire.RunningJob(job=attempt.job, attempt=attempt_id, number=attempt.number, started_at=attempt.started_at, call=attempt.call)
        for attempt_id, attempt in state.attempts.items()
        if attempt.run == run.id
    ]


def problems_of(state: State, run: RunEntry, others: list[Fault]) -> list[wire.ErrorBody]:
    """Each once: an origin's trouble not again for each job that met it, a job's not again as its run's."""
    identities = {origin.identity for origin in run.workflow.origins.values()}
    faults = [*run.finals_given_up.values(), *run.finals_superseded.values()]
    faults += [fault for identity, fault in state.paused_origins.items() if identity in identities]
    jobs = {job.id: job.fault for job in run.jobs.values() if job.fault is not None and job.fault not in faults}
    faults += [naming(job_id, fault) for job_id, fault in jobs.items()]
    of_run = [run.fault] if run.fault is not None and run.fault not in jobs.values() else []
    of_run += [run.spent.paused] if run.spent is not None and run.spent.paused is not None and run.outcome is None else []
    unique = dict.fromkeys([*others, *of_run, *faults])
    return [wire.ErrorBody.of(fault) for fault in unique]


def naming(job_id: str, fault: Fault) -> Fault:
    """The I/O node does not know whose outputs it looked for."""
    return fault if repr(job_id) in fault.message else replace(fault, message=f"job {job_id!r}: {fault.message}")


def ledger_totals(state: State, run: RunEntry) -> wire.LedgerTotals:
    counts: dict[str, list[int]] = {name: [0, 0] for name in COUNTED.values()}
    for entry in ledger_of(state, run.id):
        name = COUNTED.get(entry.standing)
        if name is not None:
            counts[name][0] += 1
            counts[name][1] += entry.size_bytes
    return wire.LedgerTotals(**{name: wire.FileCounts(files=files, size_bytes=size) for name, (files, size) in counts.items()})


def ledger_entry(workflow: Workflow, entry: LedgerRow) -> wire.LedgerEntry:
    destination = workflow.files[entry.lfn].destination
    return wire.LedgerEntry(
        lfn=entry.lfn,
        state=entry.standing.value,
        size_bytes=None if entry.standing is Standing.NOT_MADE else entry.size_bytes,
        blake3=entry.blake3,
        final=entry.final,
        origin=destination.location.origin if destination is not None else "",
        path=destination.location.path if destination is not None else "",
        verified=entry.verified,
        token=entry.token,
        fault=entry.fault,
        synced=entry.synced,
    )


def job_view(run: RunEntry, job_id: str, counters: Counters, sandbox_kept: bool, now: float, assumed: bool = False) -> wire.JobView:
    job, newest = run.jobs[job_id], counters.of(run.id).newest.get(job_id)
    runs = newest is not None and newest.duration_s is None and job.state is JobState.RUNNING
    return wire.JobView(
        job=job_id,
        job_type=run.workflow.jobs[job_id].job_type,
        state=job.state.value,
        attempts=job.attempts,
        exit_code=counters.of(run.id).exit_codes.get(job_id),
        fault=wire.ErrorBody.of(job.fault) if job.fault is not None else None,
        started_at=newest.started_at if newest is not None else None,
        duration_s=newest.duration_s if newest is not None else None,
        running_s=max(0.0, now - newest.started_at) if newest is not None and runs else None,
        memory_peak_bytes=newest.memory_peak_bytes if newest is not None else None,
        sandbox_kept=sandbox_kept,
        reused_from=job.reused_from,
        assumed=assumed,
    )


def losses(state: State, run: RunEntry) -> wire.Losses:
    """Made and neither durable nor released: a cancel drops it."""
    lost = [entry for entry in ledger_of(state, run.id) if entry.standing in (Standing.AT_RISK, Standing.SAFE, Standing.SUPERSEDED)]
    running = sum(attempt.run == run.id for attempt in state.attempts.values())
    size_bytes = sum(entry.size_bytes for entry in lost)
    return wire.Losses(run=run.id, files=[entry.lfn for entry in lost], size_bytes=size_bytes, jobs_running=running)


def run_summary(state: State, run: RunEntry, counters: Counters) -> wire.RunSummary:
    finals = finals_of(state, run)
    sums = counters.of(run.id)
    return wire.RunSummary(
        run=run.id,
        workflow=run.workflow.name,
        outcome=state_of(run),
        fault=wire.ErrorBody.of(run.fault) if run.fault is not None else None,
        submitted_at=run.submitted_at,
        finished_at=run.finished_at,
        wall_s=max(0.0, run.finished_at - run.submitted_at),
        interrupted_s=run.interrupted_s,
        jobs_total=len(run.jobs),
        jobs_done=sum(job.state is JobState.DONE for job in run.jobs.values()),
        jobs_failed=sum(job.state is JobState.FAILED for job in run.jobs.values()),
        jobs_reused=jobs_reused(run),
        attempts=sums.attempts,
        fetched_bytes=run.fetched_bytes,
        staged_bytes=run.read_bytes,
        read_bytes=sums.read_bytes,
        uploaded_bytes=run.uploaded_bytes,
        hit_rate=hit_rate_of(run),
        finals_total=len(finals),
        finals_durable=sum(is_durable(file) for file in finals),
        finals=dict(Counter(file.durable.verified or "size" for file in finals if file.durable is not None)),
        finals_missing=[file.lfn for file in finals if file.durable is None],
        finals_superseded=[fault.message for fault in run.finals_superseded.values()],
        predicted_wall_s=run.plan.makespan_s,
        direct_read_bytes=run.direct_bytes,
        adopted_bytes=run.adopted_bytes,
        params=values_of(run.workflow),
        budget=budget_view(state, run),
    )


def hit_rate_of(run: RunEntry) -> float | None:
    """An input that is read directly is a miss for each of its readers."""
    handed = run.read_bytes + run.direct_bytes
    return max(0.0, 1 - (run.fetched_bytes + run.direct_bytes) / handed) if handed else None
