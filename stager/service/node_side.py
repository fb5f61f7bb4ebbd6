"""All that has to do with nodes and with attempts on this machine, composed: the embedded node's process, the links, executors, the world.

May know: the adapters, the runtime. One rule: it only puts together; nothing is in contact with anybody yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from stager.adapters.binary import find_ionode
from stager.adapters.executor_engine import EngineExecutor, Executors
from stager.adapters.executor_local import LocalExecutor
from stager.adapters.kept_key import kept_key
from stager.adapters.node_place import EMBEDDED_NODE
from stager.adapters.node_process import Listen, NodeProcess, NodeSettings, Scrub, Storage
from stager.adapters.own_address import own_address
from stager.adapters.storage_keys import KeyIssuer
from stager.model.errors import InvalidInput, StagerError
from stager.runtime.allowances import Allowances
from stager.runtime.attempt_nodes import AttemptNodes
from stager.runtime.live_world import LiveWorld
from stager.runtime.node_link import NodeLink, NodeSource
from stager.runtime.peering import Peering
from stager.runtime.store_owners import StoreOwners
from stager.service.continuation import Continuation
from stager.service.machine_side import MachineSide
from stager.service.node_view import NodeWatch
from stager.service.objects import Objects
from stager.service.settings import Settings
from stager.service.state_dir import StateDir
from stager.service.surroundings import DiskPromises, Surroundings
from stager.tasks import Tasks
from stager.worker import KeptSandboxes, Worker
from stager.worker.reaper import CGROUP

if TYPE_CHECKING:
    from stager.adapters.executor_dask import DaskExecutor
    from stager.adapters.gateway_pool import GatewayPool

log = logging.getLogger(__name__)
NODE_ID = EMBEDDED_NODE
# What ids of origins at nodes are made with: a scheduler that comes later finds those of the one before.
ORIGIN_KEY = "origin-key"
# Any free port, for nodes on this machine alone: what goes over it is not encrypted.
PEERS_LISTEN = Listen("127.0.0.1:0")


@dataclass(frozen=True, slots=True)
class NodeSide:
    """`process`: the embedded node's; `links` are to all. `objects` None: it keeps none for tenants. `link_to`: a link to one node more.
    `gateways`: to the pools of tenants that were spoken of.
    """

    process: NodeProcess
    objects: Objects | None
    links: Mapping[str, NodeLink]
    view: NodeWatch
    executors: Executors
    continuation: Continuation
    kept_sandboxes: KeptSandboxes
    worker: Worker
    world: LiveWorld
    link_to: Callable[[NodeSource], NodeLink]
    gateways: Mapping[str, GatewayPool]
    peering: Peering

    def hears_hosts(self, tenant: str) -> bool:
        """Where the pool itself does not answer, nobody knows of its hosts."""
        pool = self.executors.pool_of(tenant)
        return pool is not None and pool.answers


def embedded(settings: Settings, state_dir: StateDir, epoch: int, listen: Listen | None) -> tuple[NodeProcess, Objects | None]:
    """`listen`: other nodes are to reach it there."""
    # First: where it is missing, nothing is left behind.
    program = find_ionode(settings.environ)
    wanted = settings.storage
    issuer = KeyIssuer(state_dir.storage_key) if wanted is not None else None
    storage = None
    if wanted is not None and issuer is not None:
        storage = Storage(wanted.listen, wanted.size_bytes, issuer.path, wanted.trust_network)
    scrub = Scrub(settings.scrub_bytes_per_s, settings.scrub_every_s)
    places = (state_dir.node_store, state_dir.node_log)
    process = NodeProcess(NodeSettings(program, NODE_ID, *places, settings.capacity_bytes, settings.umask, scrub, storage, listen), epoch)
    objects = Objects(issuer, process, wanted.url) if wanted is not None and issuer is not None else None
    return process, objects


def node_side(settings: Settings, state_dir: StateDir, machine: MachineSide, tasks: Tasks, beside: Sequence[NodeSource]) -> NodeSide:
    """The links tell the world what they fail by, the world tells the executors, and these ask the links. `beside`: nodes that are not
    started here.
    """
    past, inbox, clock, pulse = machine.past, machine.inbox, machine.clock, machine.pulse
    outstanding = past.outstanding
    has_peers = bool(beside) or settings.cluster_listen is not None
    if has_peers:
        machine.book.key = kept_key(state_dir.root / ORIGIN_KEY)
    process, objects = embedded(settings, state_dir, past.epoch, listen_for(settings, state_dir) if has_peers else None)
    links: dict[str, NodeLink] = {}
    allowances = Allowances(time.monotonic, predecessor=past.epoch > 1)
    peering, stores = Peering(), StoreOwners({node.id: node.store_id for node in machine.runs.state.nodes.values()})
    if state_dir.nodes.is_dir():
        from stager.adapters.registry_file import FileRegistry

        peering.forget(FileRegistry(state_dir.nodes).forgotten())
    port = AttemptNodes(outstanding, links)
    worker = Worker(
        state_dir.root,
        port,
        binary=process.settings.program,
        inherited={},
        epoch=past.epoch,
        cgroup=settings.environ.get(CGROUP, ""),
        keep=settings.keep,
    )
    kept_sandboxes = KeptSandboxes(state_dir.root, settings.keep_failed_bytes)
    kept_sandboxes.load()
    storage_bytes = settings.storage.size_bytes if settings.storage is not None else 0
    promises = DiskPromises(machine.inquiry, machine.runs, process.node_id, storage_bytes)
    around = Surroundings(outstanding, machine.book, machine.tenancy.of_run, links, promises, pulse, clock)
    local = LocalExecutor(worker, inbox.put, around, kept_sandboxes)
    on_hosts = host_executor(settings, state_dir, machine, around) if settings.pool else None
    gateways: dict[str, GatewayPool] = {}
    make = partial(tenant_executor, state_dir, machine, around, gateways)
    executors = Executors(local, EngineExecutor(worker, inbox.put, around, pulse.beat), around, on_hosts, make)
    continuation = Continuation(outstanding, executors, inbox, tasks, machine.lifetime, pulse, {process.node_id})
    world = LiveWorld(machine.stores.journal, inbox, outstanding, asyncio.get_running_loop(), continuation.carried_out)

    def link_to(source: NodeSource) -> NodeLink:
        if source.node_id in links:
            raise InvalidInput(f"two I/O nodes are named {source.node_id!r}; name each differently", subject=source.node_id)
        # Where the embedded node refuses, nothing goes on: another scheduler rules it. Another node is done without.
        refused = world.fatal if source is process else partial(left_out, source.node_id)
        book = machine.book
        links[source.node_id] = NodeLink(source, inbox.put, outstanding, book, world.fatal, refused, clock, peering, stores, allowances)
        return links[source.node_id]

    for source in (process, *beside):
        link_to(source)
    view = NodeWatch(links, process.node_id, executors, outstanding, machine.tenancy.of_run)
    return NodeSide(process, objects, links, view, executors, continuation, kept_sandboxes, worker, world, link_to, gateways, peering)


def listen_for(settings: Settings, state_dir: StateDir) -> Listen:
    """Where the nodes that are named can reach the embedded one: at the address from which this machine reaches them."""
    far = [place.host_and_port for place in settings.nodes if place.by_tls]
    if not far and settings.cluster_listen is None:
        return PEERS_LISTEN
    tls_dir = state_dir.node_tls
    if not (tls_dir / "cert.pem").exists():
        text = f"the embedded node has no certificate in {tls_dir}, so the nodes of other hosts cannot copy from it"
        raise InvalidInput(
            f"{text}; `stager cluster certify node/{NODE_ID} --out {tls_dir}` makes it", code="no_certificate", subject="nodes"
        )
    addresses = [own for place in far if (own := own_address(*place)) is not None]
    beyond = [own for own in addresses if not own.startswith("127.") and own != "::1"]
    if settings.cluster_listen is not None:
        beyond = [settings.cluster_listen[0]]
    own = next(iter([*beyond, *addresses]), "127.0.0.1")
    return Listen(f"[{own}]:0" if ":" in own else f"{own}:0", tls_dir=tls_dir)


def host_executor(settings: Settings, state_dir: StateDir, machine: MachineSide, around: Surroundings) -> DaskExecutor:
    """Of a pool. Most schedulers have none, and start sooner without this."""
    from stager.adapters.attempt_tickets import AttemptTickets
    from stager.adapters.briefs import Briefs
    from stager.adapters.cluster_tls import CA
    from stager.adapters.dask_pool import DaskPool, need_distributed
    from stager.adapters.executor_dask import DaskExecutor
    from stager.adapters.host_agent import OWNER, identity_of
    from stager.adapters.host_workers import HostPlaces, HostWorkers

    need_distributed()
    put = machine.inbox.put
    state_dir.hosts.mkdir(mode=0o700, exist_ok=True)
    pool = DaskPool(settings.pool, put, state_dir.tls if settings.pool.startswith("tls:") else None, identity_of(state_dir.hosts, OWNER))
    places = HostPlaces(state_dir.hosts / "given", state_dir.logs)
    epoch = machine.past.epoch
    tickets = AttemptTickets(around.door, state_dir.tls / CA, epoch)
    workers = HostWorkers(pool, Briefs(state_dir.hosts / "briefs.sock"), places, tickets, epoch)
    return DaskExecutor(workers, put, around)


def tenant_executor(
    state_dir: StateDir, machine: MachineSide, around: Surroundings, gateways: dict[str, GatewayPool], tenant: str
) -> DaskExecutor:
    """Of a tenant's pool, which `service.tenant_pools` says the address of. Most schedulers have none, and start sooner without this."""
    from stager.adapters.attempt_tickets import AttemptTickets
    from stager.adapters.cluster_tls import CA, ClusterTls
    from stager.adapters.executor_dask import DaskExecutor
    from stager.adapters.gateway_pool import GatewayPool
    from stager.adapters.host_workers import HostPlaces
    from stager.adapters.tenant_workers import TenantWorkers

    state_dir.hosts.mkdir(mode=0o700, exist_ok=True)
    put, epoch = machine.inbox.put, machine.past.epoch
    pool = gateways[tenant] = GatewayPool(tenant, put, ClusterTls(state_dir.tls), around.links.__contains__)
    tickets = AttemptTickets(around.door, state_dir.tls / CA, epoch)
    workers = TenantWorkers(pool, HostPlaces(state_dir.hosts / "given", state_dir.logs), tickets, epoch)
    return DaskExecutor(workers, put, around)


def left_out(node: str, problem: StagerError) -> None:
    log.error("node %s refuses this scheduler, which goes on without it until it is started again: %s", node, problem.message)
