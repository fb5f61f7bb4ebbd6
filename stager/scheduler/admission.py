"""Admission and start on one node, in the plan's order: grants first, then jobs, then prefetch with the space that is left.

One rule: a job is admitted only when all it needs is set aside, so every admitted job can finish.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heappop

from stager.model.errors import ErrorClass, Fault
from stager.model.ids import attempt_id
from stager.model.units import format_size
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import inputs_of
from stager.scheduler.budget import affords_attempt
from stager.scheduler.calls import refuse, wait_or_refuse
from stager.scheduler.decision import Decision
from stager.scheduler.direct_fallback import may_read_directly
from stager.scheduler.eviction import free_space, free_space_ahead, give_way, may_fit_ahead
from stager.scheduler.fetching import beside_bytes, prefetch, send_wanted
from stager.scheduler.granting import grant
from stager.scheduler.handing_over import handing_over_bytes
from stager.scheduler.holding import may_begin, room_kept_to
from stager.scheduler.lanes import Lane, Queued
from stager.scheduler.linking import own_instead
from stager.scheduler.migration import is_first, migrate, safe_bytes
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.peers import is_out_of_reach, peer_for
from stager.scheduler.placing import go_elsewhere, has_host_here, host_for, large_enough
from stager.scheduler.profiles import would_stay
from stager.scheduler.shares import order_of, over_bytes, over_cores, pool_of
from stager.scheduler.sources import denial, must_wait, own_fault, waits_for
from stager.scheduler.staging import staged_inputs
from stager.scheduler.state import NEVER, FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import ADMITTED, DELETING, FETCHING, PRESENT, READY, WANTED, CopyState
from stager.scheduler.stripes import reprioritize

# As long as after so many failures: the node's return is told, this is only for what else may have changed.
UNREACHED = 4


def work_nodes(decision: Decision) -> None:
    """Those that something happened to. One that is idle is left alone until it is dirty: working it would decide nothing."""
    state, again = decision.state, True
    while again:
        decision.rehomed = False
        for node in state.nodes.values():
            if node.dirty:
                work_node(decision, node)
                node.dirty = not is_idle(state, node)
                if node.has_spare:
                    state.spare[node.id] = None
                elif state.spare:
                    state.spare.pop(node.id, None)
        again = decision.rehomed


def is_idle(state: State, node: NodeEntry) -> bool:
    """Nothing waits there that could go on if something changed elsewhere: what waits for a core, or behind as many as may wait or come
    ahead of their use, waits for this node itself.
    """
    if not node.reachable:
        return True
    policy = state.policy
    if node.free_bytes < 0 or node.waiting_attempts or (node.kept_bytes and state.active):
        # What is kept there for later runs may have to give way to these.
        return False
    if node.draining:
        return True
    for queue in node.ready.by_lane.values():
        if may_wait_more(state, node, state.runs[queue[0][1]]):
            return False
    if node.calls_startable or (node.startable.by_lane and node.cores_used < node.cores):
        return False
    if policy.lookahead and node.candidates and len(node.prefetching) < policy.fetches_ahead_max:
        return False
    return not state.to_fetch or all(wanted_on != node.id for wanted_on, _ in state.to_fetch)


def work_node(decision: Decision, node: NodeEntry) -> None:
    """Everything that can begin on this node now."""
    if not node.reachable:
        return
    if node.kept_bytes:
        give_way(decision, node)
    if node.free_bytes < 0:
        keep_within(decision, node)
    granted = not node.waiting_attempts or grant(decision, node)
    if node.draining:
        return
    blocked = not granted or not admit(decision, node)
    if decision.state.to_fetch:
        send_wanted(decision, node)
    if node.free_bytes < 0:
        # It would refuse what is to be reserved there.
        return
    if node.calls_startable:
        start_calls(decision, node)
    if node.startable.by_lane:
        start(decision, node)
    if node.candidates and not blocked and decision.state.policy.lookahead:
        prefetch(decision, node)


def keep_within(decision: Decision, node: NodeEntry) -> None:
    """Its capacity is less than what is held there: what may go goes, and jobs that have not begun hand back what was set aside for them,
    the last first.
    """
    free_space(decision, node, 0, least_bytes=node.free_bytes)
    runs = [decision.state.runs[run] for run in decision.state.active] if node.admitted_waiting else []
    admitted = [(run, job) for run in runs for job in run.jobs.values() if job.state is ADMITTED and job.node == node.id]
    for run, job in sorted(admitted, key=lambda each: each[0].key(each[1].order), reverse=True):
        soon_bytes = node.deleting_bytes + node.cancelling_bytes + node.spilling_bytes + handing_over_bytes(decision.state, node)
        if node.free_bytes + soon_bytes >= 0:
            return
        why = f"node {node.id} has less capacity now"
        decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=decision.state.now, counts=False, why=why)


def admit(decision: Decision, node: NodeEntry) -> bool:
    """Ready jobs in order. False when the next one waits for space: then nothing overtakes it but jobs of runs that are older, which it
    may wait for.
    """
    state, before = decision.state, NEVER
    while (lane := next_ready(state, node, before)) is not None:
        _, run_id, job_id = node.ready.by_lane[lane][0]
        run = state.runs[run_id]
        if not try_admit(decision, node, run, run.jobs[job_id]):
            before = run.sequence
    return before == NEVER


def next_ready(state: State, node: NodeEntry, before: int) -> Lane | None:
    """Of the jobs that may be admitted next, the lane with the first, as tenants share; of runs that came `before`."""
    for lane in order_of(state, node.ready.by_lane):
        while lane in node.ready.by_lane:
            key, run_id, job_id = node.ready.by_lane[lane][0]
            run = state.runs[run_id]
            job = run.jobs[job_id]
            if not may_wait_more(state, node, run):
                break
            if job.state is READY and run.may_start and key == run.key(job.order) and job.node == node.id:
                if run.sequence < before and not over_bytes(state, run, job.reserve_bytes):
                    return lane
                break
            node.ready.pop(lane)
    return None


def may_wait_more(state: State, node: NodeEntry, run: RunEntry) -> bool:
    """Each tenant may have as many, so that one whose jobs wait for cores of its own stands in nobody's way."""
    most, ahead_max = state.policy.admitted_waiting_max, run.plan.ahead_max
    return node.waiting_of.get(run.tenant, 0) < (ahead_max if 0 < ahead_max < most else most)


