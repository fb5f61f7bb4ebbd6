"""The invariants that must hold after every step, derived from scratch. On in tests and simulation, sampled in production. One rule: checks
only, and says which number is off.
"""

from __future__ import annotations

from collections import Counter

from stager.planning.budget import Moved
from stager.scheduler.accounting import FAILED_STATES, IN_FETCHING, count_parents, inputs_of
from stager.scheduler.admission import is_idle
from stager.scheduler.budget_entry import BudgetEntry
from stager.scheduler.copies_wanted import copies_asked_for, copies_wanted
from stager.scheduler.linking import is_gone
from stager.scheduler.migration import capacities_of
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.slots import slot_of
from stager.scheduler.state import NEVER, AttemptEntry, FileEntry, JobEntry, RunEntry, State, TransferEntry
from stager.scheduler.states import ENDED, CopyState, JobState, RunState

KEYED = ("nodes", "files", "runs", "transfers", "parts", "striped")
WITH_PROMISE = (JobState.ADMITTED, JobState.RUNNING)
HELD = (CopyState.PRESENT, CopyState.DELETING)


def broken_invariants(state: State) -> list[str]:
    """Empty when all is well. Walks everything: O(files + jobs)."""
    found = [f"node {node.id} is not idle, and not dirty" for node in state.nodes.values() if not (node.dirty or is_idle(state, node))]
    if state.capacities_bytes is not None and state.capacities_bytes != capacities_of(state):
        found.append(f"nodes that can be reached are taken to have {state.capacities_bytes}, and have {capacities_of(state)}")
    found += [f"{told}, {count} times" for told, count in state.illegal.items()]
    for node in state.nodes.values():
        found += broken_on_node(state, node)
    for run in state.runs.values():
        found += broken_in_run(state, run)
    found += broken_stripes(state) + broken_queues(state) + broken_hosts(state) + broken_tenants(state)
    for transfer in state.transfers.values():
        found += broken_transfer(state, transfer)
    for attempt_id, attempt in state.attempts.items():
        found += broken_attempt(state, attempt_id, attempt)
    for file in state.files.values():
        found += broken_file(state, file)
        for node_id, copy in file.copies.items():
            if copy.pins < 0:
                found.append(f"{file.lfn} on {node_id}: {copy.pins} pins")
            if copy.idle and (copy.pins or copy.state is not CopyState.PRESENT):
                found.append(f"{file.lfn} on {node_id} may go, they say, and is {copy.state} with {copy.pins} pins")
            if copy.pins and copy.state is CopyState.DELETING:
                found.append(f"{file.lfn} on {node_id} is pinned and being deleted")
            if copy.state in (CopyState.FETCHING, CopyState.CANCELLING) and copy.generation not in state.transfers:
                found.append(f"{file.lfn} on {node_id} is {copy.state} by no transfer")
        found += broken_extra_copies(state, file) + broken_links(state, file) + broken_lending(state, file)
    return found


def broken_links(state: State, file: FileEntry) -> list[str]:
    """Runs that share a file have it under their names; one that is active answers for it, if any is; and its content is somewhere."""
    found = [
        f"{file.id} is kept for later runs, and read" for copy in file.copies.values() if copy.result_rank and state.next_use(file) < NEVER
    ]
    found += [
        f"{run} shares {file.id} and has another {lfn}" for run, lfn in file.links.items() if state.runs[run].file_ids[lfn] != file.id
    ]
    if any(run in state.active for run in file.links) and file.run not in state.active:
        found.append(f"{file.id} is shared by {list(file.links)}, and {file.run!r} answers for it, which is over")
    if file.links and is_gone(file):
        found.append(f"{file.id} is shared by {list(file.links)}, and nowhere")
    return found


def broken_lending(state: State, file: FileEntry) -> list[str]:
    """Who lends and who borrows know of each other, and what is lent is on a node."""
    found = [
        f"{file.id} lends to {final}, which borrows {state.files[final].lender!r}"
        for final in file.lent_to
        if not lends(state, file, final)
    ]
    if not file.lender:
        return found
    lender = state.files[file.lender]
    if file.id not in lender.lent_to:
        found.append(f"{file.id} borrows of {lender.id}, which does not know")
    if not any(copy.state in HELD for copy in lender.copies.values()):
        found.append(f"{file.id} is to go home of {lender.id}, which is nowhere")
    if state.is_lent(lender) and any(copy.idle for copy in lender.copies.values()):
        found.append(f"{lender.id} may go, they say, and {file.id} is to go home of it")
    return found


