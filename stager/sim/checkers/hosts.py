"""An attempt starts on one host, which the scheduler takes to answer and which has all that its job asks for beside what runs there; no two
attempts of a job live at once. One rule: judged by what the scheduler was told, and by what really runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.checkers.capacity import BUSY, is_native
from stager.sim.checkers.quiet import QuietChecker
from stager.sim.host import SimHost
from stager.sim.world import Violation

if TYPE_CHECKING:
    from stager.sim.world import SimWorld

# A host, and cores, bytes of memory and bytes of scratch space there.
Used = tuple[str, int, int, int]


class HostChecker(QuietChecker):
    """`used`: by attempt, its host and what it has there, by what the scheduler was told. `beside`: the node of each attempt that was
    started, and `stores` which store each node has: with that all its attempts count no more, and may live on where nobody hears of it.
    `open`: by host and node, what was open at some moment of this batch. Events of a batch are decided on one after the other, so a start
    may come before the word by which its host is closed.
    """

    def __init__(self) -> None:
        self.known: dict[str, ev.HostReported] = {}
        self.closed: set[str] = set()
        self.drains: set[str] = set()
        self.used: dict[str, Used] = {}
        self.beside: dict[str, str] = {}
        self.stores: dict[str, str] = {}
        self.open: dict[tuple[str, str], ev.HostReported] = {}

    def heard(self, world: SimWorld, events: Sequence[Any]) -> None:
        for number, event in enumerate(events):
            self._hear(event)
            if number == 0 or isinstance(event, ev.SchedulerStarted):
                self.open.clear()
            self.open |= {(host.host, host.node): host for host in self.known.values() if self._is_open(host.host)}

    def _is_open(self, host: str) -> bool:
        return host not in self.closed and host not in self.drains

    def _hear(self, event: Any) -> None:
        if isinstance(event, ev.NodeGone) or (isinstance(event, ev.NodeReported) and self._is_new(event)):
            self._leave(event.node)
        elif isinstance(event, ev.SchedulerStarted):
            self.closed |= self.known.keys()
        elif isinstance(event, ev.HostReported):
            before = self.known.get(event.host)
            if before is None or before.incarnation != event.incarnation:
                self.drains.discard(event.host)
            self.known[event.host] = event
            self.closed.discard(event.host)
        elif isinstance(event, ev.HostLost):
            self.closed.add(event.host)
        elif isinstance(event, ev.HostDraining):
            self.drains.add(event.host)
        elif isinstance(event, ev.HostGone):
            self.known.pop(event.host, None)
        elif isinstance(event, ev.AttemptEnded):
            self.used.pop(event.attempt, None)
        elif isinstance(event, ev.AttemptWaits) and event.attempt in self.used:
            host, _, _, scratch_bytes = self.used[event.attempt]
            self.used[event.attempt] = (host, 0, 0, scratch_bytes)

    def about_to(self, world: SimWorld, command: Any) -> None:
        if not isinstance(command, cmd.StartAttempt):
            return
        run = world.runs[command.run]
        if not world.hosts or run.workflow.engine:
            if command.host:
                raise Violation(f"attempt {command.attempt} is started on host {command.host}, and has none")
            return
        host, job = self.open.get((command.host, command.node)), run.workflow.jobs[command.job]
        if host is None:
            where = f"host {command.host!r} beside {command.node}"
            raise Violation(f"attempt {command.attempt} is started on {where}, where nothing is to be started")
        here = [slot for slot in self.used.values() if slot[0] == command.host]
        asked = (job.cores, job.memory_bytes or 0, command.reserve_bytes)
        taken = (sum([slot[1] for slot in here]), sum([slot[2] for slot in here]), sum([slot[3] for slot in here]))
        whole = (host.cores, host.memory_bytes, host.scratch_bytes)
        for what, more, used, most in zip(("cores", "bytes of memory", "bytes of scratch space"), asked, taken, whole, strict=True):
            if most is not None and used + more > most:
                raise Violation(f"attempt {command.attempt} wants {more} {what} on {host.host}, where {used} of {most} are taken")
        self.used[command.attempt] = (command.host, *asked)
        self.beside[command.attempt] = command.node

    def _is_new(self, event: ev.NodeReported) -> bool:
        before, self.stores[event.node] = self.stores.get(event.node, ""), event.store_id
        return before not in ("", event.store_id)

    def _leave(self, node: str) -> None:
        for attempt in [attempt for attempt, where in self.beside.items() if where == node]:
            self.beside[attempt] = ""
            self.used.pop(attempt, None)

    def after(self, world: SimWorld) -> None:
        live: dict[tuple[str, str], str] = {}
        for attempt, run, job in under_way(world):
            if self.beside.get(attempt) == "":
                continue
            if (run, job) in live:
                raise Violation(f"{attempt} and {live[run, job]} of job {job} of {run} live at once")
            live[run, job] = attempt
        by_host: dict[SimHost, int] = {}
        for trying in world.executor.open.values():
            if trying.host is not None and trying.state in BUSY and is_native(world, trying):
                by_host[trying.host] = by_host.get(trying.host, 0) + trying.job.cores
        for host, cores in by_host.items():
            if cores > host.size.cores:
                raise Violation(f"host {host.id}: {cores} cores busy of {host.size.cores}")


def under_way(world: SimWorld) -> Iterator[tuple[str, str, str]]:
    """(attempt, run, job) of what runs, and of what a host that is not heard begins once it is."""
    for attempt, trying in world.executor.open.items():
        if is_native(world, trying):
            yield attempt, trying.command.run, trying.command.job
    for host in world.hosts.values():
        for attempt, command in host.starts.items():
            yield attempt, command.run, command.job