def try_admit(decision: Decision, node: NodeEntry, run: RunEntry, job: JobEntry) -> bool:
    """True when the job left the head of the queue, admitted or otherwise."""
    state = decision.state
    if state.on_hosts and not run.is_engines and not has_host_here(decision, node, run, job):
        node.ready.pop(run.lane)
        return True
    if state.paused_origins and not may_read_directly(decision, run, job):
        return True
    files = inputs_of(state, run, job.id)
    missing = footprint = 0
    for file in files:
        footprint += file.size_bytes
        copy = file.copies.get(node.id)
        if copy is not None and copy.state is PRESENT:
            continue
        if copy is not None and copy.state in (DELETING, CopyState.CANCELLING):
            return False
        if copy is None and not obtainable(decision, run, job, file):
            return True
        if (copy is None or copy.state is WANTED) and file.fetch is not None and must_wait(state, file, run.id):
            why = waits_for(file.fetch.origin)
            decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=file.fetch.not_before, counts=False, why=why)
            return True
        missing += 0 if copy is not None else file.size_bytes
    footprint += job.reserve_bytes
    if footprint > node.capacity_bytes:
        node.ready.pop(run.lane)
        if not go_elsewhere(decision, run, job, footprint, f"{node.id} is smaller than what it needs at once"):
            refuse(decision, run, job, too_large(node, job, footprint))
        return True
    hand_back_later(decision, node, run, job, missing + job.reserve_bytes)
    if not is_safe(state, node, run, job):
        return False
    reserve = reserve_now(decision, node, run, job, missing)
    if reserve is None:
        return False
    node.ready.pop(run.lane)
    admit_here(decision, node, run, job, files, reserve)
    return True


