"""How the scheduler is: whether it takes runs, what it is busy with, its nodes. One rule: it answers as long as the scheduler lives."""

from __future__ import annotations

import os
from pathlib import Path

from stager import __version__, wire
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.lifetime import Lifetime
from stager.service.node_states import with_states
from stager.service.node_view import NodeWatch


class Health:
    """On the event loop's thread. `root`: of the state directory."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, lifetime: Lifetime, node_view: NodeWatch, root: Path, epoch: int) -> None:
        self.inquiry, self.runs, self.lifetime, self.node_view = inquiry, runs, lifetime, node_view
        self.root, self.epoch = root, epoch

    async def now(self) -> wire.Health:
        state = self.runs.state
        views = await self.node_view.nodes()
        active, stale, nodes = await self.inquiry.ask(lambda: (list(state.active), state.stale, with_states(state, views)))
        return wire.Health(
            api=wire.API_VERSION,
            version=__version__,
            pid=os.getpid(),
            state_dir=str(self.root),
            ready=self.lifetime.ready.is_set() and not self.lifetime.ending,
            epoch=self.epoch,
            started_at=self.lifetime.started_at,
            active_runs=active,
            nodes=nodes,
            stale={"events": stale},
        )
