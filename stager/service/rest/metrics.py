"""The figures of /metrics: runs, jobs, bytes by how safe they are, the node, and the calls of the API.

May know: prometheus_client, the Machine's state (read only). One rule: labels are of a few known words each; no name of a run, a file or
a tenant becomes one.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Iterable
from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stager import wire
from stager.adapters.run_records import RunRecords
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.node_view import NodeWatch
from stager.service.rates import Totals
from stager.service.rest.limits import Waits
from stager.service.views import run_sums
from stager.service.waiting_quotas import QUOTAS, quotas_waited_for

SECONDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class Figures:
    def __init__(self, inquiry: Inquiry, runs: KnownRuns, records: RunRecords, totals: Totals, node_view: NodeWatch, waits: Waits) -> None:
        self.inquiry, self.runs, self.records, self.totals = inquiry, runs, records, totals
        self.node_view, self.waits = node_view, waits
        self.registry = CollectorRegistry()
        names = ("method", "route", "status")
        self.requests = Counter("stager_rest_requests", "Calls of the REST API.", names, registry=self.registry)
        self.seconds = Histogram(
            "stager_rest_request_seconds", "Until their answers began.", ("route",), buckets=SECONDS, registry=self.registry
        )
        self.media_type = CONTENT_TYPE_LATEST

    async def text(self) -> bytes:
        states, sums, waiting = await self.inquiry.ask(self._read)
        now = Now([*self._runs(states, sums), quota_figures(waiting), *node_figures(await self.node_view.nodes())])
        at_once = CollectorRegistry()
        at_once.register(now)
        return generate_latest(self.registry) + generate_latest(at_once)

    def _read(self) -> tuple[dict[str, int], list[tuple[dict[str, int], wire.LedgerTotals]], Counts[str]]:
        """On the driving thread. The sums of a run are worked out at most so often, whoever asks for them."""
        state = self.runs.state
        states = self.records.ended() | {"active": len(state.active)}
        active = [state.runs[run] for run in state.active]
        sums = [self.totals.of(run.id, partial(run_sums, state, run)) for run in active]
        waiting = {(run.tenant, view.code) for run in active for view in quotas_waited_for(state, run)}
        return states, [(each.jobs, each.ledger) for each in sums], Counts(code for _, code in waiting)

    def _runs(self, states: dict[str, int], sums: list[tuple[dict[str, int], wire.LedgerTotals]]) -> Iterable[Metric]:
        runs = GaugeMetricFamily("stager_runs", "Runs by state.", labels=["state"])
        for state, count in sorted(states.items()):
            runs.add_metric([state], count)
        yield runs
        jobs: Counts[str] = Counts()
        for each, _ in sums:
            jobs.update(each)
        family = GaugeMetricFamily("stager_jobs", "Jobs of active runs by state.", labels=["state"])
        for state, count in sorted(jobs.items()):
            family.add_metric([state], count)
        yield family
        ledger = GaugeMetricFamily("stager_ledger_bytes", "Produced bytes of active runs by how safe they are.", labels=["state"])
        for state in wire.LedgerTotals.model_fields:
            ledger.add_metric([state], sum(getattr(totals, state).size_bytes for _, totals in sums))
        yield ledger
        yield GaugeMetricFamily("stager_rest_open_waits", "Long polls and streams that are open.", value=sum(self.waits.open.values()))


class Now:
    """The figures for one answer, as prometheus_client wants them."""

    def __init__(self, families: list[Metric]) -> None:
        self.families = families

    def collect(self) -> Iterable[Metric]:
        return self.families


def quota_figures(waiting: Counts[str]) -> Metric:
    family = GaugeMetricFamily("stager_tenants_waiting", "Tenants with jobs that wait for a quota of theirs.", labels=["quota"])
    for code in QUOTAS:
        family.add_metric([code.removeprefix("quota_")], waiting[code])
    return family


def node_figures(nodes: list[wire.NodeView]) -> Iterable[Metric]:
    for name, about, value in (
        ("stager_node_connected", "1: it answers.", lambda node: int(node.connected)),
        ("stager_node_capacity_bytes", "Bytes that the node may hold.", lambda node: node.capacity_bytes),
        ("stager_node_used_bytes", "Bytes that the node holds.", lambda node: node.used_bytes),
        ("stager_node_reserved_bytes", "Bytes that are set aside on the node.", lambda node: node.reserved_bytes),
    ):
        family = GaugeMetricFamily(name, about, labels=["node"])
        for node in nodes:
            family.add_metric([node.node], value(node))
        yield family


class Counted:
    """Counts calls by route, never by path."""

    def __init__(self, app: ASGIApp, figures: Figures) -> None:
        self.app, self.figures = app, figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
                self.figures.requests.labels(method, route, str(message["status"])).inc()
                self.figures.seconds.labels(route).observe(time.monotonic() - begun)
            await send(message)

        await self.app(scope, receive, counted if scope["type"] == "http" else send)
