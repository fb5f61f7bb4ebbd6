"""The I/O nodes that a scheduler with these settings has, as plans take them: what each may run, and the room that each has now.

May know: the settings, the adapters. One rule: a node that does not answer is in no plan; jobs run on this machine, so its cores and
memory are divided among the nodes.
"""

from __future__ import annotations

from dataclasses import replace

from stager.model.topology import Node, OriginLink, Topology, embedded
from stager.planning.policy import Limits
from stager.service.settings import Settings


def limits_of(settings: Settings) -> Limits:
    """Of one node."""
    nodes = 1 + len(settings.nodes)
    memory_bytes = settings.memory_bytes // nodes if settings.memory_bytes is not None else None
    return Limits(cores=max(1, settings.cores // nodes), memory_bytes=memory_bytes)


def topology_here(settings: Settings, links: tuple[OriginLink, ...]) -> Topology:
    limits = limits_of(settings)
    here = embedded(settings.capacity_bytes, cores=limits.cores, memory_bytes=limits.memory_bytes, links=links)
    if not settings.nodes:
        return here
    # Most have none, and start sooner without this.
    from stager.adapters.node_remote import capacity_of

    known = [(place.node_id, capacity_of(place)) for place in settings.nodes]
    beside = [Node(node, capacity, limits.cores, limits.memory_bytes) for node, capacity in known if capacity is not None]
    return replace(here, nodes=(*here.nodes, *beside))
