"""The Machine's state as a value that can be written down, and back: what a replay may begin with instead of the first event.

May know: the state. One rule: a restored state answers all later events as the one it was taken of would have, command by command.

It leaves out values that stand elsewhere: a run's workflow and plan are in the event that submitted it, or that brought others, its graph
and order follow from those. Where the state holds one object in two places, the value names it: a file by its id, a copy as its
file's own or, once it was replaced there, by its number among the `detached`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from stager.model.scatter import assumed_jobs
from stager.model.workflow import Graph, Workflow, graph_of
from stager.planning.plan import Plan
from stager.planning.space import SpaceProfile
from stager.scheduler.entering import direct_access, planned_files, serial_order
from stager.scheduler.events import RunResumed, RunScattered, RunSubmitted
from stager.scheduler.state import Copy, FileEntry, RunEntry, State

FILES_OWN = -1
NO_WORKFLOW = Workflow("", {}, {})
NO_PLAN = Plan(0, "", "", 0, 0, 0, None, 0.0, 0, 0, 0, (), ())
NO_GRAPH = Graph({}, {}, {}, {}, ())


@dataclass(slots=True)
class KeptRun:
    """`pinned`: by job, (file, which copy) of each of its pins. The profiles of space are kept as the bytes at each position."""

    entry: RunEntry
    pinned: dict[str, list[tuple[str, int]]]
    safety: list[int] | None
    ahead: list[int] | None


@dataclass(slots=True)
class KeptState:
    """Shares its parts with the state it was made of, so it is written down before the next event.

    `uploads`: by transfer, copies between nodes included, which copy it reads. `erasing`: of each spill to erase, whether it is still
    its file's.
    """

    state: State
    runs: list[KeptRun]
    detached: list[Copy]
    uploads: dict[str, int]
    erasing: list[bool]


def kept_state(state: State) -> KeptState:
    detached: list[Copy] = []
    numbers: dict[int, int] = {}

    def which(file: FileEntry, node: str, copy: Copy) -> int:
        if file.copies.get(node) is copy:
            return FILES_OWN
        number = numbers.setdefault(id(copy), len(detached))
        if number == len(detached):
            detached.append(copy)
        return number

    runs = []
    for run in state.runs.values():
        pinned = {}
        for job, pins in run.pinned.items():
            pinned[job] = [(file.id, which(file, run.jobs[job].node, copy)) for file, copy in pins]
        runs.append(KeptRun(bare(run), pinned, values_of(run.safety), values_of(run.ahead)))
    uploads = {
        transfer.id: which(state.files[transfer.file_read], transfer.reads_on, transfer.copy)
        for transfer in state.transfers.values()
        if transfer.copy is not None
    }
    transfers = {key: structs.replace(transfer, copy=None) for key, transfer in state.transfers.items()}
    erasing = [state.files[file_id].spilled is held for file_id, held, _ in state.spills_to_erase]
    return KeptState(replace(state, runs={}, transfers=transfers), runs, detached, uploads, erasing)


def bare(run: RunEntry) -> RunEntry:
    """Without what is kept beside it or follows from the event that submitted it."""
    return replace(
        run,
        workflow=NO_WORKFLOW,
        plan=NO_PLAN,
        graph=NO_GRAPH,
        by_order=[],
        planned={},
        direct=frozenset(),
        assumed=frozenset(),
        inputs={},
        footprints_bytes=[],
        stays_from={},
        pinned={},
        safety=None,
        ahead=None,
    )


def values_of(profile: SpaceProfile | None) -> list[int] | None:
    return None if profile is None else profile.values()


def restored(kept: KeptState, submitted: Mapping[str, RunSubmitted | RunResumed | RunScattered]) -> State:
    """Takes over what it is given. `submitted`: of each run, the event that brought its definition."""
    state = kept.state
    for kept_run in kept.runs:
        run = kept_run.entry
        state.runs[run.id] = run
        fill(run, submitted[run.id])
        for job, pins in kept_run.pinned.items():
            node = run.jobs[job].node
            run.pinned[job] = [(state.files[file], copy_of(kept, file, node, which)) for file, which in pins]
        run.safety = None if kept_run.safety is None else SpaceProfile(kept_run.safety)
        run.ahead = None if kept_run.ahead is None else SpaceProfile(kept_run.ahead)
    for transfer_id, which in kept.uploads.items():
        transfer = state.transfers[transfer_id]
        transfer.copy = copy_of(kept, transfer.file_read, transfer.reads_on, which)
    for index, own in enumerate(kept.erasing):
        file, held, node = state.spills_to_erase[index]
        if own:
            state.files[file].spilled = held
    return state


def fill(run: RunEntry, event: RunSubmitted | RunResumed | RunScattered) -> None:
    assert event.workflow is not None and event.plan is not None
    run.workflow, run.plan, run.graph = event.workflow, event.plan, graph_of(event.workflow)
    run.by_order, run.planned, run.direct = serial_order(event.plan), planned_files(event.plan), direct_access(event.plan)
    run.assumed = assumed_jobs(event.workflow.scatters)


def copy_of(kept: KeptState, file: str, node: str, which: int) -> Copy:
    return kept.state.files[file].copies[node] if which == FILES_OWN else kept.detached[which]
