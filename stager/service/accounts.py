"""The costs of runs so far, and their doings in time, from the journal.

May know: the Machine's state (read only), the journal, comparison.py's formulas. One rule: the journal is read on a thread of its own, and
for one run at most a tenth of the time, whoever asks.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stager import rest, wire
from stager.model.errors import Refused
from stager.model.prices import PriceTable, prices_for
from stager.model.workflow import Workflow
from stager.planning.plan import Plan
from stager.ports import Batch
from stager.readers.prices import packaged_prices
from stager.scheduler.states import RunState
from stager.service.choices import Question
from stager.service.comparison import actual_run, cluster_of
from stager.service.counters import Counters
from stager.service.history import history_of
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.views import run_summary

RUNS_KEPT = 64
REST_S = 2.0
NAMES = {"compute": "compute nodes", "io_nodes": "I/O nodes"}
T = TypeVar("T")


@dataclass(slots=True)
class Kept:
    """`until` None: for ever, of a run that ended at `of`."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    value: Any = None
    of: float = -1.0
    until: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Known:
    """Of one moment. `summary` is as if the run ended now, where it has not."""

    workflow: Workflow
    plan: Plan
    summary: wire.RunSummary
    over: bool
    finished_at: float


class Accounts:
    """On the event loop's thread. `read`: the journal's batches so far, from any thread."""

    def __init__(
        self, inquiry: Inquiry, runs: KnownRuns, counters: Counters, read: Callable[[], Iterable[Batch]], clock: Callable[[], float]
    ) -> None:
        self.inquiry, self.runs, self.counters, self.read, self.clock = inquiry, runs, counters, read, clock
        self.prices = packaged_prices()
        self.kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()

    async def cost(self, run: str) -> rest.RunCost:
        known = await self.inquiry.ask(lambda: self._known(run))
        found: rest.RunCost = await self._at_times("cost", run, known, lambda: asyncio.to_thread(self._cost, run, known))
        return found

    async def history(self, run: str) -> wire.RunHistory:
        """Raises Refused for a run that has not finished."""
        known = await self.inquiry.ask(lambda: self._known(run))
        if not known.over:
            text = f"run {run} has not finished yet; GET its events until it has"
            raise Refused(text, code="run_active", subject=run)
        found: wire.RunHistory = await self._at_times("history", run, known, lambda: asyncio.to_thread(self._history, run))
        return found

    def _known(self, run: str) -> Known:
        state, entry = self.runs.state, self.runs.known(run)
        over = entry.state is RunState.FINISHED
        summary = run_summary(state, entry, self.counters)
        if not over:
            summary = summary.model_copy(update={"wall_s": max(0.0, self.clock() - entry.submitted_at)})
        return Known(entry.workflow, entry.plan, summary, over, entry.finished_at if over else -1.0)

    async def _at_times(self, what: str, run: str, known: Known, make: Callable[[], Awaitable[Any]]) -> Any:
        kept = self.kept.setdefault((what, run), Kept())
        self.kept.move_to_end((what, run))
        if len(self.kept) > RUNS_KEPT:
            self.kept.popitem(last=False)
        async with kept.lock:
            if kept.value is None or kept.of != known.finished_at or (kept.until is not None and time.monotonic() >= kept.until):
                begun = time.monotonic()
                kept.value, kept.of = await make(), known.finished_at
                ended = time.monotonic()
                kept.until = None if known.over else ended + max(REST_S, 10 * (ended - begun))
            return kept.value

    def _history(self, run: str) -> wire.RunHistory:
        return history_of(self.read(), run)

    def _cost(self, run: str, known: Known) -> rest.RunCost:
        history = history_of(self.read(), run, rivals=False)
        return cost_of(run, known, history, self.prices)


def cost_of(run: str, known: Known, history: wire.RunHistory, table: PriceTable) -> rest.RunCost:
    cluster = cluster_of(history, None, known.plan)
    paid = prices_for(table, cluster.compute.instance, cluster.io.instance, cluster.region)
    bill = actual_run(Question(known.workflow, cluster, paid), known.summary, history).bill
    return rest.RunCost(
        run=run,
        final=known.over,
        currency=table.currency,
        prices_date=table.date,
        instance=cluster.compute.instance,
        nodes=cluster.compute.nodes,
        wall_s=max(0.0, known.summary.wall_s - known.summary.interrupted_s),
        lines=[rest.CostLine(name=NAMES.get(name, name), amount=amount) for name, amount in bill.lines()],
        total=bill.total,
        missing=list(paid.missing),
    )