def reserve_now(decision: Decision, node: NodeEntry, run: RunEntry, job: JobEntry, missing_bytes: int) -> int | None:
    """Bytes to set aside for its outputs, beside its inputs that are missing. None: it waits for room, which is being made if it can."""
    state, needed = decision.state, missing_bytes + job.reserve_bytes
    if is_well_ahead(state, node) and not run.is_engines:
        # What it fetches now comes ahead of its use, as a prefetch does, and would go when those before it ask for their room.
        beside = beside_bytes(state, run, node) if missing_bytes else 0
        if not may_fit_ahead(node, needed + beside):
            # Asked first, since it costs least: mostly that is what it waits for.
            return None
        if missing_bytes and not would_stay(state, run, node, job.order, needed):
            return None
        has_space = may_begin(state, run, node, job, beside) and free_space_ahead(decision, node, needed + beside)
        return job.reserve_bytes if has_space else None
    if not may_begin(state, run, node, job):
        return None
    if node.free_bytes >= needed:
        return job.reserve_bytes
    own = frozenset(file.id for file in inputs_of(state, run, job.id))
    least = missing_bytes + likely_bytes(run, job) if may_do_with_less(state, node, run, job) else None
    if free_space(decision, node, needed, own, least):
        return job.reserve_bytes
    if is_first(state, run, job) and not run.is_engines:
        migrate(decision, node, needed, own, () if is_stuck(state, node) else room_kept_to(state, run))
    less = node.free_bytes - missing_bytes
    return less if may_do_with_less(state, node, run, job) and less >= likely_bytes(run, job) else None


def is_stuck(state: State, node: NodeEntry) -> bool:
    """Whether no room will come to it by itself: nothing runs or moves there."""
    moving = node.deleting_bytes or node.cancelling_bytes or node.spilling_bytes or node.fetching_bytes or state.uploads_live
    return not (moving or node.cores_used or node.admitted_waiting)


def may_do_with_less(state: State, node: NodeEntry, run: RunEntry, job: JobEntry) -> bool:
    """Than what is set aside for the worst, where nothing is about to be free, cores idle, and outputs may wait in the sandbox without
    standing in anybody's way: what is in the way can be spilled.
    """
    expects_more = node.deleting_bytes or node.cancelling_bytes or node.spilling_bytes or handing_over_bytes(state, node)
    return not expects_more and run.plan.spill_origin is not None and job.reserve_bytes <= run.plan.jobs[job.order].reserve_bytes


def likely_bytes(run: RunEntry, job: JobEntry) -> int:
    return sum(run.planned[output.lfn].expected_bytes for output in run.workflow.jobs[job.id].outputs)


def admit_here(decision: Decision, node: NodeEntry, run: RunEntry, job: JobEntry, files: list[FileEntry], reserve_bytes: int) -> None:
    decision.give(
        cmd.AdmitJob(
            id=decision.next_id(),
            at=decision.state.now,
            cause=decision.cause,
            run=run.id,
            job=job.id,
            node=node.id,
            reserve_bytes=reserve_bytes,
        )
    )
    if job.inputs_missing:
        reprioritize_inputs(decision, node, files)


def is_well_ahead(state: State, node: NodeEntry) -> bool:
    """Whether one waits for each core that is free, or one if none is: for jobs after those nothing goes that will be read."""
    return node.admitted_waiting > 0 and node.admitted_waiting >= node.cores - node.cores_used


def hand_back_later(decision: Decision, node: NodeEntry, run: RunEntry, job: JobEntry, needed_bytes: int) -> None:
    """Jobs behind it in the order that wait for nothing but a core hand back what was set aside for them, the last first, where that makes
    all the room that it lacks. They were admitted while it waited for its parents, and it may be the one that frees what those hold.
    """
    gap = needed_bytes - node.free_bytes - node.deleting_bytes - node.cancelling_bytes - node.spilling_bytes - node.kept_bytes
    gap -= handing_over_bytes(decision.state, node)
    if gap <= 0 or run.is_engines:
        return
    # By key: a job that was handed back before is in the queue twice.
    later, key = {}, run.key(job.order)
    for other_key, other_run, other_id in node.startable:
        other = decision.state.runs[other_run].jobs[other_id]
        if other_key > key and other.state is ADMITTED and other.node == node.id and not other.inputs_missing:
            later[other_key] = other
    if gap > sum([other.reserve_bytes for other in later.values()]):
        return
    for other_key in sorted(later, reverse=True):
        if gap > 0:
            other, why = later[other_key], f"{job.id}, which comes before it, needs the room"
            decision.emit(cmd.RequeueJob, run=other.run, job=other.id, not_before=decision.state.now, counts=False, why=why)
            gap -= other.reserve_bytes


