"""A run's entry into the state by its definition: its order, its files, and who reads them.

May know: the state, accounting. One rule: the same definition gives the same entries, whatever was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify

from stager.model.files import File, FileKind
from stager.model.ids import external_file_id, produced_file_id
from stager.model.workflow import Workflow
from stager.planning.plan import Access, FilePlan, Plan, ReusedJob, ReusedOutput
from stager.scheduler import events as ev
from stager.scheduler.accounting import inputs_of, recount_live, settle, take_over
from stager.scheduler.going_home import lend, may_be_lent
from stager.scheduler.keeping import may_be_linked
from stager.scheduler.linking import link
from stager.scheduler.peers import next_use_on
from stager.scheduler.profiles import fits_at_once
from stager.scheduler.state import FileEntry, HeldAt, JobEntry, RunEntry, State
from stager.scheduler.states import ENDED, JobState


def serial_order(plan: Plan) -> list[str]:
    return [entry.job for entry in sorted(plan.jobs, key=lambda entry: entry.order)]


def planned_files(plan: Plan) -> dict[str, FilePlan]:
    return {entry.lfn: entry for entry in plan.files}


def direct_access(plan: Plan) -> frozenset[str]:
    directly = Access.DIRECT
    return frozenset([entry.lfn for entry in plan.files if entry.access is directly])


def content_of(workflow: Workflow, file: File, ids: int) -> str:
    """The identity of an external file's content; `ids` as in `RunSubmitted`."""
    first = file.sources[0]
    origin = workflow.origins[first.location.origin]
    token = f"{first.token or ''} {workflow.anew}" if workflow.anew else first.token or ""
    return external_file_id(origin.url, first.location.path, token, origin.endpoint if ids >= ev.IDS else "")


def enter_file(state: State, run: RunEntry, lfn: str, size_bytes: int) -> str:
    file = run.workflow.files[lfn]
    if not file.sources:
        made_id = produced_file_id(run.id, lfn)
        producer = run.graph.producer[lfn]
        state.files[made_id] = FileEntry(
            made_id, lfn, run.id, size_bytes, file.kind, file.executable, producer=producer, destination=file.destination
        )
        return made_id
    file_id = content_of(run.workflow, file, run.ids)
    size_bytes = file.size_bytes if file.size_bytes is not None else size_bytes
    entry = state.files.get(file_id)
    if entry is None:
        entry = state.files[file_id] = FileEntry(file_id, lfn, run.id, size_bytes, FileKind.FILE, file.executable, file.sha256 or "")
    if not entry.sources:
        entry.run, entry.lfn, entry.sources, entry.source_at, entry.fetch = run.id, lfn, file.sources, 0, None
    if entry.run != run.id:
        run.shared[file_id] = lfn
    if entry.run not in state.active:
        take_over(state, entry, run)
    return file_id


def begin_done(run: RunEntry, job: JobEntry, reused_from: str) -> None:
    """It never waits nor runs: an earlier run made what it would make."""
    job.state, job.reused_from = JobState.DONE, reused_from
    run.unended -= 1
    while run.head < len(run.by_order) and run.jobs[run.by_order[run.head]].state in ENDED:
        run.head += 1


def enter_reused(state: State, run: RunEntry, reused: Sequence[ReusedJob]) -> None:
    """Jobs that are done from the start: what they made is known by content, finals lie at their destinations, and what nodes keep is the
    run's as well. What they no longer keep is made again.
    """
    roomy = fits_at_once(state, run.plan.capacity_bytes) if reused else True
    for each in still_reused(state, run, reused, roomy):
        begin_done(run, run.jobs[each.job], each.run)
        for made in each.outputs:
            kept, is_final = state.files.get(made.kept) if made.kept else None, run.workflow.files[made.lfn].is_final
            can_link = kept is not None and not is_final and run.id not in kept.links
            if kept is not None and can_link and roomy and may_be_linked(state, kept, run.tenant, made.blake3):
                link(state, run, made.lfn, kept)
            file = state.files[run.file_ids[made.lfn]]
            file.size_bytes, file.blake3, file.executable = made.size_bytes, made.blake3, made.executable
            if kept is not None and is_final:
                lend(state, run, file, kept)
            if file.destination is not None and made.token:
                where = file.destination.location
                file.durable = HeldAt(where.origin, where.path, made.token, made.verified, made.synced)


def still_reused(state: State, run: RunEntry, reused: Sequence[ReusedJob], roomy: bool) -> Sequence[ReusedJob]:
    """Something may have gone between the plan and this moment. `roomy`: what is held from the start is in nobody's way. Where room is
    tight it might be in that of a job that comes before its reader.
    """
    files, outputs = run.workflow.files, {made.lfn: made for each in reused for made in each.outputs}
    if not any(made.kept for made in outputs.values()):
        return reused

    # Most runs take over nothing, and a scheduler starts sooner without this.
    from stager.planning.reuse import run_as_well

    def is_at_hand(lfn: str) -> bool:
        made = outputs.get(lfn)
        if made is None or not made.kept:
            return made is not None and made.token != ""
        return roomy and not files[lfn].is_final and may_be_linked(state, state.files.get(made.kept), run.tenant, made.blake3)

    def goes_home(made: ReusedOutput) -> bool:
        """It is there, or can go there. A final only."""
        return made.token != "" or (roomy and may_be_lent(state, state.files.get(made.kept), run, made.lfn, made.blake3))

    stays = [each for each in reused if all(goes_home(made) for made in each.outputs if files[made.lfn].is_final)]
    runs = run.jobs.keys() - {each.job for each in stays}
    more = run_as_well(run.workflow, runs, is_at_hand)
    return [each for each in stays if each.job not in more]


def enter_uses(state: State, run: RunEntry) -> None:
    """Readers in serial order; a shared external file's uses by several runs are merged."""
    touched: dict[str, FileEntry] = {}
    for job_id in run.by_order:
        use = (run.key(run.jobs[job_id].order), run.id, job_id)
        for file in inputs_of(state, run, job_id):
            file.uses.append(use)
            touched[file.id] = file
    for file in touched.values():
        file.uses.sort()
        file.use_at = 0
        if file.links:
            recount_live(state, file)
        for node_id in file.copies:
            settle(state, file, node_id)
        if not (file.links or state.can_be_had(file)):
            continue
        for node_id in dict.fromkeys([run.jobs[job].node for _, reader, job in file.uses if reader == run.id]):
            first = next_use_on(state, file, node_id) if node_id not in file.copies else None
            if first is not None:
                state.nodes[node_id].candidates.append((first[0], file.id))
    for node in state.nodes.values():
        heapify(node.candidates)
        node.dirty = True
