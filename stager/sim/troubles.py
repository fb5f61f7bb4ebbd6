"""Makes the troubles of a fault schedule happen, and end. One rule: it only does what could happen to real nodes, origins, processes and
lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from stager.model.errors import ErrorClass, Fault
from stager.scheduler import events as ev
from stager.sim.departures import DEPARTURES, Departures
from stager.sim.faults import Trouble
from stager.sim.host_troubles import HostTroubles
from stager.sim.node import SimNode

if TYPE_CHECKING:
    from stager.sim.world import SimWorld

DAMAGE = Fault(ErrorClass.CORRUPT, "checksum_mismatch", "the scrubber found it damaged; it is quarantined and has to be made again")


class Troubles:
    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.crash_lasts_s = 0.0
        self.usual_bytes_per_s: dict[str, dict[str, float]] = {}  # of each link of a node that is slow
        self.hosts, self.departures = HostTroubles(world), Departures(world, self)
        for trouble in world.faults.troubles:
            world.clock.at(trouble.at, getattr(self.maker_of(trouble.what), trouble.what), trouble)

    def maker_of(self, what: str) -> object:
        if what.startswith("host_"):
            return self.hosts
        return self.departures if what in DEPARTURES else self

    def crash(self, trouble: Trouble) -> None:
        """The scheduler dies in the middle of the next batch's commands."""
        self.world.crash_due, self.crash_lasts_s = True, trouble.lasts_s

    def restart(self, trouble: Trouble) -> None:
        """The node process dies: what was under way is gone, what was committed stays; one replica may come back damaged."""
        node = self.pick_node(trouble)
        if not node.up:
            return
        self.die(node)
        self.world.clock.after(trouble.lasts_s, self._started, node, trouble)

    def die(self, node: SimNode) -> None:
        """Its process ends, with all that was under way."""
        node.up = False
        self.world.transfers.vanish(node)
        self.world.unheard(node)
        if node.heard:
            self.world.say(None, ev.NodeLost(at=self.world.clock.now, node=node.id))

    def _started(self, node: SimNode, trouble: Trouble) -> None:
        if node.absent:
            return
        node.up = True
        node.starts += 1
        if trouble.at_share < 0.3 and node.replicas:
            self._damage(node, trouble)
        self.heard_again(node)

    def lost(self, trouble: Trouble) -> None:
        """The node dies with its disk, and the jobs beside it with it; another machine of its name comes up empty."""
        node = self.pick_node(trouble)
        if not node.up:
            return
        self.die(node)
        executor = self.world.executor
        for trying in [trying for trying in executor.open.values() if trying.node is node]:
            executor.lose(trying)
        self.forget(node)
        node.wipe()
        self.world.clock.after(trouble.lasts_s, self._replaced, node)

    def forget(self, node: SimNode) -> None:
        """It is gone with what it, and the jobs beside it, would have told a scheduler that is dead now."""
        world = self.world
        attempts = {attempt for attempt, command in world.attempts_open.items() if command.node == node.id}
        for attempt in attempts:
            world.executor.results.pop(attempt, None)
        for host in world.hosts.values():
            host.forget(node.id)
        gone = [event for event in world.held if getattr(event, "node", "") == node.id or getattr(event, "attempt", "") in attempts]
        world.held = [event for event in world.held if event not in gone]

    def _replaced(self, node: SimNode) -> None:
        if node.absent:
            return
        node.up = True
        node.starts += 1
        self.heard_again(node)

    def outage(self, trouble: Trouble) -> None:
        """The node lives and works, but cannot be reached."""
        node = self.pick_node(trouble)
        if not node.heard:
            return
        node.heard = False
        if node.up:
            self.world.say(None, ev.NodeLost(at=self.world.clock.now, node=node.id))
        self.world.clock.after(trouble.lasts_s, self._reached, node, trouble)

    def _reached(self, node: SimNode, trouble: Trouble) -> None:
        node.heard = True
        if trouble.at_share < 0.5 and node.up:
            for event in self.world.unheard(node):
                self.world.say(node, replace(event, at=self.world.clock.now))
        self.heard_again(node)

    def heard_again(self, node: SimNode) -> None:
        if node.answers:
            self.world.say_state(node)
            self.world.executor.node_answers(node)

    def slow(self, trouble: Trouble) -> None:
        """Its disk, its network and its lines have a tenth of what they had."""
        node, links = self.pick_node(trouble).id, self.world.links
        if node in self.usual_bytes_per_s:
            return
        usual = self.usual_bytes_per_s[node] = {name: rate for name, rate in links.bytes_per_s.items() if name.endswith(f":{node}")}
        for name, rate in usual.items():
            links.set_rate(self.world.clock.now, name, rate / 10)
        self.world.clock.after(trouble.lasts_s, self._fast, node)

    def _fast(self, node: str) -> None:
        for name, rate in self.usual_bytes_per_s.pop(node).items():
            self.world.links.set_rate(self.world.clock.now, name, rate)

    def origin(self, trouble: Trouble) -> None:
        origins = list(self.world.origins.values())
        if not origins:
            return
        origin = origins[int(trouble.at_share * len(origins))]
        origin.fault_code = trouble.code
        self.world.clock.after(trouble.lasts_s, self._mended, origin.url)

    def _mended(self, url: str) -> None:
        self.world.origins[url].fault_code = ""

    def corrupt(self, trouble: Trouble) -> None:
        """The scrubber finds a replica damaged."""
        node = self.pick_node(trouble)
        if node.up and node.replicas:
            key = self._damage(node, trouble)
            event = ev.ReplicaCorrupt(at=self.world.clock.now, node=node.id, file=key[0], generation=key[1], fault=DAMAGE)
            self.world.say(node, event)

    def kill(self, trouble: Trouble) -> None:
        """A job's host forgets it."""
        attempts = list(self.world.executor.open.values())
        if attempts:
            self.world.executor.lose(attempts[int(trouble.at_share * len(attempts))])

    def _damage(self, node: SimNode, trouble: Trouble) -> tuple[str, str]:
        keys = list(node.replicas)
        key = keys[int(trouble.at_share * 997) % len(keys)]
        node.replicas[key].quarantined = True
        return key

    def pick_node(self, trouble: Trouble) -> SimNode:
        nodes = list(self.world.nodes.values())
        return nodes[int(trouble.at_share * len(nodes))]
