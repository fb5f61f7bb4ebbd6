"""Money: what a run used times what it costs. Node hours, requests, egress, storage; and which of several choices are worth a look.

May know: the model. One rule: each line of a bill is one small formula here, of the units in its arguments' names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import ceil

from stager.model.prices import GB_BYTES, MONTH_S, ClusterPrices, InstancePrice, Tier


def node_hours(nodes: int, wall_s: float) -> float:
    """All nodes stand as long as the run lasts (S0: the cost of a transfer is its time times all nodes)."""
    return nodes * wall_s / 3600


def billed_s(wall_s: float, every_s: float, at_least_s: float) -> float:
    """The part of a node's time that a provider bills: whole steps, and not less than the least."""
    steps = ceil(round(wall_s / every_s, 9)) if every_s > 0 else wall_s
    return max(at_least_s, steps * every_s if every_s > 0 else wall_s)


def node_money(nodes: int, wall_s: float, price: InstancePrice) -> float:
    """S0: data / throughput * price per node * nodes, where data / throughput is the time the nodes stand."""
    if not nodes:
        return 0.0
    return node_hours(nodes, billed_s(wall_s, price.billed_every_s, price.billed_at_least_s)) * price.per_hour


def request_money(reads: int, writes: int, reads_per_1000: float, writes_per_1000: float) -> float:
    return (reads * reads_per_1000 + writes * writes_per_1000) / 1000


def egress_money(size_bytes: int, tiers: Sequence[Tier], earlier_bytes: int = 0) -> float:
    """Each byte at the price of the tier it falls into, after `earlier_bytes` of the same month."""
    money, begin, end = 0.0, earlier_bytes, earlier_bytes + size_bytes
    floor = 0
    for tier in tiers:
        ceiling = end if tier.up_to_bytes is None else tier.up_to_bytes
        money += max(0, min(end, ceiling) - max(begin, floor)) / GB_BYTES * tier.per_gb
        floor = ceiling
    return money


def storage_money(size_bytes: float, wall_s: float, per_gb_month: float) -> float:
    """Bytes kept as long as the run lasts."""
    return size_bytes / GB_BYTES * wall_s / MONTH_S * per_gb_month


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a run. `egress_bytes` left the cloud; `volume_bytes` (caches) and `object_bytes` (intermediates in a bucket) were kept
    for all of the time; reads and writes are requests to buckets.
    """

    wall_s: float
    compute_nodes: int
    io_nodes: int
    reads: int = 0
    writes: int = 0
    egress_bytes: int = 0
    volume_bytes: int = 0
    object_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Bill:
    """Where the money goes."""

    compute: float
    io_nodes: float
    requests: float
    egress: float
    storage: float

    @property
    def total(self) -> float:
        return self.compute + self.io_nodes + self.requests + self.egress + self.storage

    def lines(self) -> list[tuple[str, float]]:
        return [(entry.name, getattr(self, entry.name)) for entry in fields(self)]


def bill_of(usage: Usage, prices: ClusterPrices, egress_earlier_bytes: int = 0) -> Bill:
    """An I/O node whose disk is in its price pays for no volume."""
    kept = 0.0 if prices.io.own_disk else storage_money(usage.volume_bytes, usage.wall_s, prices.volumes_per_gb_month)
    asked = prices.requests
    return Bill(
        compute=node_money(usage.compute_nodes, usage.wall_s, prices.compute),
        io_nodes=node_money(usage.io_nodes, usage.wall_s, prices.io),
        requests=request_money(usage.reads, usage.writes, asked.reads_per_1000, asked.writes_per_1000) if asked is not None else 0.0,
        egress=egress_money(usage.egress_bytes, prices.egress, egress_earlier_bytes),
        storage=kept + storage_money(usage.object_bytes, usage.wall_s, prices.objects_per_gb_month),
    )


def on_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """The Pareto front of (time, money): those that no other beats in one without losing in the other."""
    return [not any(beats(other, point) for other in points) for point in points]


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1] and one != other
