"""The I/O nodes that a scheduler with these settings has, as plans take them: what each may run, and the room that each has now.

May know: the settings, the adapters. One rule: a node that does not answer is in no plan; jobs run on this machine, so its cores and
memory are divided among the nodes that share its files. A node that is spoken to by TLS shares none, and stores only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from stager.adapters.node_place import EMBEDDED_NODE, NodePlace, require_alike
from stager.model.tenants import tenant_of_host
from stager.model.topology import HERE, Host, Node, OriginLink, Topology, embedded
from stager.planning.policy import Limits
from stager.scheduler import events as ev
from stager.service.host_book import book_of, read_hosts
from stager.service.settings import Settings
from stager.service.state_dir import StateDir


def machine_limits(settings: Settings) -> Limits:
    """As the Machine takes them: with a pool jobs run on its hosts, and none here before the first is there."""
    return replace(limits_of(settings), cores=0) if settings.pool else limits_of(settings)


def limits_of(settings: Settings) -> Limits:
    """Of one node."""
    nodes = 1 + sum(not place.by_tls for place in settings.nodes)
    memory_bytes = settings.memory_bytes // nodes if settings.memory_bytes is not None else None
    return Limits(cores=max(1, settings.cores // nodes), memory_bytes=memory_bytes)


def topology_here(settings: Settings, links: tuple[OriginLink, ...]) -> Topology:
    settings = with_joined(settings)
    limits = limits_of(settings)
    hosts = read_hosts(book_of(StateDir(settings.state_dir).hosts, settings.hosts_of)) if settings.pool else {}
    if any(hosts.values()):
        return with_hosts(settings, links, hosts)
    here = embedded(settings.capacity_bytes, cores=limits.cores, memory_bytes=limits.memory_bytes, links=links)
    beside = [Node(node, capacity, limits.cores, limits.memory_bytes) for node, capacity in capacities_beside(settings)]
    if has_stores(settings):
        (own,) = here.nodes
        here = replace(here, nodes=(replace(own, hosts=(Host(HERE, limits.cores, limits.memory_bytes),)),))
    return replace(here, nodes=(*here.nodes, *beside))


def with_hosts(settings: Settings, links: tuple[OriginLink, ...], hosts: Mapping[str, tuple[Host, ...]]) -> Topology:
    """Those that the scheduler heard of last. A node without hosts stores only."""
    capacities = [(EMBEDDED_NODE, settings.capacity_bytes), *capacities_beside(settings)]
    return Topology(tuple(Node(node, capacity, hosts=hosts.get(node, ())) for node, capacity in capacities), links)


def capacities_beside(settings: Settings) -> list[tuple[str, int]]:
    """Of the named nodes that answer now."""
    if not settings.nodes:
        return []
    # Most have none, and start sooner without this.
    from stager.adapters.node_remote import capacity_of

    tls_dir = StateDir(settings.state_dir).tls
    known = [(place.node_id, capacity_of(place, tls_dir)) for place in settings.nodes]
    return [(node, capacity) for node, capacity in known if capacity is not None]


def with_joined(settings: Settings) -> Settings:
    """With the nodes that have joined the cluster, as they are in the registry now. What a node says of itself counts."""
    registry = StateDir(settings.state_dir).nodes
    if not registry.is_dir():
        return settings
    from stager.adapters.registry_file import FileRegistry

    joined = {name: NodePlace(name, entry.at.address, None) for name, entry in FileRegistry(registry).nodes().items() if entry.at}
    places = {place.node_id: place for place in settings.nodes} | joined
    require_alike(places.values())
    return replace(settings, nodes=tuple(places[name] for name in sorted(places)))


def has_stores(settings: Settings) -> bool:
    """Nodes that have no part of this machine's files, so that no job can run beside them."""
    return any(place.by_tls for place in settings.nodes)


def this_host(settings: Settings) -> ev.HostReported:
    """What the Machine has to hear where there are such nodes: that jobs run here, beside the embedded node, and nowhere else."""
    limits = limits_of(settings)
    return ev.HostReported(at=0.0, cause="start", host=HERE, node=EMBEDDED_NODE, cores=limits.cores, memory_bytes=limits.memory_bytes)


def gone_with_pool(hosts: Iterable[str]) -> list[ev.HostGone]:
    """Of a scheduler that had a pool and has none now: what was begun there is given up, and begins again here."""
    why = "the scheduler was started without its pool"
    return [ev.HostGone(at=0.0, cause="start", host=host, why=why) for host in hosts if host != HERE and not tenant_of_host(host)]


def gone_from_here() -> ev.HostGone:
    """What was begun here goes on to its end."""
    return ev.HostGone(at=0.0, cause="start", host=HERE, why="jobs run on the hosts of a pool now")