def lends(state: State, file: FileEntry, final: str) -> bool:
    return state.files[final].lender == file.id


def broken_queues(state: State) -> list[str]:
    found = [
        f"{name} is {left}, and was to be emptied"
        for name in ("lost", "back", "awaited_ended", "done_of_guess")
        if (left := getattr(state, name))
    ]
    uploads = sum(not transfer.is_fetch for transfer in state.transfers.values())
    found += [f"{name} is relayed, and not under way" for name in state.relaying if name not in state.transfers]
    if state.uploads_live != uploads:
        found.append(f"uploads_live is {state.uploads_live}, should be {uploads}")
    found += [f"{name} holds {key} under another key" for name in KEYED for key, entry in getattr(state, name).items() if entry.id != key]
    return found


def broken_transfer(state: State, transfer: TransferEntry) -> list[str]:
    """A transfer that brings a replica has its copy, called off as it is; one that reads a replica has it pinned."""
    found = []
    if transfer.node not in state.nodes or transfer.file not in state.files:
        return [f"{transfer.id} is of {transfer.file} on {transfer.node}, and one of them is not known"]
    if transfer.is_fetch and not transfer.old:
        copy = state.files[transfer.file].copies.get(transfer.node)
        wanted = CopyState.CANCELLING if transfer.cancelled else CopyState.FETCHING
        if copy is None or copy.generation != transfer.id or copy.state is not wanted:
            found.append(f"{transfer.id} is {transfer.state}, and its copy is {copy}")
    if (transfer.copy is None) == (not transfer.is_fetch or transfer.source != ""):
        found.append(f"{transfer.id} for {transfer.purpose} reads {transfer.copy}")
    return found


def broken_attempt(state: State, attempt_id: str, attempt: AttemptEntry) -> list[str]:
    """It is its job's own, unless what it makes is void; while it waits for space it takes no cores."""
    job, waits = state.job(attempt.run, attempt.job), attempt_id in state.nodes[attempt.node].waiting_attempts
    found = []
    if job.attempt != attempt_id or not (job.state is JobState.RUNNING or attempt.void or attempt.killed):
        found.append(f"{attempt_id} of job {job.id}, which is {job.state} and has {job.attempt or 'none'}")
    if waits != (attempt.needed_bytes is not None):
        found.append(f"{attempt_id} wants {attempt.needed_bytes} bytes, and waits for them: {waits}")
    return found


def broken_file(state: State, file: FileEntry) -> list[str]:
    found = []
    if not 0 <= file.use_at <= len(file.uses) or file.uses != sorted(file.uses):
        found.append(f"{file.lfn}: the uses from {file.use_at} on are {file.uses}")
    if file.copies.keys() - state.nodes.keys():
        found.append(f"{file.lfn} is on {sorted(file.copies)}, and these are not all known")
    if file.spilling and (file.spilling not in state.transfers or state.transfers[file.spilling].file != file.id):
        found.append(f"{file.lfn} is being spilled by {file.spilling}, which is not under way")
    for node_id, copy in file.copies.items():
        if copy.state is CopyState.WANTED and not copy.pins:
            found.append(f"{file.lfn} is wanted on {node_id} by nobody")
        if copy.state in HELD and not copy.generation:
            found.append(f"{file.lfn} is {copy.state} on {node_id} without a generation")
    return found


def broken_extra_copies(state: State, file: FileEntry) -> list[str]:
    """There are no more than the plan wants; and however many nodes hold a file, it is live once."""
    extra_copies = sum(copy.extra_copy and copy.state in (CopyState.PRESENT, CopyState.FETCHING) for copy in file.copies.values())
    run = state.runs.get(file.run)
    wanted = copies_wanted(state, file) if run is not None else 1
    found = []
    # One that drains is no more counted, and where the first copy is gone those that are left may be extra copies, too.
    by_plan_alone = copies_asked_for(state, file) < 2 and not state.closed
    most = max(1, wanted - 1) if by_plan_alone else wanted + sum(node.draining for node in state.nodes.values())
    if extra_copies > most or (extra_copies and (file.is_external or wanted < 2)):
        found.append(f"{file.lfn}: {extra_copies} extra copies, its plan wants {wanted} copies")
    if not 0 <= file.live_bytes <= file.size_bytes:
        found.append(f"{file.lfn}: {file.live_bytes} bytes are live of {file.size_bytes}")
    return found


