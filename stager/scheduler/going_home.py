"""Finals that have to go home: their own copies, or copies of what another run made with the same content, which that one lends.

May know: the state, accounting. One rule: what is lent stays where it is until each final that it is lent to is home, will not go there, or
is made after all.
"""

from __future__ import annotations

from heapq import heappush

from stager.model.files import FileKind
from stager.scheduler.accounting import recount_live, settle
from stager.scheduler.keeping import can_be_asked
from stager.scheduler.reach import reaches
from stager.scheduler.spending import goes_home
from stager.scheduler.state import FileEntry, RunEntry, State
from stager.scheduler.states import CopyState


def due_upload(state: State, run: RunEntry, file: FileEntry) -> None:
    """A final exists and has to go home. One whose copy is gone is noted as lost."""
    run.finals_open[file.id] = None
    goes_home(run, file)
    if file.upload is not None and file.upload.transfer:
        return
    file.upload = None
    if any(copy.state is CopyState.PRESENT for copy in state.holding(file).copies.values()):
        heappush(state.due_uploads, (run.key(run.jobs[file.producer].order), file.id))
    else:
        state.lost.append((file.id, ""))


def may_be_lent(state: State, file: FileEntry | None, run: RunEntry, lfn: str, blake3: str) -> bool:
    """Whether this final of the run can go home of it: it is the same, and on a node from which its place can be reached."""
    destination = run.workflow.files[lfn].destination
    if file is None or destination is None or file.is_external or file.kind is not FileKind.FILE or not blake3 or file.blake3 != blake3:
        return False
    maker, origin = state.runs.get(file.run), destination.location.origin
    if (file.tenant if maker is None else maker.tenant) != run.tenant or file.run == run.id or file.spilled is not None or file.spilling:
        return False
    if maker is not None and maker.is_engines:
        return False
    there = [state.nodes[node] for node, copy in file.copies.items() if copy.state is CopyState.PRESENT]
    return any(can_be_asked(state, node.id) and reaches(state, node, run.id, origin) for node in there)


def lend(state: State, run: RunEntry, file: FileEntry, lender: FileEntry) -> None:
    """`file`: the final. It is made for this run now, so what was written at its place before may be older."""
    file.lender, lender.lent_to[file.id] = lender.id, None
    file.blake3, file.sha256, file.made_at = lender.blake3, lender.sha256, state.now
    recount_live(state, file)
    due_upload(state, run, file)
    settle_all(state, lender)


def give_back(state: State, file: FileEntry) -> None:
    """The final is home, or has copies of its own, or is to be made."""
    if not file.lender:
        return
    lender, file.lender = state.files[file.lender], ""
    file.made_at = 0.0 if file.durable is None and not file.copies else file.made_at
    del lender.lent_to[file.id]
    recount_live(state, file)
    settle_all(state, lender)


def settle_all(state: State, file: FileEntry) -> None:
    for node_id in file.copies:
        settle(state, file, node_id)
