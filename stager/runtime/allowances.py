"""The limits of origins that several I/O nodes use, divided among them: who was told what.

May know: the NodeClient port, the division. One rule: a node is asked for nothing at an origin with limits before it has an allowance
there, and an allowance ends by itself where nobody renews it: a node that cannot be reached has none after that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from stager.model.errors import StagerError
from stager.planning.allowances import Allowance, Division
from stager.ports import NodeClient
from stager.tasks import Tasks

log = logging.getLogger(__name__)
LEASE_S = 30.0
RENEW_S = 10.0
# A call that was not answered may arrive so much later.
LATE_S = 5.0
KEEP_S = 2.0
# By then a node whose allowance has ended has closed its connections.
CLOSED_AFTER_S = 5.0
# Connections that are to be closed are looked at again, and nodes that did not answer are told again.
AGAIN_S = 0.2


class NotAskedError(Exception):
    """The node was lost, or the thing called off, before its turn."""


class Divided:
    """One origin's."""

    def __init__(self, origin: str, limits: Allowance) -> None:
        self.origin, self.division = origin, Division(limits, KEEP_S)
        self.waiters: dict[tuple[str, str], asyncio.Future[None]] = {}
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.renew_at: dict[str, float] = {}


class Allowances:
    """Of all nodes of a scheduler. `predecessor`: another scheduler may have told nodes of something before this one began."""

    def __init__(self, clock: Callable[[], float], *, predecessor: bool = False) -> None:
        self.clock = clock
        self.clients: dict[str, NodeClient] = {}
        self.reached: set[str] = set()
        self.by_origin: dict[str, Divided] = {}
        # Where each transfer at an origin with limits is.
        self.places: dict[str, tuple[Divided, str]] = {}
        self.untold_until = clock() + LEASE_S + CLOSED_AFTER_S if predecessor else clock()
        self.tasks = Tasks()

    def of(self, node: str, client: NodeClient) -> NodeAllowances:
        """For the link to that node."""
        self.clients[node] = client
        return NodeAllowances(self, node)

    def ended(self, transfer: str) -> None:
        if (place := self.places.pop(transfer, None)) is not None:
            divided, node = place
            divided.division.over(node, transfer)
            self.settle(divided)

    async def close(self) -> None:
        for divided in self.by_origin.values():
            for waiter in divided.waiters.values():
                waiter.cancel()
        await self.tasks.close()

    def divided(self, origin: str, limits: Allowance) -> Divided:
        known = self.by_origin.get(origin)
        if known is None:
            known = self.by_origin[origin] = Divided(origin, limits)
            if self.clock() < self.untold_until:
                for node in self.clients:
                    known.division.assume(node, self.untold_until)
        return known

    def settle(self, divided: Divided) -> None:
        """As the present wants of all nodes are, now or soon."""
        division = divided.division
        division.pass_to(self.clock())
        if len(self.clients) == 1:
            (node,) = self.clients
            division.told(node, division.limits, 0, float("inf"))
            self._release(divided)
            return
        divided.changed.set()
        if divided.task is None or divided.task.done():
            divided.task = self.tasks.start(f"the allowances at the origin {divided.origin}", self._keep(divided))

    async def _keep(self, divided: Divided) -> None:
        """Until no node wants anything there. What they have then ends by itself."""
        division = divided.division
        while division.demands:
            divided.changed.clear()
            division.pass_to(self.clock())
            fewer = division.fewer()
            await self._tell_all(divided, fewer)
            division.pass_to(self.clock())
            more = division.more()
            due = {node: division.held[node].allowance for node in self._due(divided) if node not in more}
            await self._tell_all(divided, due | more)
            self._release(divided)
            # What was not done now is tried again soon.
            again = bool(division.fewer() or division.more())
            wait_s = AGAIN_S if again else max(0.0, min(division.next_at(), *self._renewals(divided)) - self.clock())
            if not divided.changed.is_set():
                await wait_until(divided.changed, wait_s)

    def _renewals(self, divided: Divided) -> list[float]:
        wanting = divided.division.demands
        return [at for node, at in divided.renew_at.items() if node in wanting and node in self.reached] or [float("inf")]

    def _due(self, divided: Divided) -> list[str]:
        division, now = divided.division, self.clock()
        return [
            node
            for node in division.demands
            if node in division.held and not division.held[node].assumed and divided.renew_at.get(node, 0.0) <= now
        ]

    async def _tell_all(self, divided: Divided, parts: Mapping[str, Allowance]) -> None:
        await asyncio.gather(*(self._tell(divided, node, part) for node, part in parts.items() if node in self.reached))

    async def _tell(self, divided: Divided, node: str, allowance: Allowance) -> None:
        division = divided.division
        division.telling(node, allowance)
        client = self.clients[node]
        try:
            connections = await client.allow(divided.origin, allowance.bytes_per_s, allowance.connections, LEASE_S, timeout_s=LATE_S)
        except StagerError as problem:
            if problem.code != "not_found":
                if problem.code in ("origin_unknown", "stale_incarnation"):
                    # It was started anew, or had never heard of it.
                    division.held.pop(node, None)
                elif node in division.held:
                    division.not_told(node, self.clock() + LATE_S + LEASE_S + CLOSED_AFTER_S)
                return
            if node not in divided.renew_at:
                log.warning("node %s is of an older version: it takes the whole limits of an origin for itself", node)
            connections = 0
        now = self.clock()
        division.told(node, allowance, connections, now + LEASE_S + CLOSED_AFTER_S)
        divided.renew_at[node] = now + RENEW_S

    def _release(self, divided: Divided) -> None:
        for node, what in divided.division.released():
            waiter = divided.waiters.pop((node, what), None)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)


