"""The inputs as an attempt is told of them: which replica, and how it gets at it.

May know: the state. One rule: facts only; whether the attempt starts is decided in admission.py.
"""

from __future__ import annotations

from stager.planning.plan import Access
from stager.scheduler import commands as cmd
from stager.scheduler.accounting import inputs_of
from stager.scheduler.direct_access import staged_directly
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import JobEntry, RunEntry, State


def staged_inputs(state: State, node: NodeEntry, run: RunEntry, job: JobEntry) -> tuple[cmd.StagedInput, ...]:
    """In the order of writing; all that is not read directly is on the node."""
    entries, there, held = run.workflow.jobs[job.id].inputs, inputs_of(state, run, job.id), forced_access(node, run, job)
    if len(there) == len(entries):
        # None is read directly, and none is named twice: the files stand in the same order.
        return tuple(
            [
                cmd.StagedInput(entry.lfn, file.id, file.copies[node.id].generation, entry.path, held or planned_access(run, entry.lfn))
                for entry, file in zip(entries, there, strict=True)
            ]
        )
    staged, files = [], state.files
    for entry in entries:
        lfn = entry.lfn
        if run.direct and run.reads_directly(lfn):
            staged.append(staged_directly(state, run, lfn, entry.path))
            continue
        file_id = run.file_ids[lfn]
        generation = files[file_id].copies[node.id].generation
        staged.append(cmd.StagedInput(lfn, file_id, generation, entry.path, held or planned_access(run, lfn)))
    return tuple(staged)


def forced_access(node: NodeEntry, run: RunEntry, job: JobEntry) -> Access | None:
    """Of all inputs that the node holds, where there is no choice."""
    if run.is_engines:
        # A link is a mount in the job's own namespace, which an engine's task has not.
        return Access.HELD if job.pins_only else Access.COPY
    return None if node.can_link else Access.COPY


def planned_access(run: RunEntry, lfn: str) -> Access:
    planned = run.planned[lfn].access
    return Access.LINK if run.direct and planned is Access.DIRECT else planned
