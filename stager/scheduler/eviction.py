"""Making room on a node: evict what is clean and next used farthest away, call off prefetches, spill intermediates that are used farther
away than all that is clean. Space counts as free only when the node has said so.

One rule: nothing pinned, nothing dirty, nothing the asking job itself needs is ever given away; and what is clean goes last, once all that
is missing can be had with it: room that is not enough is nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice

from stager.planning.plan import LinkPlan
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import count_idle, eviction_key, inputs_of, settle
from stager.scheduler.copies_wanted import extra_copies_coming
from stager.scheduler.decision import Decision
from stager.scheduler.handing_over import hand_over, handing_over_bytes
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.reach import reaches
from stager.scheduler.sources import place_for
from stager.scheduler.state import NEVER, OVER, FileEntry, JobEntry, RunEntry, State
from stager.scheduler.states import FETCHING, PRESENT, READY, JobState
from stager.scheduler.stripes import give_up_parts_on

# An entry of one of a node's two queues of what may go, and whether it is the one of those that have to be spilled first.
Choice = tuple[tuple[int, str, str], bool]
EVICTED = "evicted: its next use is farthest"
WANTED = "it was kept for later runs, and the room is wanted"
TOO_MUCH = "it was kept for later runs, and there is more of that than is to be kept"
# Of the jobs behind those that have ended, so many are looked at for the next.
NEXT_MAX = 256
NOT_BEGUN = (JobState.WAITING, READY, JobState.BACKOFF)
TOO_OLD = "it was kept for later runs, for as long as such is to be kept"


def free_space(
    decision: Decision, node: NodeEntry, need_bytes: int, protect: frozenset[str] = frozenset(), least_bytes: int | None = None
) -> bool:
    """True if `need_bytes` are free now. Else sets free what it may and says False: ask again at the next event. `least_bytes`: so much
    would help as well.
    """
    if node.free_bytes >= need_bytes:
        return True
    gap = need_bytes - node.free_bytes - node.deleting_bytes - node.cancelling_bytes - handing_over_bytes(decision.state, node)
    if gap <= 0 or not node.reachable:
        return False
    if node.spilling_bytes and go_instead_of_waiting(decision, node, gap, protect):
        return False
    gap -= node.spilling_bytes
    if gap <= 0:
        return False
    lacking = 0 if least_bytes is None else need_bytes - least_bytes
    if node.kept_bytes:
        gap = let_go_kept(decision, node, gap, WANTED)
        if gap <= 0:
            return False
    if gap - in_reach_bytes(decision.state, node, protect) > lacking:
        spill_ahead(decision, node, protect)
        return False
    gap = call_off_extra_copies(decision, node, gap)
    chosen, gap = choose(decision, node, gap, protect, clean_only=True)
    gap = call_off_prefetches(decision, node, gap, protect)
    if gap > 0 and decision.state.parts:
        gap = give_up_parts_on(decision, node, gap)
    more, gap = choose(decision, node, gap, protect, beside=chosen)
    clean = spill(decision, node, spared(decision, node, [*chosen, *more], -gap))
    if node.spilling_bytes or gap > lacking:
        put_back(node, clean)
    else:
        hand_over_or_evict(decision, node, clean)
    return False


def go_instead_of_waiting(decision: Decision, node: NodeEntry, gap: int, protect: frozenset[str]) -> bool:
    """Whether what is clean makes all the room, and comes again sooner than what is being spilled is gone; else nothing goes."""
    chosen, gap = choose(decision, node, gap, protect, clean_only=True)
    if gap > 0 or fetching_again_s(decision.state, chosen) > spilling_s(decision.state, node):
        put_back(node, chosen)
        return False
    hand_over_or_evict(decision, node, chosen)
    return True


def fetching_again_s(state: State, choices: Sequence[Choice]) -> float:
    """How long the lines have to carry what of these is read again, and is on no other node."""
    files = [state.files[entry[1]] for entry, _ in choices]
    again = [file for file in files if state.next_use(file) < NEVER and len(file.copies) == 1 and state.can_be_had(file)]
    links = [(file, link_to(state, file.run, place_for(state, file, file.run).origin)) for file in again]
    return sum([file.size_bytes / link.fetch_bytes_per_s for file, link in links if link is not None])


def spilling_s(state: State, node: NodeEntry) -> float:
    """How long the lines still have to carry what is being spilled there, by what the plans knew of them."""
    spills = [transfer for transfer in state.transfers.values() if transfer.node == node.id and transfer.purpose is cmd.Purpose.SPILL]
    links = [(spill, link_to(state, spill.run, spill.origin)) for spill in spills]
    all_s = sum([spill.size_bytes / link.upload_bytes_per_s for spill, link in links if link is not None])
    return all_s - (state.now - min([spill.started_at for spill in spills], default=state.now))


def link_to(state: State, run: str, origin: str) -> LinkPlan | None:
    return next((link for link in state.runs[run].plan.links if link.origin == origin), None)


def let_go_kept(decision: Decision, node: NodeEntry, gap: int, why: str) -> int:
    """What is there for later runs only, the first to go first. Returns what is still missing."""
    while gap > 0 and node.kept_bytes and node.reachable:
        tidy(decision, node)
        if not node.evictable:
            break
        file = decision.state.files[node.evictable[0][1]]
        copy = file.copies[node.id]
        if not copy.result_rank:
            break
        heappop(node.evictable)
        gap -= copy.size_bytes
        delete(decision, node, file, why)
    return gap


def give_way(decision: Decision, node: NodeEntry) -> None:
    """What is there for later runs leaves room for the next jobs of each run before they ask for it, and is no more than is to be kept."""
    state = decision.state
    soon_bytes = node.free_bytes + node.deleting_bytes + node.cancelling_bytes
    let_go_kept(decision, node, sum(next_bytes(state, node, state.runs[run]) for run in state.active) - soon_bytes, WANTED)
    let_go_kept(decision, node, node.kept_bytes - state.policy.keep_results_bytes, TOO_MUCH)


def next_bytes(state: State, node: NodeEntry, run: RunEntry) -> int:
    """What the next jobs of a run would have to be given on this node: as many as it has cores, and one more. Wherever they are to run:
    a node that idles may take them.
    """
    jobs = (run.jobs[job_id] for job_id in islice(run.by_order, run.head, run.head + NEXT_MAX))
    nexts = islice((job for job in jobs if job.state in NOT_BEGUN), node.cores + 1)
    return sum(job.reserve_bytes + missing_bytes(state, node, run, job) for job in nexts)


def missing_bytes(state: State, node: NodeEntry, run: RunEntry, job: JobEntry) -> int:
    return sum([file.size_bytes for file in inputs_of(state, run, job.id) if node.id not in file.copies])


def let_go_old(decision: Decision) -> None:
    """Walks all files: asked for when a run begins and when a node reports."""
    state, since = decision.state, decision.state.now - decision.state.policy.keep_results_s
    for node in [node for node in state.nodes.values() if node.kept_bytes and node.reachable]:
        for file in [file for file in state.files.values() if node.id in file.copies]:
            if file.copies[node.id].result_rank and file.kept_at <= since:
                delete(decision, node, file, TOO_OLD)


def in_reach_bytes(state: State, node: NodeEntry, protect: frozenset[str]) -> int:
    """At most as much can be given up for a job; what is about to be free already is not in it."""
    own = [copy for file in protect if (copy := state.files[file].copies.get(node.id)) is not None]
    reach = node.idle_bytes - sum(copy.size_bytes for copy in own if copy.idle)
    reach += sum(state.files[file].copies[node.id].size_bytes for file in node.prefetching)
    reach += sum(transfer.size_bytes for transfer in extra_copies_coming(state) if transfer.node == node.id)
    return reach + sum(part.size_bytes for part in state.parts.values() if part.node == node.id)


def clear(decision: Decision, node: NodeEntry, need_bytes: int) -> bool:
    """The same with only what can be had again, be it enough or not: for what another node would send here."""
    gap = need_bytes - node.free_bytes
    if gap <= 0:
        return True
    gap -= node.deleting_bytes + node.cancelling_bytes + node.spilling_bytes
    gap = call_off_extra_copies(decision, node, gap)
    chosen, gap = choose(decision, node, gap, frozenset(), clean_only=True)
    evict(decision, node, chosen)
    call_off_prefetches(decision, node, gap, frozenset())
    return False


def free_space_ahead(decision: Decision, node: NodeEntry, need_bytes: int) -> bool:
    """The same for a prefetch: only what nobody will read goes for it. Anything else would have to be fetched again, and whether it is the
    farthest is known only when a job asks for the room.
    """
    gap = need_bytes - node.free_bytes
    if gap <= 0:
        return True
    gap -= node.deleting_bytes + node.cancelling_bytes
    while gap > 0 and node.reachable and holds_unread(node):
        tidy(decision, node)
        if holds_unread(node):
            file = decision.state.files[heappop(node.evictable)[1]]
            copy = file.copies[node.id]
            gap -= copy.size_bytes
            delete(decision, node, file, WANTED if copy.result_rank else EVICTED)
    return False


def may_fit_ahead(node: NodeEntry, need_bytes: int) -> bool:
    """Whether `free_space_ahead` would find the room, or set some free. Asked first where the other questions cost more."""
    gap = need_bytes - node.free_bytes
    return gap <= 0 or (gap > node.deleting_bytes + node.cancelling_bytes and holds_unread(node))


def holds_unread(node: NodeEntry) -> bool:
    """Whether nobody will read the first that may be evicted, or it is an extra copy: as far as known, until the queue is tidied."""
    return bool(node.evictable) and node.evictable[0][0] <= -NEVER


def choose(
    decision: Decision, node: NodeEntry, gap: int, protect: frozenset[str], clean_only: bool = False, beside: Sequence[Choice] = ()
) -> tuple[list[Choice], int]:
    """The copy that is to go, taken off its queue: farthest next use first, whether it can be evicted or has to be spilled before;
    `clean_only` stops where the next would be spilled. And what is still missing. `beside`: what was chosen before; its bytes are not
    missing.
    """
    chosen: list[Choice] = []
    # A queue may hold a file twice, since entries are checked when they are taken: its bytes are freed once.
    taken = {entry[1] for entry, _ in beside}
    kept: list[Choice] = []
    while gap > 0:
        tidy(decision, node)
        spills = bool(node.spillable) and (not node.evictable or node.spillable[0][0] < node.evictable[0][0])
        queue = node.spillable if spills else node.evictable
        if not queue or (spills and clean_only):
            break
        entry = heappop(queue)
        file = decision.state.files[entry[1]]
        if file.id in taken:
            continue
        if spills and not can_spill_now(decision.state, node, file):
            count_idle(node, file.copies[node.id], idle=False)
        elif file.id in protect:
            kept.append((entry, spills))
        else:
            chosen.append((entry, spills))
            taken.add(file.id)
            gap -= file.copies[node.id].size_bytes
    put_back(node, kept)
    return chosen, gap


def spared(decision: Decision, node: NodeEntry, choices: list[Choice], beyond_bytes: int) -> list[Choice]:
    """Without those that need not go because of a larger one, which frees more than is missing: those used soonest stay first."""
    go: list[Choice] = []
    for entry, spills in reversed(choices):
        size_bytes = decision.state.files[entry[1]].copies[node.id].size_bytes
        if size_bytes <= beyond_bytes:
            beyond_bytes -= size_bytes
            put_back(node, [(entry, spills)])
        else:
            go.append((entry, spills))
    return go[::-1]


def put_back(node: NodeEntry, choices: list[Choice]) -> None:
    for entry, spills in choices:
        heappush(node.spillable if spills else node.evictable, entry)


def spill(decision: Decision, node: NodeEntry, choices: list[Choice]) -> list[Choice]:
    """Those that have to be spilled. Returns the others."""
    for entry, spills in choices:
        if spills:
            give_spill(decision, node, decision.state.files[entry[1]])
    return [choice for choice in choices if not choice[1]]


def spill_ahead(decision: Decision, node: NodeEntry, protect: frozenset[str]) -> None:
    """All that may be: who waits for jobs to end finds uploaded then what is in the way."""
    kept: list[Choice] = []
    while True:
        tidy(decision, node)
        if not node.spillable:
            break
        entry = heappop(node.spillable)
        file = decision.state.files[entry[1]]
        if file.id in protect:
            kept.append((entry, True))
        elif can_spill_now(decision.state, node, file):
            give_spill(decision, node, file)
        else:
            count_idle(node, file.copies[node.id], idle=False)
    put_back(node, kept)


def hand_over_or_evict(decision: Decision, node: NodeEntry, choices: list[Choice]) -> None:
    evict(decision, node, [choice for choice in choices if not hand_over(decision, node, decision.state.files[choice[0][1]])])


def evict(decision: Decision, node: NodeEntry, choices: list[Choice]) -> None:
    for entry, _ in choices:
        file = decision.state.files[entry[1]]
        delete(decision, node, file, WANTED if file.copies[node.id].result_rank else EVICTED)


def tidy(decision: Decision, node: NodeEntry) -> None:
    """Leaves at the top of both queues what may go that way. A copy in the wrong one moves: with several nodes a copy becomes the only
    one when the other holder cannot be reached, and is not any more when it is back.
    """
    state = decision.state
    for heap, spills in ((node.evictable, False), (node.spillable, True)):
        while heap:
            file = state.files[heap[0][1]]
            current, only = is_current(decision, node, heap[0]), state.holds_only_copy(file)
            if current and only is spills and (not spills or may_be_spilled(state, file)):
                break
            heappop(heap)
            if current and only is not spills:
                settle(state, file, node.id)


def may_be_spilled(state: State, file: FileEntry) -> bool:
    """Ever, if its origin can be reached."""
    if any(run != file.run and state.runs[run].outcome not in OVER for run in file.links):
        # Another run, which may be resumed if it is over, calls that place by another name.
        return False
    if state.owes_upload(file) or state.is_lent(file):
        return False
    return state.runs[file.run].plan.spill_origin is not None and not file.spilling


def is_current(decision: Decision, node: NodeEntry, entry: tuple[int, str, str]) -> bool:
    key, file_id, generation = entry
    file = decision.state.files[file_id]
    copy = file.copies.get(node.id)
    if copy is None or copy.generation != generation or copy.state is not PRESENT or copy.pins:
        return False
    return -key == eviction_key(copy, decision.state.next_use(file))


def delete(decision: Decision, node: NodeEntry, file: FileEntry, why: str) -> None:
    copy = file.copies[node.id]
    delete_replica(decision, node.id, file.id, copy.generation, copy.size_bytes, why)


def delete_replica(decision: Decision, node: str, file: str, generation: str, size_bytes: int, why: str) -> None:
    decision.give(
        cmd.DeleteReplica(
            id=decision.next_id(),
            at=decision.state.now,
            cause=decision.cause,
            node=node,
            file=file,
            generation=generation,
            size_bytes=size_bytes,
            why=why,
        )
    )


def call_off_extra_copies(decision: Decision, node: NodeEntry, gap: int) -> int:
    """Those on their way to this node, of which there is one as a rule."""
    for transfer in extra_copies_coming(decision.state):
        if gap > 0 and transfer.node == node.id and not decision.state.files[transfer.file].copies[node.id].pins:
            gap -= transfer.size_bytes
            decision.emit(cmd.CancelTransfer, node=node.id, transfer=transfer.id)
    return gap


def call_off_prefetches(decision: Decision, node: NodeEntry, gap: int, protect: frozenset[str]) -> int:
    """Those used last first; there are at most `fetches_ahead_max`."""
    state = decision.state
    for file_id in sorted(node.prefetching, key=lambda f: (-state.next_use(state.files[f]), f)):
        copy = state.files[file_id].copies[node.id]
        if gap <= 0:
            break
        if file_id in protect or copy.pins or copy.state is not FETCHING:
            continue
        gap -= copy.size_bytes
        decision.emit(cmd.CancelTransfer, node=node.id, transfer=copy.generation)
    return gap


def can_spill_now(state: State, node: NodeEntry, file: FileEntry) -> bool:
    run, retries = state.runs[file.run], file.upload
    if retries is not None and (retries.fault is not None or retries.not_before > state.now):
        return False
    origin = run.plan.spill_origin
    return origin is not None and state.paused(run.id, origin) is None and reaches(state, node, run.id, origin)


def give_spill(decision: Decision, node: NodeEntry, file: FileEntry) -> None:
    """An intermediate goes to the spill origin; once there it can be evicted."""
    run, copy = decision.state.runs[file.run], file.copies[node.id]
    decision.emit(
        cmd.Upload,
        node=node.id,
        transfer=decision.new_transfer(),
        file=file.id,
        generation=copy.generation,
        lfn=file.lfn,
        run=run.id,
        origin=run.plan.spill_origin,
        path=f".stager-spill/{run.id}/{file.id}",
        size_bytes=copy.size_bytes,
        purpose=cmd.Purpose.SPILL,
        priority=5,
        replace=True,
    )
