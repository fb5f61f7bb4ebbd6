"""The origins that a node may ask: all of them, but for directories beside a workflow, which only nodes on the scheduler's host reach.

May know: the state. One rule: a node on another host is never asked about such a directory, whatever lies at its path there.
"""

from __future__ import annotations

from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import State


def is_beside_workflow(state: State, run: str, origin: str) -> bool:
    found = state.runs[run].workflow.origins.get(origin)
    return found is not None and found.beside_workflow


def reaches(state: State, node: NodeEntry, run: str, origin: str) -> bool:
    """Whether this node may ask that origin of this run itself."""
    return not node.apart or not is_beside_workflow(state, run, origin)
