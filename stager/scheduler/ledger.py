"""The ledger: of each byte that a run made, whether it is at risk, safe on nodes, written at the origin (checked by size only), or durable
there (content verified), and how.

One rule: derived from the state, never kept beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stager.scheduler.copies_wanted import copies_wanted
from stager.scheduler.state import FileEntry, RunEntry, State
from stager.scheduler.states import CopyState, JobState


class Standing(StrEnum):
    """NOT_MADE: its job is not done, or left it out, as it may an optional output. AT_RISK: made, and fewer than k nodes hold it. SAFE: k
    nodes hold it on disk, verified, or the spill origin does; k is the policy's, or what the plan says of this file where that is more.
    WRITTEN: at the origin, its
    size checked. DURABLE: at the origin, its content verified.

    SUPERSEDED: at its destination is something newer, which it does not replace. RELEASED: an intermediate whose last reader is done. KEPT:
    such a one that is still there, for later runs, until its room is wanted.
    """

    NOT_MADE = "not_made"
    AT_RISK = "at_risk"
    SAFE = "safe"
    WRITTEN = "written"
    DURABLE = "durable"
    SUPERSEDED = "superseded"
    RELEASED = "released"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class LedgerRow:
    lfn: str
    standing: Standing
    size_bytes: int
    final: bool
    where: str = ""
    verified: str = ""
    token: str = ""
    blake3: str = ""
    fault: str = ""
    synced: str = ""


def ledger_of(state: State, run_id: str) -> list[LedgerRow]:
    """Every produced file of the run, in the order of the workflow."""
    run = state.runs[run_id]
    produced = (lfn for lfn, file in run.workflow.files.items() if not file.is_external)
    return [entry_of(state, run, lfn) for lfn in produced]


def entry_of(state: State, run: RunEntry, lfn: str) -> LedgerRow:
    """Under its own name: a file that several runs share has one in each."""
    file = state.files[run.file_ids[lfn]]
    fault = file.upload.fault.message if file.upload is not None and file.upload.fault is not None else ""
    final = file.destination is not None
    held = file.durable
    holders = sorted(node for node, copy in state.holding(file).copies.items() if copy.state is CopyState.PRESENT)
    where = f"{held.origin}:{held.path}" if held is not None else ", ".join(holders)
    verified, token, synced = (held.verified, held.token, held.synced) if held is not None else ("", "", "")
    return LedgerRow(lfn, standing_of(state, run, lfn, file), file.size_bytes, final, where, verified, token, file.blake3, fault, synced)


def standing_of(state: State, run: RunEntry, lfn: str, file: FileEntry) -> Standing:
    if file.durable is not None:
        return Standing.WRITTEN if file.durable.verified in ("", "size") else Standing.DURABLE
    if not file.blake3 or (run.jobs[run.graph.producer[lfn]].state is not JobState.DONE and not run.is_engines):
        return Standing.NOT_MADE
    if file.id in run.finals_superseded:
        return Standing.SUPERSEDED
    if any(copy.result_rank for copy in file.copies.values()):
        return Standing.KEPT
    held = sum(copy.state is CopyState.PRESENT for copy in state.holding(file).copies.values())
    if file.spilled is not None or held >= copies_wanted(state, file):
        return Standing.SAFE
    wanted = state.owes_upload(file) or file.use_at < len(file.uses) or state.stays(file)
    return Standing.AT_RISK if wanted else Standing.RELEASED


def totals_of(entries: list[LedgerRow]) -> dict[str, int]:
    """Bytes by standing; files that do not exist yet count nothing."""
    sums = {standing.value: 0 for standing in Standing if standing is not Standing.NOT_MADE}
    for entry in entries:
        if entry.standing is not Standing.NOT_MADE:
            sums[entry.standing.value] += entry.size_bytes
    return sums
