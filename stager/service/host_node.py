"""A host that joins a cluster: its directory, what it was told to run, and its I/O node.

May know: node_process, host_join. One rule: joining again with the same directory is the same node, at the same address where that is free.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stager.adapters import host_join
from stager.adapters.binary import find_ionode
from stager.adapters.dask_pool import need_distributed
from stager.adapters.host_join import Invitation
from stager.adapters.node_process import Listen, NodeProcess, NodeSettings
from stager.adapters.own_address import own_address
from stager.adapters.whole_file import write_private
from stager.model.errors import Denied, InvalidInput, Refused
from stager.service.settings import current_umask, default_capacity
from stager.wire.cluster import JoinedNode
from stager.wire.node import NodeAbout

BUSY_DEADLINE_S = 60.0
BUSY_POLL_S = 0.05


class WorkerRecord(msgspec.Struct, frozen=True):
    """The worker of this host, as `stager worker` is told. `beside`: the I/O node that its jobs read from. `pool`: where it was last.
    None, and empty `scratch`: what that command and this directory do by themselves.
    """

    beside: str
    pool: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    scratch: str = ""
    scratch_bytes: int | None = None


class Record(msgspec.Struct, frozen=True):
    """What a host knows of its joining. `scheduler`: HOST:PORT; `listen`: where its node was. `worker` None: it has none. `said`: another
    one each time that a person says something.
    """

    scheduler: str
    node_id: str
    capacity_bytes: int
    listen: str
    has_node: bool = True
    worker: WorkerRecord | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person said; empty and None: as before, else by itself. `beside`: another host's node, where this one has none."""

    node_id: str
    capacity_bytes: int | None = None
    listen: str = ""
    has_node: bool | None = None
    has_worker: bool | None = None
    beside: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    scratch: str = ""
    scratch_bytes: int | None = None


class HostDir:
    """`--store`: the store of the node, `node` as in a state directory, and all that belongs to the host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tls, self.store, self.log, self.record = root / "tls", root / "node", root / "node.log", root / "host.json"
        self.pool_tls, self.jobs = root / "pool-tls", root / "jobs"

    def read(self) -> Record | None:
        try:
            return msgspec.json.decode(self.record.read_bytes(), type=Record)
        except FileNotFoundError:
            return None

    def write(self, record: Record) -> None:
        write_private(self.record, msgspec.json.encode(record))

    @contextmanager
    def held(self) -> Iterator[None]:
        """One at a time changes what runs here. Raises Refused."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock(handle)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        end = time.monotonic() + BUSY_DEADLINE_S
        while True:
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as problem:
                if time.monotonic() >= end:
                    text = f"another `stager host` command works in {self.root}"
                    raise Refused(text, code="busy", subject=str(self.root)) from problem
            time.sleep(BUSY_POLL_S)


def joined(place: HostDir, url: str | None, wanted: Wanted, environ: Mapping[str, str]) -> Record:
    """This host has a certificate of the cluster, and its record says what is to run here. Raises StagerError by name."""
    before = place.read()
    if url is None and before is None:
        raise InvalidInput(f"no host of {place.root} has joined a cluster yet; name the URL of an invite", subject="url")
    if before is not None and wanted.node_id not in ("", before.node_id):
        text = f"the store in {place.root} is that of the node {before.node_id}"
        raise Refused(f"{text}; leave --node-id out, or name another --store", code="another_node", subject=wanted.node_id)
    node_id = before.node_id if before is not None else wanted.node_id
    # First: where it is missing, no invite is used up.
    find_ionode(environ)
    has_node = wanted.has_node if wanted.has_node is not None else before is None or before.has_node
    worker = worker_of(wanted, before, node_id, has_node=has_node)
    if worker is not None:
        need_distributed()
    scheduler = before.scheduler if before is not None else ""
    if url is not None:
        invitation = Invitation.of(url)
        scheduler = invitation.address
        host_join.join(invitation, node_id, place.tls)
    else:
        host_join.renew(scheduler, node_id, place.tls)
    capacity = wanted.capacity_bytes or (before.capacity_bytes if before is not None else default_capacity(place.root))
    listen = wanted.listen or (before.listen if before is not None else "") or free_port(scheduler)
    record = Record(scheduler, node_id, capacity, listen, has_node, worker, secrets.token_hex(8))
    place.write(record)
    return record


def worker_of(wanted: Wanted, before: Record | None, node_id: str, *, has_node: bool) -> WorkerRecord | None:
    """What is not said stays as it was. Raises InvalidInput where the worker is beside no node, or nothing is left to run."""
    old = before.worker if before is not None and before.worker is not None else None
    if wanted.has_worker is False or (wanted.has_worker is None and before is not None and before.worker is None):
        if not has_node:
            raise InvalidInput("--no-node and --no-worker leave nothing that this host could run", subject="no-node")
        return None
    beside = node_id if has_node else wanted.beside or (old.beside if old is not None and old.beside != node_id else "")
    if not beside:
        text = "a host without an I/O node of its own has its jobs read from another one"
        raise InvalidInput(f"{text}; name it with --beside ID, as `stager node list` says", subject="beside")
    old = old or WorkerRecord(beside)
    return WorkerRecord(
        beside,
        old.pool,
        wanted.cores or old.cores,
        wanted.memory_bytes or old.memory_bytes,
        wanted.scratch or old.scratch,
        wanted.scratch_bytes or old.scratch_bytes,
    )


def node_started(place: HostDir, record: Record, environ: Mapping[str, str]) -> tuple[NodeProcess, Record, NodeAbout]:
    """The node of this host runs and the scheduler knows where, from now on. Raises StagerError by name."""
    secured = host_join.as_node(place.tls, record.node_id)
    epoch = host_join.about(record.scheduler, secured).epoch
    process = NodeProcess(node_settings(place, record, environ), epoch)
    about = asyncio.run(running(process))
    record = msgspec.structs.replace(record, listen=process.tcp_address)
    place.write(record)
    told = JoinedNode(
        address=record.listen,
        store_id=about.store_id,
        incarnation=about.incarnation,
        capacity_bytes=about.capacity_bytes,
        version=about.version,
    )
    try:
        host_join.tell(record.scheduler, secured, record.node_id, told)
    except (Denied, InvalidInput, Refused):
        # A node that the cluster does not take serves nobody.
        asyncio.run(process.stop())
        raise
    return process, record, about


def node_stopped(place: HostDir, record: Record, environ: Mapping[str, str]) -> None:
    """Whoever started it."""
    process = NodeProcess(node_settings(place, record, environ), 0)
    asyncio.run(process.end())


def node_settings(place: HostDir, record: Record, environ: Mapping[str, str]) -> NodeSettings:
    return NodeSettings(
        find_ionode(environ),
        record.node_id,
        place.store,
        place.log,
        record.capacity_bytes,
        current_umask(),
        listen=Listen(record.listen, tls_dir=place.tls),
        idle_exit_s=None,
    )


async def running(process: NodeProcess) -> NodeAbout:
    try:
        return await (await process.contact()).node()
    finally:
        process.client.close()


def free_port(scheduler: str) -> str:
    """Any free port at the address from which this host reaches the scheduler."""
    own = own_address(*host_join.host_and_port(scheduler))
    if own is None:
        raise Refused(f"this host has no way to {scheduler}; name --listen IP:PORT", code="no_way", subject=scheduler)
    return f"[{own}]:0" if ":" in own else f"{own}:0"
