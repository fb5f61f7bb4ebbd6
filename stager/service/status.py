"""How far a run is: its status, with what the node says of its transfers. One rule: asking changes nothing; what a node says late or not
at all changes nothing but the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stager import wire
from stager.adapters.run_records import RunRecords
from stager.model.errors import Fault
from stager.scheduler.states import RunState
from stager.service.giving_up import Patience
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.node_states import with_states
from stager.service.node_view import NodeWatch
from stager.service.rates import Rates, Totals, under_way
from stager.service.views import problems_of, run_info, run_status, run_sums, transfers_of
from stager.service.waiting import waiting_of


class StatusQueries:
    """On the event loop's thread."""

    def __init__(
        self,
        inquiry: Inquiry,
        runs: KnownRuns,
        records: RunRecords,
        node_view: NodeWatch,
        rates: Rates,
        totals: Totals,
        clock: Callable[[], float],
        patience: Patience,
        unrecorded: Mapping[str, Fault],
    ) -> None:
        self.inquiry, self.runs, self.records, self.node_view = inquiry, runs, records, node_view
        self.rates, self.totals, self.clock, self.patience = rates, totals, clock, patience
        self.unrecorded = unrecorded

    async def status(self, run: str) -> wire.RunStatus:
        telemetry, nodes, troubles = await self.node_view.telemetry(), await self.node_view.nodes(), self.node_view.troubles(run)
        # A node asks the origin before it counts what an earlier try left.
        moving = {transfer for transfer, said in telemetry.items() if said.state == "running" and said.bytes_done}

        def read() -> wire.RunStatus:
            if self.runs.is_folded(run):
                return self.runs.archive.status(run)
            entry, state = self.runs.known(run), self.runs.state
            record = self.records.get(run)
            assert record is not None
            mine = [transfer for transfer in state.transfers.values() if transfer.run == run]
            fetching = under_way(telemetry, (transfer.id for transfer in mine if transfer.is_fetch))
            uploading = under_way(telemetry, (transfer.id for transfer in mine if not transfer.is_fetch))
            moved = self.rates.sample(run, entry.fetched_bytes + fetching, entry.uploaded_bytes + uploading)
            sums = run_sums(state, entry) if entry.state is RunState.FINISHED else self.totals.of(run, lambda: run_sums(state, entry))
            now, unrecorded = self.clock(), [self.unrecorded[run]] if run in self.unrecorded else []
            problems, waiting = problems_of(state, entry, [*troubles, *unrecorded]), waiting_of(state, entry, now, moving, self.patience)
            seen = with_states(state, nodes)
            return run_status(state, entry, run_info(record, entry, now), sums, moved, telemetry, problems, seen, waiting)

        return await self.inquiry.ask(read)

    async def transfers(self, run: str) -> list[wire.TransferView]:
        telemetry = await self.node_view.telemetry()

        def read() -> list[wire.TransferView]:
            return [] if self.runs.is_folded(run) else transfers_of(self.runs.state, self.runs.known(run), telemetry)

        return await self.inquiry.ask(read)
