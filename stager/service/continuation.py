"""The continuation on the event loop of a batch that was carried out: attempts that were under way go on, and those who wait are woken.

May know: the executors, what is outstanding. One rule: an attempt of an earlier scheduler is taken up only when the Machine knows its node.
"""

from __future__ import annotations

from collections.abc import Sequence

from stager.adapters.executor_engine import Executors
from stager.runtime.inbox import Inbox
from stager.runtime.outstanding import Outstanding
from stager.scheduler import events as ev
from stager.service.inquiry import Pulse
from stager.service.lifetime import Lifetime
from stager.tasks import Tasks


class Continuation:
    """On the event loop's thread."""

    def __init__(
        self, outstanding: Outstanding, executors: Executors, inbox: Inbox, tasks: Tasks, lifetime: Lifetime, pulse: Pulse
    ) -> None:
        self.outstanding, self.executors, self.inbox = outstanding, executors, inbox
        self.tasks, self.lifetime, self.pulse = tasks, lifetime, pulse

    def carried_out(self, events: Sequence[ev.Event]) -> None:
        """A task that is woken here asks the driving thread, which first ends its own watch over this batch."""
        for event in events:
            if type(event) is ev.NodeReported and not self.lifetime.ready.is_set():
                self._go_on()
            elif type(event) is ev.RunResumed:
                self.executors.unpark(event.run)
        self.pulse.beat()

    def _go_on(self) -> None:
        """The Machine knows the node: attempts that were under way are taken up."""
        outstanding = self.outstanding
        for command in list(outstanding.attempts.values()):
            if not self.executors.is_started(command.attempt):
                self.executors.start(command)
        for grant in list(outstanding.grants.values()):
            self.executors.grant(grant)
        for kill in list(outstanding.kills.values()):
            self.executors.kill(kill)
        for wake_at in outstanding.wakes:
            self.inbox.wake_at(wake_at)
        self.tasks.start("the sweep of old attempts", self.executors.sweep(outstanding.attempts))
        self.lifetime.ready.set()
