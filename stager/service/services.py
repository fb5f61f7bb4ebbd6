"""The services of an open scheduler, composed. One rule: a service gets what it needs and no more; only composition roots see them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from stager.model.errors import Fault
from stager.runtime.peering import Peering
from stager.service.commands import Commits, RunCommands
from stager.service.engine_calls import CallStates, StagedCalls
from stager.service.engine_service import EngineService
from stager.service.following import Following
from stager.service.gc import GarbageCollector, NodeReplicas, RunRemoval
from stager.service.giving_up import Patience
from stager.service.health import Health
from stager.service.hosts import HostService
from stager.service.job_logs import JobLogs
from stager.service.journal_queries import JournalQueries
from stager.service.machine_side import MachineSide
from stager.service.made_for_jobs import MadeForJobs
from stager.service.made_on_hosts import MadeOnHosts
from stager.service.node_side import NodeSide
from stager.service.nodes import NodeService
from stager.service.other_hosts import OtherHosts
from stager.service.queries import JobQueries, RunQueries
from stager.service.rates import Rates
from stager.service.recording import Recording, unwritten_files
from stager.service.run_lists import RunLists
from stager.service.run_service import RunService
from stager.service.sandboxes import Furnishing, Sandboxes
from stager.service.shutdown import Ending, GivingWay, Shutdown
from stager.service.state_dir import StateDir, results_of
from stager.service.status import StatusQueries
from stager.tasks import Tasks


@dataclass(frozen=True, slots=True)
class RunServices:
    """The services of both APIs: about runs, and about the nodes that they share."""

    commands: RunCommands
    lists: RunLists
    queries: RunQueries
    jobs: JobQueries
    status: StatusQueries
    following: Following
    logs: JobLogs
    journal: JournalQueries
    engines: EngineService
    nodes: NodeService
    hosts: HostService


@dataclass(frozen=True, slots=True)
class OwnerServices:
    """The services of the socket API alone."""

    health: Health
    sandboxes: Sandboxes
    garbage: GarbageCollector
    ending: Ending
    giving_way: GivingWay


@dataclass(frozen=True, slots=True)
class Services:
    runs: RunServices
    owner: OwnerServices
    shutdown: Shutdown


def composed(
    machine: MachineSide,
    node: NodeSide,
    state_dir: StateDir,
    run_service: RunService,
    keep_at_end: Callable[[], None],
    tasks: Tasks,
    patience: Patience,
    recording: Recording,
    *,
    is_service: bool,
) -> Services:
    rates = Rates(time.monotonic)
    shutdown = Shutdown(machine.inquiry, machine.pulse, machine.lifetime, machine.runs, machine.inbox.put, keep_at_end)
    ending = Ending(shutdown, machine.lifetime, tasks, node.world.fatal)
    tenant_of = machine.tenancy.of_run
    giving_way = GivingWay(machine.inquiry, machine.lifetime, machine.runs, tenant_of, state_dir.root, is_service=is_service)
    return Services(
        run_services(machine, node, state_dir, run_service, rates, patience, recording.faults),
        OwnerServices(
            Health(machine.inquiry, machine.runs, machine.lifetime, node.view, state_dir.root, machine.past.epoch),
            sandboxes(machine, node),
            garbage_collector(machine, node, state_dir, rates, partial(unwritten_files, recording)),
            ending,
            giving_way,
        ),
        shutdown,
    )


def run_services(
    machine: MachineSide,
    node: NodeSide,
    state_dir: StateDir,
    run_service: RunService,
    rates: Rates,
    patience: Patience,
    unrecorded: Mapping[str, Fault],
) -> RunServices:
    """`unrecorded`: by run, why what its jobs made could not be recorded."""
    past, stores, clock, runs = machine.past, machine.stores, machine.clock, machine.runs
    inquiry, pulse, lifetime = machine.inquiry, machine.pulse, machine.lifetime
    commits = Commits(inquiry, lifetime)
    calls, staged_calls = CallStates(runs, clock), StagedCalls(past.outstanding, node.executors.engine.called)
    return RunServices(
        RunCommands(inquiry, commits, run_service, clock, node.view, OtherHosts(inquiry, runs, node.links)),
        RunLists(inquiry, runs, stores.records, run_service, clock),
        RunQueries(inquiry, runs, stores.records),
        JobQueries(inquiry, runs, past.counters, node.kept_sandboxes.kept, clock),
        StatusQueries(inquiry, runs, stores.records, node.view, rates, machine.totals, clock, patience, unrecorded),
        Following(inquiry, pulse, lifetime, runs, past.counters),
        JobLogs(inquiry, runs, state_dir.logs, node.executors.bring_logs),
        JournalQueries(inquiry, runs, stores.journal.read_beside, clock, patience),
        EngineService(inquiry, pulse, lifetime, commits, calls, staged_calls, run_service, machine.inbox.put),
        NodeService(inquiry, commits, runs, node.view, machine.inbox.put, partial(revoke, state_dir, node.peering)),
        HostService(inquiry, commits, runs, machine.inbox.put),
    )


def revoke(state_dir: StateDir, peering: Peering, node: str) -> None:
    """Takes it out of the registry, where there is one: most schedulers have no cluster. The other nodes are told."""
    if state_dir.nodes.is_dir():
        from stager.adapters.registry_file import FileRegistry

        registry = FileRegistry(state_dir.nodes)
        registry.remove(node)
        peering.forget(registry.forgotten())


def sandboxes(machine: MachineSide, node: NodeSide) -> Sandboxes:
    process = node.process
    furnishing, program = Furnishing(node.links, machine.past.epoch), process.settings.program
    tenancy = machine.tenancy
    return Sandboxes(machine.inquiry, machine.runs, node.kept_sandboxes, furnishing, program, lambda run: bool(tenancy.of_run(run)))


def garbage_collector(
    machine: MachineSide, node: NodeSide, state_dir: StateDir, rates: Rates, unwritten: Callable[[], set[str]]
) -> GarbageCollector:
    removal = RunRemoval(machine.stores.records, machine.book, rates)
    replicas = NodeReplicas(node.links, machine.past.epoch)
    made = MadeForJobs(machine.inquiry, machine.runs, node.worker, MadeOnHosts(machine.inquiry, machine.runs, node.executors))
    places = (state_dir.logs, results_of(state_dir))
    return GarbageCollector(machine.inquiry, machine.runs, removal, replicas, node.kept_sandboxes, made, *places, unwritten)