def broken_stripes(state: State) -> list[str]:
    found = []
    for assembly, entry in state.striped.items():
        if assembly not in state.transfers or state.transfers[assembly].cancelled:
            found.append(f"parts on {list(entry.parts)} wait for {assembly}, which is not under way")
        missing = [node for node, part in entry.parts.items() if part not in state.parts]
        if missing:
            found.append(f"{assembly} waits for parts on {missing}, which do not come")
    found += [
        f"part {part.id} is here, and nobody assembles it"
        for part in state.parts.values()
        if part.here and part.assembly not in state.striped
    ]
    if state.orphaned_parts or state.broken_stripes:
        found.append(f"left undone: {state.orphaned_parts} to call off, {state.broken_stripes} to give up")
    return found


def broken_on_node(state: State, node: NodeEntry) -> list[str]:
    copies = [file.copies[node.id] for file in state.files.values() if node.id in file.copies]
    parts = [part for part in state.parts.values() if part.node == node.id]
    present = sum(copy.size_bytes for copy in copies if copy.state not in IN_FETCHING) + sum(node.garbage.values())
    present += sum(part.size_bytes for part in parts if part.here)
    fetching = sum(copy.size_bytes for copy in copies if copy.state in IN_FETCHING)
    fetching += sum(part.size_bytes for part in parts if not part.here)
    line = [transfer.size_bytes for transfer in state.transfers.values() if transfer.node == node.id and transfer.on_line]
    line += [part.size_bytes for part in parts if not part.here]
    cancelling = sum(copy.size_bytes for copy in copies if copy.state is CopyState.CANCELLING)
    cancelling += sum(part.size_bytes for part in parts if part.cancelled)
    deleting = sum(copy.size_bytes for copy in copies if copy.state is CopyState.DELETING) + sum(node.garbage.values())
    jobs = [job for run in state.runs.values() for job in run.jobs.values() if job.node == node.id]
    attempts = [attempt for attempt in state.attempts.values() if attempt.node == node.id]
    promised = sum(job.reserve_bytes for job in jobs if job.state is JobState.ADMITTED) + sum(attempt.reserve_bytes for attempt in attempts)
    spilling = sum(t.size_bytes for t in state.transfers.values() if t.node == node.id and t.purpose == "spill")
    admitted = sum(job.state is JobState.ADMITTED for job in jobs)
    sums = {
        "present_bytes": present,
        "fetching_bytes": fetching,
        "deleting_bytes": deleting,
        "cancelling_bytes": cancelling,
        "line_bytes": sum(line),
        "line_count": len(line),
        "promised_bytes": promised,
        "spilling_bytes": spilling,
        "idle_bytes": sum(copy.size_bytes for copy in copies if copy.idle),
        "kept_bytes": sum(copy.size_bytes for copy in copies if copy.result_rank),
        "admitted_waiting": admitted,
        "waiting_of": dict(Counter(state.runs[job.run].tenant for job in jobs if job.state is JobState.ADMITTED)),
        "sending": sum(transfer.source == node.id for transfer in state.transfers.values()),
    }
    sums |= slots_on(state, node, attempts)
    found = [
        f"node {node.id}: {name} is {getattr(node, name)}, should be {value}"
        for name, value in sums.items()
        if getattr(node, name) != value
    ]
    pins: dict[int, int] = {}
    for job in jobs:
        pinned = state.runs[job.run].pinned.get(job.id, ())
        for _, copy in pinned:
            pins[id(copy)] = pins.get(id(copy), 0) + 1
        if pinned and job.state not in WITH_PROMISE and not job.attempt:
            found.append(f"job {job.id} is {job.state} and holds pins")
    for transfer in state.transfers.values():
        if transfer.copy is not None:
            pins[id(transfer.copy)] = pins.get(id(transfer.copy), 0) + 1
    found += [
        f"a copy of generation {copy.generation} has {copy.pins} pins, should have {pins.get(id(copy), 0)}"
        for copy in copies
        if copy.pins != pins.get(id(copy), 0)
    ]
    for file_id in node.prefetching:
        fetched = state.files[file_id].copies.get(node.id)
        if fetched is None or fetched.state is not CopyState.FETCHING or fetched.pins:
            found.append(f"node {node.id} prefetches {file_id}, and its copy is {fetched}")
    if node.free_bytes < 0:
        found.append(f"node {node.id}: over its capacity by {-node.free_bytes} bytes")
    return found


