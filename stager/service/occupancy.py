"""The occupancy of the nodes: pinned, dirty, clean, reserved. One rule: the scheduler's own state, so that what it calls free is free."""

from __future__ import annotations

from collections import Counter

from stager import rest
from stager.scheduler.state import State
from stager.scheduler.states import CopyState
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.rates import Totals

# In the place of a run's name, which begins with no slash.
OF_NODES = "/nodes"


class NodeOccupancy:
    """On the event loop's thread. It walks over all files, so it is worked out at most so often, whoever asks for it."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, totals: Totals) -> None:
        self.inquiry, self.runs, self.totals = inquiry, runs, totals

    async def now(self) -> dict[str, rest.Occupancy]:
        return await self.inquiry.ask(lambda: self.totals.of(OF_NODES, lambda: occupancy_of(self.runs.state)))


def occupancy_of(state: State) -> dict[str, rest.Occupancy]:
    """A copy that is deleted, or is a part of a file in stripes, is there and clean."""
    pinned: Counter[str] = Counter()
    dirty: Counter[str] = Counter()
    for file in state.files.values():
        for node_id, copy in file.copies.items():
            if copy.state is not CopyState.PRESENT:
                continue
            if copy.pins:
                pinned[node_id] += copy.size_bytes
            elif state.holds_only_copy(file):
                dirty[node_id] += copy.size_bytes
    return {
        node.id: rest.Occupancy(
            capacity_bytes=node.capacity_bytes,
            pinned_bytes=pinned[node.id],
            dirty_bytes=dirty[node.id],
            clean_bytes=node.present_bytes - pinned[node.id] - dirty[node.id],
            reserved_bytes=node.fetching_bytes + node.promised_bytes,
            free_bytes=node.free_bytes,
        )
        for node in state.nodes.values()
    }