def obtainable(decision: Decision, run: RunEntry, job: JobEntry, file: FileEntry) -> bool:
    """A missing input: from another node or an origin, else its producer runs again, else this job fails."""
    state = decision.state
    if peer_for(state, file, job.node):
        return True
    fault, can_be_had = own_fault(file, run.id), state.can_be_had(file)
    if fault is None and can_be_had:
        fault = denial(state, file, run.id)
    if fault is not None:
        refuse(decision, run, job, fault)
        return False
    if can_be_had:
        return True
    if file.links and (own := own_instead(state, run, file)):
        decision.emit(cmd.RemakeFile, run=run.id, file=own, job=run.graph.producer[file.links[run.id]])
        return False
    if file.lender and file.id in run.finals_open:
        why = f"{file.lfn} is read when it is at its destination: another run made it, and it is on its way from there"
        decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=decision.retry_at(1, file.id), counts=False, why=why)
        return False
    if is_out_of_reach(state, file):
        why = f"{file.lfn} is on a node that cannot be reached"
        decision.emit(cmd.RequeueJob, run=run.id, job=job.id, not_before=decision.retry_at(UNREACHED, file.id), counts=False, why=why)
        return False
    if run.is_engines:
        wait_or_refuse(decision, run, job, file)
        return False
    decision.emit(cmd.RemakeFile, run=file.run, file=file.id, job=file.producer)
    return False


def too_large(node: NodeEntry, job: JobEntry, footprint: int) -> Fault:
    message = (
        f"job {job.id!r} needs {format_size(footprint)} at once ({footprint} bytes of inputs and outputs), "
        f"node {node.id!r} has {format_size(node.capacity_bytes)}: give it more capacity"
    )
    return Fault(ErrorClass.REFUSED, "no_space_node", message, job.id)


def is_safe(state: State, node: NodeEntry, run: RunEntry, job: JobEntry) -> bool:
    """Without a place to spill to, a job may overtake the serial order only if the rest of that order still fits behind it.

    And a run may take only what leaves each run that has been active for longer room to end: they could all end one after the other. An
    engine has an order of its own, and waits for what it called: it may take what it can get, and claims nothing before.
    """
    if run.plan.spill_origin is not None or run.is_engines:
        return True
    held, met, room = 0, False, safe_bytes(state, node, run)
    for other_id in reversed(state.active):
        other = state.runs[other_id]
        if other is run:
            met, safety = True, run.safety if job.order > run.head else None
            if safety is not None and safety.max(run.head, job.order) + job.reserve_bytes + held > room:
                return False
            held += job.reserve_bytes
        elif met and rest_of(other) + held > room:
            return False
        held += held_by(other)
    return True


def held_by(run: RunEntry) -> int:
    """The bytes that it has and may yet make that cannot be put elsewhere."""
    return run.live_bytes + run.promised_bytes if run.plan.spill_origin is None else 0


def rest_of(run: RunEntry) -> int:
    if run.is_engines:
        return 0
    if run.safety is not None:
        return run.safety.max(run.head, run.safety.length) if run.head < run.safety.length else 0
    return run.plan.peak_live_bytes if run.plan.spill_origin is None else run.plan.smallest_capacity_bytes


def reprioritize_inputs(decision: Decision, node: NodeEntry, files: list[FileEntry]) -> None:
    for file in files:
        copy = file.copies[node.id]
        if copy.state is FETCHING:
            transfer = decision.state.transfers.get(copy.generation)
            if transfer is not None and transfer.purpose is not cmd.Purpose.DEMAND:
                reprioritize(decision, transfer)


