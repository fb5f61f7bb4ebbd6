"""Nodes that leave for good, that are to leave, and that come late.

One rule: the same as for all troubles: it only does what could happen to real nodes, and to those who look after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stager.scheduler import events as ev
from stager.sim.faults import Trouble
from stager.sim.node import SimNode, known_nodes
from stager.sim.sampling import fraction

DEPARTURES = ("gone", "drains", "joins")
DRAINED = "drained"
HOSTS_MOVE_AFTER_S = 2.0
# Of the nodes that are said to be gone, so many died; so many others could be reached all the time.
DIES_SHARE, MISTAKEN_SHARE = 0.6, 0.2


class Departures:
    """`world`, a SimWorld, and its `troubles` know of this module, which names neither.

    `may_leave`: whether nothing would be lost with a node. Who asks the Machine says so, where somebody does.
    """

    def __init__(self, world: Any, troubles: Any) -> None:
        self.world, self.troubles = world, troubles
        self.draining: set[str] = set()
        self.may_leave: Callable[[str], bool] | None = None
        for trouble in world.faults.troubles:
            if trouble.what == "joins" and (late := self._pick_other(trouble)) is not None:
                late.absent, late.up = True, False

    def gone(self, trouble: Trouble) -> None:
        """The node is gone for good, and somebody says so later: it died, its jobs with it or not; or it only cannot be reached, and comes
        back when nobody counts on it any more.
        """
        node, how = self.troubles.pick_node(trouble), fraction(self.world.faults.seed, "gone", str(trouble.at))
        if node.absent:
            return
        if how < DIES_SHARE and self._others(node):
            self.leave(node, with_jobs=how < DIES_SHARE / 2)
        elif node.heard:
            node.heard = False
            if node.up and how < 1.0 - MISTAKEN_SHARE:
                self.world.say(None, ev.NodeLost(at=self.world.clock.now, node=node.id))
        self.world.clock.after(trouble.lasts_s, self._told_gone, node, trouble)

    def leave(self, node: SimNode, with_jobs: bool) -> None:
        """With its disk, for good."""
        if node.up:
            self.troubles.die(node)
        executor = self.world.executor
        for trying in [trying for trying in executor.open.values() if trying.node is node and with_jobs]:
            executor.lose(trying)
        self.troubles.forget(node)
        node.absent, node.up = True, False
        node.wipe()
        self.world.clock.after(HOSTS_MOVE_AFTER_S, self._hosts_move, node)

    def _told_gone(self, node: SimNode, trouble: Trouble) -> None:
        node.heard = False
        self.world.say(None, ev.NodeGone(at=self.world.clock.now, node=node.id, why="somebody says so"))
        if not node.absent:
            self.world.clock.after(trouble.lasts_s + 1.0, self._returned, node)

    def _hosts_move(self, node: SimNode) -> None:
        """Compute hosts beside a node that died are put beside another one."""
        others = self._others(node)
        for host in [host for host in self.world.hosts.values() if host.node == node.id and not host.gone] if others else ():
            host.node = others[0].id
            if host.heard:
                self.world.say(None, host.reported(self.world.clock.now))

    def _returned(self, node: SimNode) -> None:
        """A stranger. What it would have said meanwhile nobody heard."""
        self.world.unheard(node)
        node.heard = True
        self.troubles.heard_again(node)

    def joins(self, trouble: Trouble) -> None:
        """A node comes late, of which some plans knew before."""
        node = self._pick_other(trouble)
        if node is not None and node.absent and not node.wiped:
            node.absent, node.up = False, True
            self.troubles.heard_again(node)

    def drains(self, trouble: Trouble) -> None:
        node = self.troubles.pick_node(trouble)
        if node.absent or not self._others(node) or node.id in self.draining:
            return
        self.draining.add(node.id)
        self.world.say(None, ev.NodeDraining(at=self.world.clock.now, node=node.id))
        stays = fraction(self.world.faults.seed, "drains", str(trouble.at)) < 0.5
        self.world.clock.after(trouble.lasts_s, self._drained, node, stays)

    def _drained(self, node: SimNode, stays: bool) -> None:
        """It leaves when nothing would be lost with it, and stays after all where that takes too long."""
        world = self.world
        if stays or self.may_leave is None or world.clock.now > world.faults.until_s:
            self.draining.discard(node.id)
            world.say(None, ev.NodeDraining(at=world.clock.now, node=node.id, draining=False))
        elif world.crashed or world.out or not node.answers or not self.may_leave(node.id):
            world.clock.after(0.5, self._drained, node, stays)
        elif self._others(node):
            self.leave(node, with_jobs=True)
            node.heard = False
            world.say(None, ev.NodeGone(at=world.clock.now, node=node.id, why=DRAINED))

    def _others(self, node: SimNode) -> list[SimNode]:
        """Nodes that stay if this one leaves."""
        return [other for other in known_nodes(self.world.nodes) if other is not node and other.id not in self.draining]

    def _pick_other(self, trouble: Trouble) -> SimNode | None:
        """Than the first, which is there from the beginning."""
        others = list(self.world.nodes.values())[1:]
        return others[int(trouble.at_share * len(others))] if others else None
