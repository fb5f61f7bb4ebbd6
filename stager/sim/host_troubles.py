"""Makes what happens to compute hosts happen: they are lost and come back, go for good, drain, join, and are put beside another node.

One rule: the executor's contract (`HostGone`): each attempt of a host that is gone ends once, by what its node has committed of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from stager.model.topology import Host
from stager.scheduler import events as ev
from stager.sim.faults import Trouble
from stager.sim.host import SimHost, as_lost
from stager.sim.node import known_nodes

if TYPE_CHECKING:
    from stager.sim.world import SimWorld

# A machine that takes the place of another is there after so long at least.
REPLACED_AFTER_S = 1.0
# Until it is sure that nothing of a host can be committed any more; or until after another of its name is there.
CLOSED_AFTER_S = 0.2
CORES = (1, 2, 4, 8)


class HostTroubles:
    """Each takes its victim, a host that is not gone, by the trouble's share. No host: nothing happens."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self._joined = 0

    def say_state(self) -> None:
        """Of each host, to a scheduler that has come back."""
        world = self._world
        for host in world.hosts.values():
            if host.gone:
                world.say(None, ev.HostGone(at=world.clock.now, host=host.id))
                continue
            if host.heard:
                world.say(None, host.reported(world.clock.now))
            if host.drains:
                world.say(None, ev.HostDraining(at=world.clock.now, host=host.id))

    def host_lost(self, trouble: Trouble) -> None:
        """It cannot be reached for a while. In one case of three it starts anew meanwhile, and what ran there is lost."""
        world, host = self._world, self._pick(trouble)
        if host is None or not host.heard:
            return
        host.heard = False
        world.say(None, ev.HostLost(at=world.clock.now, host=host.id))
        world.clock.after(trouble.lasts_s, self._back, host, trouble.at_share * 7 % 1 < 1 / 3)

    def _back(self, host: SimHost, anew: bool) -> None:
        if host.gone or host.heard:
            return
        world, executor = self._world, self._world.executor
        host.heard = True
        if anew:
            host.lives += 1
            host.drains = False
        world.say(None, host.reported(world.clock.now))
        told, host.unheard = host.unheard, []
        for _, event in told:
            if not anew or type(event) is ev.AttemptEnded:
                world.say(None, replace(event, at=world.clock.now))
        if anew:
            for trying in [trying for trying in executor.open.values() if trying.host is host]:
                executor.lose(trying)
        starts, host.starts = host.starts, {}
        for command in starts.values():
            executor.start(command, world.nodes[command.node])
        grants, host.grants = host.grants, []
        for granted in grants:
            executor.grant(granted)
        kills, host.kills = host.kills, []
        for attempt in kills:
            executor.kill(attempt)

    def host_gone(self, trouble: Trouble) -> None:
        """For good; another machine of its size comes in its place, sometimes under its name."""
        host = self._pick(trouble)
        if host is not None:
            self._go(host, trouble)

    def host_drains(self, trouble: Trouble) -> None:
        """And then it is gone, whatever runs there."""
        world, host = self._world, self._pick(trouble)
        if host is None or host.drains:
            return
        host.drains = True
        world.say(None, ev.HostDraining(at=world.clock.now, host=host.id))
        world.clock.after(trouble.lasts_s, self._go, host, trouble)

    def _go(self, host: SimHost, trouble: Trouble) -> None:
        if host.gone:
            return
        world = self._world
        host.gone, host.heard = True, True
        world.say(None, ev.HostGone(at=world.clock.now, host=host.id, why="its machine is terminated"))
        closed_after_s = (0.0, CLOSED_AFTER_S, trouble.lasts_s + 2 * REPLACED_AFTER_S)[int(trouble.at_share * 5 % 1 * 3)]
        world.clock.after(closed_after_s, self._close, host)
        world.clock.after(trouble.lasts_s + REPLACED_AFTER_S, self._replace, host, trouble.at_share * 3 % 1 < 0.5)

    def _close(self, host: SimHost) -> None:
        world, executor = self._world, self._world.executor
        told, host.unheard = host.unheard, []
        for _, event in told:
            if type(event) is ev.AttemptEnded:
                kept = event if event.outcome is ev.Outcome.OK else as_lost(event)
                world.say(None, replace(kept, at=world.clock.now))
        for trying in [trying for trying in executor.open.values() if trying.host is host]:
            executor.lose(trying)
        starts, host.starts = host.starts, {}
        for command in starts.values():
            executor.refuse(command, None, ev.Outcome.LOST)

    def _replace(self, host: SimHost, same_name: bool) -> None:
        size = host.size
        if not same_name:
            self._joined += 1
            size = Host(f"joined{self._joined}", size.cores, size.memory_bytes, size.scratch_bytes)
        self._enter(SimHost(size, host.node, host.pool, host.tenant, lives=host.lives + 1))

    def host_joins(self, trouble: Trouble) -> None:
        """One more, beside any node."""
        self._joined += 1
        nodes = [node.id for node in known_nodes(self._world.nodes)]
        size = Host(f"joined{self._joined}", CORES[int(trouble.at_share * 13 % 1 * len(CORES))])
        self._enter(SimHost(size, nodes[int(trouble.at_share * len(nodes))]))

    def _enter(self, host: SimHost) -> None:
        if self._world.nodes[host.node].absent and self._world.nodes[host.node].wiped:
            host.node = known_nodes(self._world.nodes)[0].id
        self._world.hosts[host.id] = host
        self._world.say(None, host.reported(self._world.clock.now))

    def host_moves(self, trouble: Trouble) -> None:
        """Another node is nearest to it now. What runs there goes on with the node of before."""
        world, host = self._world, self._pick(trouble)
        if host is not None and host.heard:
            nodes = [node.id for node in known_nodes(world.nodes)]
            host.node = nodes[int(trouble.at_share * 11 % 1 * len(nodes))]
            world.say(None, host.reported(world.clock.now))

    def _pick(self, trouble: Trouble) -> SimHost | None:
        hosts = [host for host in self._world.hosts.values() if not host.gone and trouble.code in ("", host.id)]
        return hosts[int(trouble.at_share * len(hosts))] if hosts else None
