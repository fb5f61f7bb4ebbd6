"""All that has to do with the node and with attempts on this machine, composed: the node's process, the link to it, executors, the world.

May know: the adapters, the runtime. One rule: it only puts together; nothing is in contact with anybody yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from stager.adapters.binary import find_ionode
from stager.adapters.executor_engine import EngineExecutor, Executors
from stager.adapters.executor_local import LocalExecutor
from stager.adapters.node_process import NodeProcess, NodeSettings, Scrub, Storage
from stager.adapters.storage_keys import KeyIssuer
from stager.runtime.live_world import LiveWorld
from stager.runtime.node_link import NodeLink
from stager.service.continuation import Continuation
from stager.service.machine_side import MachineSide
from stager.service.node_view import NodeWatch
from stager.service.objects import Objects
from stager.service.settings import Settings
from stager.service.state_dir import StateDir
from stager.service.surroundings import DiskPromises, Surroundings
from stager.tasks import Tasks
from stager.worker import KeptSandboxes, Worker

NODE_ID = "node0"


@dataclass(frozen=True, slots=True)
class NodeSide:
    """`objects` None: the node keeps none for tenants."""

    process: NodeProcess
    objects: Objects | None
    links: Mapping[str, NodeLink]
    view: NodeWatch
    executors: Executors
    continuation: Continuation
    kept_sandboxes: KeptSandboxes
    world: LiveWorld


def embedded(settings: Settings, state_dir: StateDir, epoch: int) -> tuple[NodeProcess, Objects | None]:
    # First: where it is missing, nothing is left behind.
    program = find_ionode(settings.environ)
    wanted = settings.storage
    issuer = KeyIssuer(state_dir.storage_key) if wanted is not None else None
    storage = None
    if wanted is not None and issuer is not None:
        storage = Storage(wanted.listen, wanted.size_bytes, issuer.path, wanted.trust_network)
    scrub = Scrub(settings.scrub_bytes_per_s, settings.scrub_every_s)
    places = (state_dir.node_store, state_dir.node_log)
    process = NodeProcess(NodeSettings(program, NODE_ID, *places, settings.capacity_bytes, settings.umask, scrub, storage), epoch)
    objects = Objects(issuer, process, wanted.url) if wanted is not None and issuer is not None else None
    return process, objects


def node_side(settings: Settings, state_dir: StateDir, machine: MachineSide, tasks: Tasks) -> NodeSide:
    """The link tells the world what it fails by, the world tells the executors, and these ask the link."""
    past, inbox, clock, pulse = machine.past, machine.inbox, machine.clock, machine.pulse
    outstanding = past.outstanding
    process, objects = embedded(settings, state_dir, past.epoch)
    worker = Worker(state_dir.root, process.client, binary=process.settings.program, inherited={}, epoch=past.epoch)
    kept_sandboxes = KeptSandboxes(state_dir.root, settings.keep_failed_bytes)
    kept_sandboxes.load()
    links: dict[str, NodeLink] = {}
    promises = DiskPromises(machine.inquiry, machine.runs, settings.storage.size_bytes if settings.storage is not None else 0)
    around = Surroundings(outstanding, machine.book, machine.tenancy.of_run, links, promises, pulse, clock)
    local = LocalExecutor(worker, inbox.put, around, kept_sandboxes)
    executors = Executors(local, EngineExecutor(worker, inbox.put, around, pulse.beat), around)
    continuation = Continuation(outstanding, executors, inbox, tasks, machine.lifetime, pulse, {process.node_id})
    world = LiveWorld(machine.stores.journal, inbox, outstanding, asyncio.get_running_loop(), continuation.carried_out)
    # There is no other node: where it refuses, nothing goes on, and another scheduler may rule it.
    link = NodeLink(process, inbox.put, outstanding, machine.book, world.fatal, world.fatal, clock)
    links[link.node] = link
    return NodeSide(process, objects, links, NodeWatch(links, local, outstanding), executors, continuation, kept_sandboxes, world)