def start(decision: Decision, node: NodeEntry) -> None:
    """Jobs whose inputs are all here, in order, while there are cores and memory."""
    state, limits = decision.state, decision.state.limits
    if state.on_hosts:
        start_on_hosts(decision, node)
        return
    while node.cores_used < limits.cores and (entry := next_startable(state, node, ())) is not None:
        run = state.runs[entry[1]]
        job, spec = run.jobs[entry[2]], run.workflow.jobs[entry[2]]
        if node.cores_used + min(spec.cores, limits.cores) > limits.cores:
            return
        if limits.memory_bytes is not None and node.cores_used and node.memory_used_bytes + (spec.memory_bytes or 0) > limits.memory_bytes:
            return
        node.startable.pop(run.lane)
        if affords_attempt(decision, run, job) and may_read_directly(decision, run, job):
            give_start(decision, node, run, job)


def start_on_hosts(decision: Decision, node: NodeEntry) -> None:
    """The same on hosts. A job that no host has room for claims all that are large enough: others begin on the rest."""
    state, claimed, waiting = decision.state, dict[str, None](), list[tuple[RunEntry, Queued]]()
    while node.cores_used < node.cores and (entry := next_startable(state, node, claimed)) is not None:
        run = state.runs[entry[1]]
        job, spec = run.jobs[entry[2]], run.workflow.jobs[entry[2]]
        pool = pool_of(state, run)
        node.startable.pop(run.lane)
        host = host_for(node, pool, spec, job.reserve_bytes, claimed)
        if host is None:
            waiting.append((run, entry))
            claimed |= dict.fromkeys(large_enough(node, pool, spec, job.reserve_bytes))
        elif affords_attempt(decision, run, job) and may_read_directly(decision, run, job):
            give_start(decision, node, run, job, host.id)
    for run, entry in waiting:
        node.startable.push(run.lane, entry)


def next_startable(state: State, node: NodeEntry, claimed: Collection[str]) -> Queued | None:
    """Of the jobs that wait for nothing but cores that their tenants may have, the first, as tenants share. With hosts, of those tenants
    whose hosts are not all claimed.
    """
    for lane in order_of(state, node.startable.by_lane):
        while lane in node.startable.by_lane:
            entry = node.startable.by_lane[lane][0]
            run = state.runs[entry[1]]
            job = run.jobs[entry[2]]
            if job.state is ADMITTED and not job.inputs_missing and run.may_start and job.node == node.id:
                free = not claimed or is_unclaimed(state, node, run, claimed)
                if free and not over_cores(state, run, run.workflow.jobs[job.id].cores):
                    return entry
                break
            node.startable.pop(lane)
    return None


def is_unclaimed(state: State, node: NodeEntry, run: RunEntry, claimed: Collection[str]) -> bool:
    """Whether there may be a host beside the node that its jobs can begin on now."""
    pool = pool_of(state, run)
    return any(host.tenant == pool and host.id not in claimed for host in node.hosts.values())


def start_calls(decision: Decision, node: NodeEntry) -> None:
    """Of engines, whose tasks wait already and take no cores of stager's."""
    while node.calls_startable:
        _, run_id, job_id = heappop(node.calls_startable)
        run = decision.state.runs[run_id]
        job = run.jobs[job_id]
        if job.state is ADMITTED and not job.inputs_missing and job.node == node.id:
            give_start(decision, node, run, job)


def give_start(decision: Decision, node: NodeEntry, run: RunEntry, job: JobEntry, host: str = "") -> None:
    number = job.attempts + 1
    decision.give(
        cmd.StartAttempt(
            id=decision.next_id(),
            at=decision.state.now,
            cause=decision.cause,
            node=node.id,
            run=run.id,
            job=job.id,
            attempt=attempt_id(run.id, job.id, number),
            number=number,
            reserve_bytes=job.reserve_bytes,
            inputs=staged_inputs(decision.state, node, run, job),
            host=host,
        )
    )
