"""The continuation on the event loop of a batch that was carried out: attempts that were under way go on, and those who wait are woken.

May know: the executors, what is outstanding. One rule: an attempt of an earlier scheduler is taken up only when the Machine knows its node,
and waits for no other node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stager.adapters.executor_engine import Executors
from stager.runtime.inbox import Inbox
from stager.runtime.outstanding import Outstanding
from stager.scheduler import events as ev
from stager.service.inquiry import Pulse
from stager.service.lifetime import Lifetime
from stager.tasks import Tasks


class Continuation:
    """On the event loop's thread. `awaited`: the nodes without which the scheduler takes no runs."""

    def __init__(
        self,
        outstanding: Outstanding,
        executors: Executors,
        inbox: Inbox,
        tasks: Tasks,
        lifetime: Lifetime,
        pulse: Pulse,
        awaited: Collection[str],
    ) -> None:
        self.outstanding, self.executors, self.inbox = outstanding, executors, inbox
        self.tasks, self.lifetime, self.pulse = tasks, lifetime, pulse
        self.awaited = frozenset(awaited)
        # The nodes that have reported to this scheduler.
        self.met: set[str] = set()

    def begin(self) -> None:
        """The journal is replayed, and contact is made with the nodes."""
        self._ready_if_met()

    def carried_out(self, events: Sequence[ev.Event]) -> None:
        """A task that is woken here asks the driving thread, which first ends its own watch over this batch."""
        for event in events:
            if type(event) is ev.NodeReported:
                self.executors.node_is_there(event.node)
            if type(event) is ev.NodeReported and event.node not in self.met:
                self.met.add(event.node)
                self._take_up(event.node)
                self._ready_if_met()
            elif type(event) is ev.HostGone:
                self.executors.host_gone(event.host)
            elif type(event) is ev.RunResumed:
                self.executors.unpark(event.run)
        self.pulse.beat()

    def _take_up(self, node: str) -> None:
        """The Machine knows the node: attempts that were under way there go on."""
        outstanding = self.outstanding
        for command in [each for each in outstanding.attempts.values() if each.node == node]:
            if not self.executors.is_started(command.attempt):
                self.executors.start(command)
        for grant in [each for each in outstanding.grants.values() if each.node == node]:
            self.executors.grant(grant)
        for kill in [each for each in outstanding.kills.values() if each.node == node]:
            self.executors.kill(kill)

    def _ready_if_met(self) -> None:
        """Times that the Machine asked for have come only now, since it could do nothing before."""
        if self.lifetime.ready.is_set() or not self.awaited <= self.met:
            return
        for wake_at in self.outstanding.wakes:
            self.inbox.wake_at(wake_at)
        self.tasks.start("the sweep of old attempts", self.executors.sweep(self.outstanding.attempts))
        self.lifetime.ready.set()
