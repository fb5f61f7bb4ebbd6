"""The I/O nodes as the Machine and their links know them together: what state each is in, since when, and what would be lost with it.

May know: the Machine's state (read only), wire. One rule: on the driving thread, between two batches; nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stager import wire
from stager.scheduler.leaving import attempts_on, is_owed, unsafe_on
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import NEVER, FileEntry, State
from stager.scheduler.states import CopyState

FILES_NAMED_MAX = 20


def with_states(state: State, views: Sequence[wire.NodeView]) -> list[wire.NodeView]:
    """These, with what the Machine knows of each; after them those that it knows and that this scheduler has no link to."""
    named = {view.node for view in views}
    others = [wire.NodeView(node=node.id, connected=False, embedded=False) for node in state.nodes.values() if node.id not in named]
    return [with_state(state.nodes.get(view.node), view) for view in (*views, *others)]


def with_state(node: NodeEntry | None, view: wire.NodeView) -> wire.NodeView:
    if node is None:
        return view.model_copy(update={"state": "refused" if view.excluded else "up" if view.connected else "unknown"})
    facts = {
        "state": state_of(node, view),
        "since": node.since or None,
        "why": node.gone,
        "store_id": view.store_id or node.store_id,
        "capacity_bytes": view.capacity_bytes or node.capacity_bytes,
        "kept_bytes": node.kept_bytes,
    }
    return view.model_copy(update=facts)


def state_of(node: NodeEntry, view: wire.NodeView) -> str:
    if node.gone:
        return "gone"
    if view.excluded:
        return "refused"
    if node.draining:
        return "draining"
    return "up" if view.connected else "away" if node.incarnation else "unknown"


def with_unsafe(state: State, views: Iterable[wire.NodeView]) -> list[wire.NodeView]:
    """Walks all files, once for each node."""
    found = []
    for view in views:
        unsafe = unsafe_on(state, view.node) if view.node in state.nodes else None
        facts = {
            "unsafe_files": 0 if unsafe is None else len(unsafe.files),
            "unsafe_bytes": 0 if unsafe is None else unsafe.size_bytes,
            "unsafe_jobs": 0 if unsafe is None else len(unsafe.attempts),
        }
        found.append(view.model_copy(update=facts))
    return found


@dataclass(frozen=True, slots=True)
class Loss:
    """What goes with a node. `made`: products that no other node has, which are made again; `not_again`: those of them whose job may not
    run twice. `fetched_bytes`: inputs that come from their origins again. `attempts` end, and their jobs run elsewhere.
    """

    made: tuple[FileEntry, ...]
    not_again: tuple[str, ...]
    fetched_bytes: int
    attempts: tuple[str, ...]

    @property
    def made_bytes(self) -> int:
        return sum(file.size_bytes for file in self.made)

    def body(self, node: str, *, forgotten: bool) -> wire.NodeLoss:
        return wire.NodeLoss(
            node=node,
            forgotten=forgotten,
            files=[file.lfn for file in self.made[:FILES_NAMED_MAX]],
            files_total=len(self.made),
            size_bytes=self.made_bytes,
            not_again=list(self.not_again[:FILES_NAMED_MAX]),
            fetched_bytes=self.fetched_bytes,
            jobs_running=len(self.attempts),
        )


def loss_of(state: State, node_id: str) -> Loss:
    """Walks all files."""
    made, not_again, fetched_bytes = [], [], 0
    for file in state.files.values():
        copy = file.copies.get(node_id)
        if copy is None or copy.state is not CopyState.PRESENT or is_elsewhere(state, file, node_id):
            continue
        if file.is_external:
            fetched_bytes += copy.size_bytes if state.next_use(file) != NEVER else 0
        elif is_owed(state, file):
            made.append(file)
            run = state.runs[file.run]
            if run.is_engines or not run.workflow.jobs[file.producer].idempotent:
                not_again.append(file.lfn)
    return Loss(tuple(made), tuple(not_again), fetched_bytes, tuple(attempt for attempt, _ in attempts_on(state, node_id)))


def is_elsewhere(state: State, file: FileEntry, node_id: str) -> bool:
    """Also on a node that drains or is away: those have not lost it."""
    return any(node != node_id and copy.state is CopyState.PRESENT for node, copy in file.copies.items())