def slots_on(state: State, node: NodeEntry, attempts: list[AttemptEntry]) -> dict[str, int]:
    """The sums of a node over its attempts, or over its hosts."""
    if state.on_hosts:
        open_hosts = [host for host in node.hosts.values() if host.answers and not host.drains]
        used = [attempt for attempt in state.attempts.values() if attempt.host in {host.id for host in open_hosts}]
        cores = sum(host.size.cores for host in open_hosts)
    else:
        used, cores = attempts, state.limits.cores
    slots = [slot_of(state, state.runs[each.run], each.job, each.host) for each in used if each.needed_bytes is None]
    memory_bytes = 0 if state.on_hosts else sum(memory_bytes for _, memory_bytes in slots)
    return {"cores": cores, "cores_used": sum(cores for cores, _ in slots), "memory_used_bytes": memory_bytes}


def broken_hosts(state: State) -> list[str]:
    """Each host is with one node, and has given what its attempts have of it."""
    found = [f"left undone: {state.stranded} have a host less"] if state.stranded else []
    there = {host.id: node.id for node in state.nodes.values() for host in node.hosts.values()}
    if there != state.hosts or (there and not state.on_hosts):
        found.append(f"hosts are with {there}, and should be with {state.hosts}")
    for node in state.nodes.values():
        for host in node.hosts.values():
            attempts = [attempt for attempt in state.attempts.values() if attempt.host == host.id]
            slots = [slot_of(state, state.runs[each.run], each.job, host.id) for each in attempts if each.needed_bytes is None]
            sums = {
                "cores_used": sum(cores for cores, _ in slots),
                "memory_used_bytes": sum(memory_bytes for _, memory_bytes in slots),
                "scratch_used_bytes": sum(attempt.reserve_bytes for attempt in attempts),
            }
            found += [
                f"host {host.id}: {name} is {getattr(host, name)}, should be {value}"
                for name, value in sums.items()
                if getattr(host, name) != value
            ]
    return found


def broken_tenants(state: State) -> list[str]:
    """Each has the cores of its attempts."""
    found = []
    for name, tenant in state.tenants.items():
        its = [attempt for attempt in state.attempts.values() if state.runs[attempt.run].tenant == name and attempt.needed_bytes is None]
        cores = sum(attempt.slot_cores for attempt in its)
        if tenant.cores_used != cores:
            found.append(f"tenant {name!r}: cores_used is {tenant.cores_used}, should be {cores}")
    return found


def broken_budget(state: State, run: RunEntry, spent: BudgetEntry) -> list[str]:
    promises, reads = spent.promises.values(), Moved()
    for promise in promises:
        reads.add(promise.reads)
    sums: dict[str, object] = {
        "promised": sum(promise.files for promise in promises),
        "promised_bytes": sum(promise.size_bytes for promise in promises),
        "promised_reads": reads,
        "home_bytes": sum(spent.going_home.values()),
    }
    told = [f"run {run.id}: {name} is {getattr(spent, name)}, should be {value}" for name, value in sums.items()]
    found = [text for text, (name, value) in zip(told, sums.items(), strict=True) if getattr(spent, name) != value]
    if set(spent.promises) != {attempt_id for attempt_id, attempt in state.attempts.items() if attempt.run == run.id}:
        found.append(f"run {run.id}: sets money aside for the attempts {sorted(spent.promises)}")
    if set(spent.going_home) != set(run.finals_open):
        found.append(f"run {run.id}: pays for {sorted(spent.going_home)} to go home, and {sorted(run.finals_open)} go")
    return found


def waits_as_told(state: State, run: RunEntry, job: JobEntry) -> bool:
    """For a job of a run that is before its own and goes on, and that has not ended."""
    other_id, other_job = job.awaits or ("", "")
    other, told = state.runs[other_id], state.awaited.get(other_id, {}).get(other_job, [])
    goes_on = other.state is RunState.ACTIVE or (other.state is RunState.DRAINING and other.jobs[other_job].state is JobState.RUNNING)
    ready = job.state is JobState.WAITING and other.sequence < run.sequence and run.id in state.active
    return ready and goes_on and told.count((run.id, job.id)) == 1 and other.jobs[other_job].state not in ENDED


