"""Where the I/O nodes reach one another, which of them are forgotten, and who was told.

May know: the NodeClient port. One rule: a node was told of a peer, in both their present incarnations, before it is asked to copy from it;
and no node waits for another to be told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from stager.adapters.ionode import IoNode, PeerAddress
from stager.model.errors import StagerError
from stager.tasks import Tasks
from stager.wire.node import ForgottenNode

log = logging.getLogger(__name__)


class Peering:
    """The address of each node that was met, and the nodes that have to hear of it."""

    def __init__(self) -> None:
        self.addresses: dict[str, PeerAddress] = {}
        self.tellers: dict[str, PeerTeller] = {}
        # None: this scheduler has no cluster, and no node is told of any.
        self.forgotten: Sequence[ForgottenNode] | None = None

    def teller(self, node: str, client: IoNode) -> PeerTeller:
        """For the link to that node."""
        self.tellers[node] = PeerTeller(self, node, client)
        return self.tellers[node]

    def met(self, node: str, address: PeerAddress | None) -> None:
        """It is told of all others, and all others of it where its address is another than before. A node without one gives nothing."""
        self.tellers[node].begin()
        if address is None:
            self.addresses.pop(node, None)
        elif address != self.addresses.get(node):
            self.addresses[node] = address
            for teller in self.tellers.values():
                teller.hear(node)

    def forget(self, forgotten: Sequence[ForgottenNode]) -> None:
        """All nodes are told, now and at each contact, that certificates of these count no more, and those of others do."""
        self.forgotten = forgotten
        for teller in self.tellers.values():
            teller.hear_forgotten()


class PeerTeller:
    """What one node was told of the others since it was last met."""

    def __init__(self, peering: Peering, node: str, client: IoNode) -> None:
        self.peering, self.node, self.client = peering, node, client
        self.is_met = False
        self.told: dict[str, tuple[PeerAddress, asyncio.Task[None]]] = {}
        self.told_forgotten: Sequence[ForgottenNode] | None = None
        self.forgetting: asyncio.Task[None] | None = None
        self.tasks = Tasks()

    def begin(self) -> None:
        """In contact with it, perhaps with another incarnation that knows nobody."""
        self.is_met = True
        self.told.clear()
        self.told_forgotten = None
        if self.forgetting is not None:
            self.forgetting.cancel()
            self.forgetting = None
        self.hear_forgotten()
        for peer in self.peering.addresses:
            self.hear(peer)

    def hear(self, peer: str) -> None:
        if self.is_met and peer != self.node:
            self._telling(peer, self.peering.addresses[peer])

    def hear_forgotten(self) -> None:
        if self.is_met and (self.forgetting is None or self.forgetting.done()):
            self.forgetting = self.tasks.start(f"telling node {self.node} who is forgotten", self._tell_forgotten())

    async def _tell_forgotten(self) -> None:
        """One list after the other, until the node knows the newest. What fails is done again at the next contact."""
        while (newest := self.peering.forgotten) is not None and newest != self.told_forgotten:
            try:
                await self.client.put_forgotten(newest)
            except StagerError as problem:
                if problem.code != "not_found":
                    raise
                log.warning("node %s is of an older version: it lets in certificates of forgotten nodes", self.node)
            self.told_forgotten = newest

    async def require(self, peer: str) -> None:
        """Returns when the node knows where this peer is. Raises what telling it failed by. Of a peer that was never met it is told
        nothing, and says so itself.
        """
        if (address := self.peering.addresses.get(peer)) is not None:
            await asyncio.shield(self._telling(peer, address))

    async def require_all(self, peers: Iterable[str]) -> None:
        await asyncio.gather(*(self.require(peer) for peer in peers if peer != self.node))

    async def close(self) -> None:
        await self.tasks.close()

    def _telling(self, peer: str, address: PeerAddress) -> asyncio.Task[None]:
        known = self.told.get(peer)
        if known is not None and known[0] == address and not has_failed(known[1]):
            return known[1]
        task = self.tasks.start(f"telling node {self.node} of node {peer}", self.client.put_peer(peer, address))
        self.told[peer] = (address, task)
        return task


def has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
