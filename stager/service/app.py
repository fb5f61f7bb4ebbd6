"""The composition root: from a replayed journal to an open scheduler, and its end.

May know: everything below. One rule: it composes, opens and closes; what a scheduler does is done by the services that it composes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from stager import __version__
from stager.adapters.node_remote import NodeRemote
from stager.model.errors import StagerError
from stager.model.tenants import Tenants
from stager.model.topology import HERE
from stager.planning.policy import Policy
from stager.runtime.clock import SteadyClock
from stager.runtime.node_link import NodeSource
from stager.scheduler import events as ev
from stager.scheduler.state import State
from stager.service.driving import Driving, Heard
from stager.service.giving_up import Patience, give_up
from stager.service.hosts import HostWatch
from stager.service.lifetime import Lifetime
from stager.service.live_nodes import gone_from_here, gone_with_pool, has_stores, machine_limits, this_host, with_joined
from stager.service.machine_side import MachineSide, machine_side
from stager.service.measuring import Measuring
from stager.service.node_side import NodeSide, node_side
from stager.service.recording import Recording
from stager.service.replaying import Replayed
from stager.service.run_service import RunService
from stager.service.scattering import Scattering
from stager.service.services import Services, composed
from stager.service.settings import Settings
from stager.service.shares import ShareBook
from stager.service.state_dir import StateDir, results_of
from stager.service.stores import Stores
from stager.service.summaries import Summaries
from stager.service.tenancy import Tenancy
from stager.service.tenant_pools import TenantPools
from stager.tasks import Tasks

log = logging.getLogger(__name__)


class Scheduler:
    """One state directory's scheduler, until `close`; the caller holds the lock. Composition roots alone see it."""

    def __init__(
        self,
        state_dir: StateDir,
        machine: MachineSide,
        node: NodeSide,
        services: Services,
        tasks: Tasks,
        driving: Driving,
        recording: Recording,
        scattering: Scattering,
    ) -> None:
        self.state_dir, self.machine, self.node, self.services, self.tasks = state_dir, machine, node, services, tasks
        self.driving, self.recording, self.scattering = driving, recording, scattering

    def start(self, name: str, steps: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Beside all else; what it fails by ends the scheduler."""
        return self.tasks.start(name, steps, self.node.world.fatal)

    async def close(self, *, stop_node: bool = True, for_good: bool = False) -> None:
        """After it has ended. Attempts still under way live on and are adopted by the next scheduler, and so does the node then. Of an
        engine's attempt nothing lives here but its directory. `for_good`: there will be no next one, since the state directory is gone.
        """
        node, outstanding = self.node, self.machine.past.outstanding
        await self.tasks.close()
        if for_good:
            node.executors.end_all()
        # The batch that is being written is carried out, and the stores are closed behind it.
        self.machine.inbox.close()
        await self.driving.over.wait()
        self.scattering.close()
        await node.world.close()
        await node.executors.close()
        living = [each for each in outstanding.attempts.values() if not outstanding.workflows[each.run].engine]
        process = node.process
        for link in node.links.values():
            if link.source is not process:
                link.client.close()
        if for_good or (stop_node and not living):
            await process.stop()
        else:
            process.client.close()
        self.recording.close()
        self.machine.stores.close(gone=for_good)
        log.info("the scheduler of %s has ended (pid %d)", self.state_dir.root, os.getpid())


def opened(
    settings: Settings,
    stores: Stores,
    past: Replayed,
    clock: SteadyClock,
    lifetime: Lifetime,
    *,
    is_service: bool,
    beside: Sequence[NodeSource] = (),
    told: Sequence[Heard] = (),
) -> Scheduler:
    """Makes contact with the embedded node, with those that the settings name and those `beside` them, and goes on with what was under
    way. `told`: who else hears of each batch.
    """
    settings = with_joined(settings)
    state_dir, tasks = StateDir(settings.state_dir), Tasks()
    tenancy = Tenancy(settings.tenants_file or state_dir.tenants, settings.state_dir, settings.environ, read_tenants)
    machine = machine_side(stores, past, clock, lifetime, tenancy)
    shares = ShareBook(tenancy, machine.inbox.put, past.machine.state)
    recording = Recording(results_of(state_dir), past.machine.state, clock.ahead_s)
    parts = (machine.runs, stores.records, machine.book, machine.inbox.put, tenancy.of_runs, tenancy.tenant, shares.tell)
    run_service = RunService(*parts, passed=recording.passed)
    (summaries := Summaries(machine.runs, stores.records, past.counters)).settle()
    node = node_side(settings, state_dir, machine, tasks, [*remote_nodes(settings, state_dir, past.epoch), *beside])
    put, state = machine.inbox.put, past.machine.state
    knows_tenants = is_service or any(state.tenants)
    hosts = (HostWatch(machine.runs, state_dir.hosts).saw,) if settings.pool or knows_tenants else ()
    scattering = Scattering(settings, state, machine.inbox, run_service)
    heard = (Measuring(stores.profiles, past.machine).saw, recording.saw, run_service.saw, summaries.saw, scattering.saw, *hosts, *told)
    driving = Driving(past.past, node.world, stores.journal, heard, lifetime, machine.pulse)
    patience = Patience(settings.gone_after_s, clock(), node.view.is_silent, node.hears_hosts)
    services = composed(machine, node, state_dir, run_service, driving.keep_at_end, tasks, patience, recording, is_service=is_service)
    put(ev.SchedulerStarted(at=0.0, cause="start", epoch=past.epoch, version=__version__))
    put(ev.PolicySet(at=0.0, cause="start", policy=machine_policy(settings), limits=machine_limits(settings)))
    tell_kept(put, state, recording.path)
    has_hosts = settings.pool != "" or has_stores(settings) or state.on_hosts
    here = None if has_hosts else this_host(settings)
    pools = TenantPools(node.executors, node.gateways, machine.inquiry, state, put, tasks, here)
    tenants = shares.tell() if knows_tenants else None
    if settings.pool and HERE in state.hosts:
        put(gone_from_here())
    elif not settings.pool and has_hosts:
        put(this_host(settings))
    if not settings.pool:
        for gone in gone_with_pool(state.hosts):
            put(gone)
    node.world.open(node.links.values(), node.executors)
    if node.executors.hosts is not None:
        tasks.start("the hosts", node.executors.hosts.open(), node.world.fatal)
    if tenants is not None:
        pools.follow(tenants)
    if knows_tenants:
        tasks.start("the shares of tenants", shares.keep_telling(pools.follow), node.world.fatal)
    if patience.after_s is not None:
        tasks.start("the giving up of what is silent", give_up(patience, machine.inquiry, state, clock, put), node.world.fatal)
    node.continuation.begin()
    driving.start()
    return Scheduler(state_dir, machine, node, services, tasks, driving, recording, scattering)


def machine_policy(settings: Settings) -> Policy:
    return Policy(keep_results_bytes=settings.keep_results_bytes, keep_results_s=settings.keep_results_s)


def tell_kept(put: Callable[[ev.Event], None], state: State, path: Path) -> None:
    """What nodes may keep of runs that the journal does not tell of any more."""
    if state.runs or not path.exists():
        return
    # Most schedulers have runs, or no results, and start sooner without this.
    from stager.adapters.results_store import open_to_read

    found: list[ev.KeptFile] = []
    try:
        store = open_to_read(path)
        for tenant, each in store.kept_files() if store is not None else ():
            found.append(ev.KeptFile(each.file, tenant, each.size_bytes, each.blake3, each.executable, each.remake_s))
    except (sqlite3.Error, StagerError) as problem:
        log.warning("what nodes keep of earlier runs is not known, and is made again: %s", problem)
    else:
        if store is not None:
            store.close()
    put(ev.ResultsKept(at=0.0, cause="start", files=tuple(found)))


def remote_nodes(settings: Settings, state_dir: StateDir, epoch: int) -> list[NodeRemote]:
    if not any(place.by_tls for place in settings.nodes):
        return [NodeRemote(place, epoch) for place in settings.nodes]
    # Most schedulers name none, and start sooner without this.
    from stager.adapters.cluster_tls import ClusterTls

    tls = ClusterTls(state_dir.tls)
    return [NodeRemote(place, epoch, tls if place.by_tls else None) for place in settings.nodes]


def read_tenants(path: Path) -> Tenants:
    # Most schedulers have no tenants, and start sooner without this. One that is no service may have runs of tenants all the same.
    from stager.readers import tenants

    return tenants.read_tenants(path)
