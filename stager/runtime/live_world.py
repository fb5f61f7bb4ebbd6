"""The World that production lives in: real time, a real journal, real nodes and processes.

May know: the ports, adapters, the inbox. One rule: what the journal does not hold has not happened: commands are carried out only after
their batch is in it, and one node that cannot be asked keeps no command for another from being carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeGuard, get_args

from stager.model.errors import StagerError
from stager.ports import Journal
from stager.runtime.inbox import Inbox
from stager.runtime.node_calls import ToNode
from stager.runtime.node_link import NodeLink
from stager.runtime.outstanding import Outstanding
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.tasks import Tasks

log = logging.getLogger(__name__)
TO_NODES = frozenset(get_args(ToNode))
TRANSFER_ENDS = (ev.TransferDone, ev.TransferFailed, ev.TransferCancelled)


class Attempts(Protocol):
    """Starts, ends and finds attempts; every end is put as an event."""

    def start(self, command: cmd.StartAttempt) -> None: ...
    def grant(self, command: cmd.GrantSpace) -> None: ...
    def kill(self, command: cmd.KillAttempt) -> None: ...


class LiveWorld:
    """Taken from and performed for by the driving thread; acts on the event loop's thread, and nothing there waits for one slow thing."""

    def __init__(
        self,
        journal: Journal,
        inbox: Inbox,
        outstanding: Outstanding,
        loop: asyncio.AbstractEventLoop,
        carried_out: Callable[[Sequence[ev.Event]], None],
    ) -> None:
        """`carried_out` is called on the loop's thread after each batch: one wake-up of the loop serves both."""
        self.journal, self.inbox, self.outstanding, self.loop, self.carried_out = journal, inbox, outstanding, loop, carried_out
        self.links: dict[str, NodeLink] = {}
        self.attempts: Attempts | None = None
        self.callbacks: list[Callable[[], None]] = []
        self.tasks = Tasks()
        self.last_batch = 0
        self.failure: BaseException | None = None

    def events(self) -> Iterable[Sequence[ev.Event]]:
        while (batch := self.inbox.take()) is not None:
            events, self.callbacks = batch
            yield events

    def perform(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        self.last_batch = self.journal.append(events, commands)
        for command in commands:
            if type(command) is cmd.WakeAt:
                self.inbox.wake_at(command.wake_at)
        self.loop.call_soon_threadsafe(self._carry_out, events, commands, self.callbacks)
        self.callbacks = []

    def open(self, links: Iterable[NodeLink], attempts: Attempts) -> None:
        """Makes contact with the nodes; on the loop's thread, after the journal was replayed."""
        self.attempts = attempts
        for link in links:
            self.add(link)

    def add(self, link: NodeLink) -> None:
        """Makes contact with one node more; at any time."""
        self.links[link.node] = link
        self.tasks.start(f"the link to node {link.node}", link.run(), self.fatal)

    async def close(self) -> None:
        self.inbox.close()
        for link in self.links.values():
            await link.close()
        await self.tasks.close()

    def fatal(self, problem: BaseException | None) -> None:
        """The scheduler cannot go on: another one took over, or a defect. Ends the drive; whoever composed the world says so."""
        if self.failure is None:
            self.failure = problem or StagerError("the world ended without a reason")
            self.inbox.close()

    def _carry_out(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command], callbacks: Sequence[Callable[[], None]]) -> None:
        """On the loop's thread, batch by batch in the order of the journal. What fails here ends the scheduler: the next one does what is
        left of it, by the journal, and nobody else would.
        """
        try:
            self._done(events, commands, callbacks)
        except Exception as problem:
            log.exception("a batch of the journal was not carried out")
            self.fatal(problem)

    def _done(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command], callbacks: Sequence[Callable[[], None]]) -> None:
        for callback in callbacks:
            callback()
        self.outstanding.saw(events)
        for event in events:
            if type(event) is ev.NodeReported and event.node in self.links:
                self.links[event.node].go_up()
            elif isinstance(event, TRANSFER_ENDS) and event.node in self.links:
                self.links[event.node].allowances.over(event.transfer)
            elif type(event) is ev.NodeGone and event.node in self.links:
                self.links[event.node].given_up()
            elif type(event) is ev.RunResumed:
                for link in self.links.values():
                    link.resumed(event.run)
        self.outstanding.gave(commands)
        unknown: dict[str, str] = {}
        for command in commands:
            if (node := self._do(command)) is not None:
                unknown.setdefault(node, command.id)
        for node, cause in unknown.items():
            log.error("this scheduler has no I/O node %s, so it counts as lost: what was asked of it waits until it is there", node)
            self.inbox.put(ev.NodeLost(at=0.0, cause=cause, node=node))
        self.carried_out(events)

    def _do(self, command: cmd.Command) -> str | None:
        """The node that this was for, where there is none of that name: nothing was done then."""
        if goes_to_node(command):
            if (link := self.links.get(command.node)) is None:
                return command.node
            link.carry_out(command)
        elif self.attempts is None:
            return None
        elif isinstance(command, cmd.StartAttempt):
            if (link := self.links.get(command.node)) is None:
                return command.node
            self.attempts.start(command)
            link.job_begins(command.run, command.job)
        elif isinstance(command, cmd.GrantSpace):
            self.attempts.grant(command)
        elif isinstance(command, cmd.KillAttempt):
            self.attempts.kill(command)
        return None


def goes_to_node(command: cmd.Command) -> TypeGuard[ToNode]:
    return type(command) in TO_NODES