class NodeAllowances:
    """What one node has of the origins that it is asked for."""

    def __init__(self, of_all: Allowances, node: str) -> None:
        self.of_all, self.node = of_all, node
        # Of the node that was met last.
        self.incarnation = ""

    async def require(self, origin: str, config: Mapping[str, Any], transfer: str) -> None:
        """Returns when the node may be asked for this. Raises NotAskedError, at once where the node was lost meanwhile: who meets it again
        waits until no call is under way.
        """
        limits = limits_of(config)
        if not limits.is_limited:
            return
        if self.node not in self.of_all.reached:
            raise NotAskedError()
        divided = self.of_all.divided(origin, limits)
        division = divided.division
        if division.is_asked(self.node, transfer):
            return
        self.of_all.places[transfer] = divided, self.node
        waiter = divided.waiters[self.node, transfer] = asyncio.get_running_loop().create_future()
        division.want(self.node, transfer)
        self.of_all.settle(divided)
        try:
            await waiter
        finally:
            divided.waiters.pop((self.node, transfer), None)

    def is_there(self, origin: str, config: Mapping[str, Any]) -> bool:
        """Something may be asked of the node at this origin now, without a word to anybody."""
        known = self.of_all.by_origin.get(origin)
        if not limits_of(config).is_limited or len(self.of_all.clients) == 1:
            return True
        held = known.division.held.get(self.node) if known is not None else None
        return held is not None and held.sure and held.allowance.is_usable

    def take_up(self, origin: str, config: Mapping[str, Any], transfer: str) -> None:
        """An earlier scheduler, or an earlier contact, has asked for it, and the node goes on with it."""
        limits = limits_of(config)
        if limits.is_limited:
            divided = self.of_all.divided(origin, limits)
            self.of_all.places[transfer] = divided, self.node
            divided.division.asked(self.node, transfer)
            self.of_all.settle(divided)

    def over(self, what: str) -> None:
        """It has ended, or was called off."""
        place = self.of_all.places.get(what)
        if place is not None:
            self._refuse(place[0], [what])
        self.of_all.ended(what)

    def withdraw(self, what: str) -> None:
        """It is called off, if it was not asked for yet."""
        place = self.of_all.places.get(what)
        if place is not None and (self.node, what) in place[0].waiters:
            self.over(what)

    async def close(self) -> None:
        await self.of_all.close()

    def met(self, incarnation: str) -> None:
        self.of_all.reached.add(self.node)
        anew = self.incarnation not in ("", incarnation)
        self.incarnation = incarnation
        for divided in self.of_all.by_origin.values():
            if anew:
                divided.division.fresh(self.node)
            self.of_all.settle(divided)

    def lost(self) -> None:
        """It is told nothing, and nothing is asked of it, before it is met again."""
        self.of_all.reached.discard(self.node)
        for divided in self.of_all.by_origin.values():
            divided.division.lost(self.node)
            self._refuse(divided, [what for node, what in divided.waiters if node == self.node])
            self.of_all.settle(divided)
        self.of_all.places = {what: place for what, place in self.of_all.places.items() if place[1] != self.node}

    def _refuse(self, divided: Divided, whats: list[str]) -> None:
        for what in whats:
            waiter = divided.waiters.pop((self.node, what), None)
            if waiter is not None and not waiter.done():
                waiter.set_exception(NotAskedError())


def limits_of(config: Mapping[str, Any]) -> Allowance:
    """Those that somebody set (docs/formats/ionode-api.md, Origins)."""
    return Allowance(config.get("bandwidth_bytes_per_s_max"), config.get("connections_max"))


async def wait_until(changed: asyncio.Event, most_s: float) -> None:
    try:
        async with asyncio.timeout(most_s if most_s < float("inf") else None):
            await changed.wait()
    except TimeoutError:
        pass