def broken_in_run(state: State, run: RunEntry) -> list[str]:
    found = []
    unended = sum(job.state not in ENDED for job in run.jobs.values())
    if run.unended != unended:
        found.append(f"run {run.id}: unended is {run.unended}, should be {unended}")
    failed = sum(job.state in FAILED_STATES for job in run.jobs.values())
    if run.failed != failed:
        found.append(f"run {run.id}: failed is {run.failed}, should be {failed}")
    head = next((order for order, job_id in enumerate(run.by_order) if run.jobs[job_id].state not in ENDED), len(run.by_order))
    if run.head != head:
        found.append(f"run {run.id}: head is {run.head}, should be {head}")
    if (run.outcome is not None) != (run.state is RunState.FINISHED):
        found.append(f"run {run.id} is {run.state}, and its outcome is {run.outcome}")
    sending = sum(not transfer.is_fetch and transfer.purpose != "spill" for transfer in state.transfers.values() if transfer.run == run.id)
    if run.uploads_live != sending:
        found.append(f"run {run.id}: uploads_live is {run.uploads_live}, should be {sending}")
    home = [file_id for file_id in run.finals_open if state.files[file_id].durable is not None]
    if home:
        found.append(f"run {run.id} waits for {home}, which are durable")
    if (run.state is RunState.FINISHED) == (run.id in state.active):
        found.append(f"run {run.id} is {run.state} and active is {run.id in state.active}")
    held = sum(job.reserve_bytes for job in run.jobs.values() if job.state is JobState.ADMITTED)
    held += sum(attempt.reserve_bytes for attempt in state.attempts.values() if attempt.run == run.id)
    if run.promised_bytes != held:
        found.append(f"run {run.id}: promised_bytes is {run.promised_bytes}, should be {held}")
    live_bytes = sum(state.files[file_id].live_bytes for file_id in run.file_ids.values() if state.files[file_id].run == run.id)
    if run.live_bytes != live_bytes:
        found.append(f"run {run.id}: live_bytes is {run.live_bytes}, should be {live_bytes}")
    found += broken_budget(state, run, run.spent) if run.spent is not None else []
    if (run.id in state.budgeted) != (run.budget is not None and run.id in state.active):
        found.append(f"run {run.id}: among those with a budget is {run.id in state.budgeted}")
    live = sum(attempt.run == run.id for attempt in state.attempts.values())
    if run.attempts_live != live:
        found.append(f"run {run.id}: attempts_live is {run.attempts_live}, should be {live}")
    for job_id, footprint in zip(run.by_order, run.footprints_bytes, strict=False):
        needed = sum(file.size_bytes for file in run.inputs[job_id]) + run.jobs[job_id].reserve_bytes
        if footprint != needed:
            found.append(f"job {job_id}: its footprint is {footprint}, should be {needed}")
    found += [f"job {job.id} waits for {job.awaits}" for job in run.jobs.values() if job.awaits and not waits_as_told(state, run, job)]
    found += [f"job {job.id} is reused and {job.state}" for job in run.jobs.values() if job.reused_from and job.state is not JobState.DONE]
    for job in run.jobs.values():
        waits = count_parents(state, run, job.id)
        if job.state in (JobState.WAITING, JobState.READY, JobState.BACKOFF) and job.waits_for != waits:
            found.append(f"job {job.id}: waits_for is {job.waits_for}, should be {waits}")
        if job.state is JobState.RUNNING and job.attempt not in state.attempts:
            found.append(f"job {job.id} runs, and its attempt {job.attempt or 'none'} is not under way")
        if job.state is JobState.ADMITTED:
            missing = sum(copy.state is not CopyState.PRESENT for _, copy in run.pinned[job.id])
            if missing != job.inputs_missing:
                found.append(f"job {job.id}: inputs_missing is {job.inputs_missing}, should be {missing}")
            if [file.id for file, _ in run.pinned[job.id]] != [file.id for file in inputs_of(state, run, job.id)]:
                found.append(f"job {job.id} is admitted, and what it holds pins of is not what it reads on its node")
    return found
