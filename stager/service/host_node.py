"""The I/O node of a host that joins a cluster: its directory, its process, and where it was told to be.

May know: node_process, host_join. One rule: joining again with the same directory is the same node, at the same address where that is free.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stager.adapters import host_join
from stager.adapters.authority import write_private
from stager.adapters.binary import find_ionode
from stager.adapters.host_join import Invitation
from stager.adapters.node_process import Listen, NodeProcess, NodeSettings
from stager.adapters.own_address import own_address
from stager.model.errors import Denied, InvalidInput, Refused
from stager.service.settings import current_umask, default_capacity
from stager.wire.cluster import JoinedNode
from stager.wire.node import NodeAbout


class Record(msgspec.Struct, frozen=True):
    """What a host knows of its joining. `scheduler`: HOST:PORT; `listen`: where its node was."""

    scheduler: str
    node_id: str
    capacity_bytes: int
    listen: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person said; empty and None: as before, else by itself."""

    node_id: str
    capacity_bytes: int | None = None
    listen: str = ""


class HostDir:
    """`--store`: the store of the node, `node` as in a state directory, and all that belongs to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tls, self.store, self.log, self.record = root / "tls", root / "node", root / "node.log", root / "host.json"

    def read(self) -> Record | None:
        try:
            return msgspec.json.decode(self.record.read_bytes(), type=Record)
        except FileNotFoundError:
            return None

    def write(self, record: Record) -> None:
        write_private(self.record, msgspec.json.encode(record))

    @contextmanager
    def held(self) -> Iterator[None]:
        """One join at a time. Raises Refused."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as problem:
            raise Refused(f"another `stager host join` works in {self.root}", code="busy", subject=str(self.root)) from problem
        finally:
            os.close(handle)


def joined(place: HostDir, url: str | None, wanted: Wanted, environ: Mapping[str, str]) -> tuple[Record, NodeAbout]:
    """This host's node runs and the scheduler knows where, from now on. Raises StagerError by name."""
    before = place.read()
    if url is None and before is None:
        raise InvalidInput(f"no node of {place.root} has joined a cluster yet; name the URL of an invite", subject="url")
    if before is not None and wanted.node_id not in ("", before.node_id):
        text = f"the store in {place.root} is that of the node {before.node_id}"
        raise Refused(f"{text}; leave --node-id out, or name another --store", code="another_node", subject=wanted.node_id)
    node_id = before.node_id if before is not None else wanted.node_id
    # First: where it is missing, no invite is used up.
    program = find_ionode(environ)
    scheduler = before.scheduler if before is not None else ""
    if url is not None:
        invitation = Invitation.of(url)
        scheduler = invitation.address
        host_join.join(invitation, node_id, place.tls)
    else:
        host_join.renew(scheduler, node_id, place.tls)
    capacity = wanted.capacity_bytes or (before.capacity_bytes if before is not None else default_capacity(place.root))
    listen = wanted.listen or (before.listen if before is not None else "") or free_port(scheduler)
    record = Record(scheduler, node_id, capacity, listen)
    place.write(record)
    secured = host_join.as_node(place.tls, node_id)
    epoch = host_join.about(scheduler, secured).epoch
    settings = NodeSettings(
        program, node_id, place.store, place.log, capacity, current_umask(), listen=Listen(listen, tls_dir=place.tls), idle_exit_s=None
    )
    process = NodeProcess(settings, epoch)
    about = asyncio.run(running(process))
    record = Record(scheduler, node_id, capacity, process.tcp_address)
    place.write(record)
    told = JoinedNode(
        address=record.listen,
        store_id=about.store_id,
        incarnation=about.incarnation,
        capacity_bytes=about.capacity_bytes,
        version=about.version,
    )
    try:
        host_join.tell(scheduler, secured, node_id, told)
    except (Denied, InvalidInput, Refused):
        # A node that the cluster does not take serves nobody.
        asyncio.run(process.stop())
        raise
    return record, about


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
