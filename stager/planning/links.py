"""The ways to its origins as a plan took them to be: kept in it, so that a report can estimate with what was known when it was made.

May know: the model and the plan. One rule: each number says what it rests on.
"""

from __future__ import annotations

from collections.abc import Iterable

from stager.model.topology import OriginLink, Topology
from stager.model.workflow import Origin
from stager.planning.plan import Basis, LinkPlan


def link_plans(origins: Iterable[str], topology: Topology) -> tuple[LinkPlan, ...]:
    """`topology` with declared bandwidths as bounds."""
    return tuple(link_plan(topology.link(origin)) for origin in sorted(origins))


def link_plan(link: OriginLink) -> LinkPlan:
    # A bound holds for both directions, so where there is one the faster of them is it.
    bound = max(link.fetch_bytes_per_s, link.upload_bytes_per_s) if link.bounded else None

    def basis(measured: bool, rate: float | None = None) -> Basis:
        if link.said or (rate is not None and rate == bound):
            return Basis.DECLARED
        return Basis.MEASURED if measured else Basis.DEFAULT

    return LinkPlan(
        origin=link.origin,
        fetch_bytes_per_s=link.fetch_bytes_per_s,
        fetch_basis=basis(link.measured, link.fetch_bytes_per_s),
        upload_bytes_per_s=link.upload_bytes_per_s,
        upload_basis=basis(link.upload_measured, link.upload_bytes_per_s),
        latency_s=link.latency_s,
        latency_basis=basis(link.latency_measured),
        upload_latency_s=link.upload_latency_s,
        node_fetch_bytes_per_s=link.node_fetch_bytes_per_s,
        node_upload_bytes_per_s=link.node_upload_bytes_per_s,
        fetch_file_s=link.fetch_file_s,
        fetch_file_basis=basis(link.fetch_file_measured),
        upload_file_s=link.upload_file_s,
        upload_file_basis=basis(link.upload_file_measured),
        login_s=link.login_s,
        dispatch_s=link.dispatch_s,
        reads_back=link.reads_back,
    )


def link_of(planned: LinkPlan) -> OriginLink:
    return OriginLink(
        origin=planned.origin,
        fetch_bytes_per_s=planned.fetch_bytes_per_s,
        upload_bytes_per_s=planned.upload_bytes_per_s,
        latency_s=planned.latency_s,
        measured=planned.fetch_basis is Basis.MEASURED,
        upload_latency_s=planned.upload_latency_s,
        node_fetch_bytes_per_s=planned.node_fetch_bytes_per_s,
        node_upload_bytes_per_s=planned.node_upload_bytes_per_s,
        upload_measured=planned.upload_basis is Basis.MEASURED,
        latency_measured=planned.latency_basis is Basis.MEASURED,
        fetch_file_s=planned.fetch_file_s,
        upload_file_s=planned.upload_file_s,
        fetch_file_measured=planned.fetch_file_basis is Basis.MEASURED,
        upload_file_measured=planned.upload_file_basis is Basis.MEASURED,
        login_s=planned.login_s,
        dispatch_s=planned.dispatch_s,
        reads_back=planned.reads_back,
    )


def is_read_back(origin: Origin, link: OriginLink) -> bool:
    """Whether what is written there crosses the WAN once more, to be verified: as declared, or as was seen."""
    return origin.is_read_back or link.reads_back


def comes_behind(origin: Origin, link: OriginLink, size_bytes: float) -> bool:
    """Whether a file of this size that is read back takes no time of its own for it, since it comes while it is written. A declared
    bandwidth is that of both ways together.
    """
    return origin.reads_behind(size_bytes) and not link.bounded
