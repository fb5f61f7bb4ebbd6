"""Where the I/O nodes reach one another, and who was told.

May know: the NodeClient port. One rule: a node was told of a peer, in both their present incarnations, before it is asked to copy from it;
and no node waits for another to be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from stager.adapters.ionode import IoNode, PeerAddress
from stager.tasks import Tasks


class Peering:
    """The address of each node that was met, and the nodes that have to hear of it."""

    def __init__(self) -> None:
        self.addresses: dict[str, PeerAddress] = {}
        self.tellers: dict[str, PeerTeller] = {}

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


class PeerTeller:
    """What one node was told of the others since it was last met."""

    def __init__(self, peering: Peering, node: str, client: IoNode) -> None:
        self.peering, self.node, self.client = peering, node, client
        self.is_met = False
        self.told: dict[str, tuple[PeerAddress, asyncio.Task[None]]] = {}
        self.tasks = Tasks()

    def begin(self) -> None:
        """In contact with it, perhaps with another incarnation that knows nobody."""
        self.is_met = True
        self.told.clear()
        for peer in self.peering.addresses:
            self.hear(peer)

    def hear(self, peer: str) -> None:
        if self.is_met and peer != self.node:
            self._telling(peer, self.peering.addresses[peer])

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
