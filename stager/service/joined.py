"""The port for hosts that join, and the nodes that have joined, taken up while the scheduler runs.

May know: the registry, the node side. One rule: a node is spoken to as long as it is in the registry, and where the registry says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from stager.adapters.authority import Authority
from stager.adapters.cluster_tls import ClusterTls
from stager.adapters.invites import Invites
from stager.adapters.node_place import NodePlace
from stager.adapters.node_remote import NodeRemote
from stager.adapters.registry_file import FileRegistry, Registered
from stager.adapters.whole_file import write_public
from stager.model.errors import InvalidInput
from stager.ports import Put
from stager.runtime.node_link import NodeLink, NodeSource
from stager.runtime.peering import Peering
from stager.service.cluster_server import cluster_app, keep_renewed, listening_context
from stager.service.joining import Joining
from stager.service.live_nodes import has_stores, this_host, with_joined
from stager.service.settings import Settings
from stager.service.state_dir import StateDir

log = logging.getLogger(__name__)


class Joined:
    """Of one scheduler that listens for hosts. `links`: to all nodes that it has. `add`: has contact made with one more."""

    def __init__(
        self,
        settings: Settings,
        state_dir: StateDir,
        epoch: int,
        links: Mapping[str, NodeLink],
        add: Callable[[NodeSource], None],
        put: Put,
        peering: Peering,
    ) -> None:
        self.settings, self.tls_dir, self.epoch = settings, state_dir.tls, epoch
        self.links, self.add, self.put, self.peering = links, add, put, peering
        self.registry = FileRegistry(state_dir.nodes)
        self.tls = ClusterTls(state_dir.tls)
        self.told_here = settings.pool != "" or has_stores(with_joined(settings))
        # Those that are or were in the registry, and that nobody named beside it.
        self.seen: set[str] = set()
        authority = Authority(state_dir.authority)
        authority.certificate()
        invites, named = Invites(state_dir.authority / "invites"), [place.node_id for place in settings.nodes]
        self.app = cluster_app(Joining(authority, invites, self.registry, epoch, settings.pool, named))
        self.context = listening_context(state_dir.tls)

    async def keep_renewed(self) -> None:
        await keep_renewed(self.context, self.tls_dir)

    async def follow(self) -> None:
        async for entries in self.registry.watch():
            for entry in entries.values():
                if entry.at is not None:
                    self._take_up(entry, entry.at.address)
            self.seen |= {name for name in entries if name not in {place.node_id for place in self.settings.nodes}}
            for name in self.seen:
                link = self.links.get(name)
                if link is not None and isinstance(link.source, NodeRemote):
                    link.source.revoked = name not in entries
            self.peering.forget(await asyncio.to_thread(self.registry.forgotten))

    def _take_up(self, entry: Registered, address: str) -> None:
        place, link = NodePlace(entry.node_id, address, None), self.links.get(entry.node_id)
        if link is not None:
            if isinstance(link.source, NodeRemote) and link.source.place != place:
                log.info("node %s is at %s now", entry.node_id, address)
                link.source.place = place
            return
        if not self.told_here:
            # No job is to be placed beside a node that shares none of this machine's files.
            self.told_here = True
            self.put(this_host(self.settings))
        log.info("node %s has joined at %s", entry.node_id, address)
        self.add(NodeRemote(place, self.epoch, self.tls))


@contextlib.contextmanager
def told(state_dir: StateDir, listening: socket.socket) -> Iterator[None]:
    """Where invites send hosts to."""
    host, port = listening.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    write_public(state_dir.authority / "address", f"{address}\n".encode())
    log.info("hosts join this cluster at %s", address)
    try:
        yield
    finally:
        (state_dir.authority / "address").unlink(missing_ok=True)


def require_cluster(state_dir: StateDir) -> None:
    """Before anything is started. Raises InvalidInput."""
    for path, what in ((state_dir.authority, "no cluster"), (state_dir.tls, "no certificate of the scheduler")):
        if not any_file(path):
            text = f"there is {what} in {path}, so no host can join"
            raise InvalidInput(f"{text}; make one with `stager cluster init`", code="no_cluster", subject="cluster-listen")


def any_file(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())
