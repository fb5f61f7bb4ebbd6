"""One I/O node as the world sees it: contact, and its events in order and without gaps.

May know: the NodeClient port, the translation of events. One rule: between losing the node and the Machine having taken its next report
nothing new is asked of it: what it does not list then, the Machine asks for again, and nothing is ever asked for twice. A node that
refuses this scheduler excludes itself, and nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from stager.adapters.ionode import IoNode, PeerAddress
from stager.model.errors import Fault, Refused, StagerError, Transient
from stager.ports import Put
from stager.runtime.allowances import Allowances
from stager.runtime.credentials import CredentialBook
from stager.runtime.node_calls import Clock, NodeCalls, ToNode
from stager.runtime.outstanding import Outstanding
from stager.runtime.peering import Peering
from stager.runtime.store_owners import TAKEN_CODE, StoreOwners
from stager.runtime.wire_events import node_event, node_reported
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.tasks import Tasks
from stager.wire.node import EventPage, NodeAbout

log = logging.getLogger(__name__)
FORGOTTEN_CODE = "node_forgotten"
# A node that is silent is found away within 15 s: 14 with adapters/ionode.py::POLL_GRACE_S, and one to say so.
POLL_WAIT_S = 5.0
ACK_DELAY_S = 0.05
RETRY_S, RETRY_S_MAX = 0.05, 2.0


class NodeSource(Protocol):
    """Where a living node comes from: started and restarted here, or found. `peer_address`: of the node that was met last; None: other
    nodes cannot reach it. `apart`: on another host, so that it reaches no directory beside a workflow here.
    """

    @property
    def node_id(self) -> str: ...

    @property
    def apart(self) -> bool: ...

    @property
    def client(self) -> IoNode: ...

    def peer_address(self) -> PeerAddress | None: ...

    async def contact(self) -> IoNode: ...


class NodeLink:
    """`up` is True from the moment the Machine has taken the node's report until it is lost.

    `excluded`: it has refused this scheduler, so that nothing more is asked of it; `problem` says why. `refused` is told then: whoever
    composed the link decides what that means for all else. `fatal` is told of a defect.
    """

    def __init__(
        self,
        source: NodeSource,
        put: Put,
        outstanding: Outstanding,
        book: CredentialBook,
        fatal: Callable[[BaseException | None], None],
        refused: Callable[[StagerError], None],
        clock: Clock,
        peering: Peering,
        stores: StoreOwners,
        allowances: Allowances,
    ) -> None:
        self.source, self.put, self.outstanding, self.fatal, self.refused = source, put, outstanding, fatal, refused
        self.node, self.client = source.node_id, source.client
        self.peering, self.stores = peering, stores
        self.allowances = allowances.of(self.node, self.client)
        teller = peering.teller(self.node, self.client)
        self.calls = NodeCalls(self.node, self.client, put, outstanding, book, self.call_lost, clock, teller, self.allowances, source.apart)
        self.up = self.excluded = False
        self.about: NodeAbout | None = None
        self.problem: Fault | None = None
        self.seen_seq = self.acked_seq = self.durable_seq = 0
        self.stream: asyncio.Task[None] | None = None
        self.acking: asyncio.Task[None] | None = None
        self.tasks = Tasks()
        self.closing = self.asked_again = False
        # The incarnation that answered when the node was given up.
        self.forgotten = ""
        # It has answered, or a first contact with it has failed.
        self.tried = asyncio.Event()

    @property
    def address(self) -> str:
        """Where it is called."""
        where = self.client.pool.address
        return f"{where[0]}:{where[1]}" if isinstance(where, tuple) else str(where)

    async def run(self) -> None:
        """Contact, report, stream; over again whenever the node is lost. Ends by `close`, or when the node excludes itself."""
        delay_s = RETRY_S
        while not self.closing:
            self.stream = asyncio.create_task(self._meet_and_stream())
            await asyncio.wait([self.stream])
            lost = Transient(f"a call to the node {self.node} was lost")
            problem = lost if self.stream.cancelled() else self.stream.exception()
            if self.closing or self.excluded:
                return
            if self.asked_again:
                self.asked_again = False
                continue
            if not isinstance(problem, StagerError):
                self.fatal(problem)
                return
            # At its first start a refusal is for whoever started the scheduler to read; later the node may come back. One whose store is
            # another's is good as soon as that other is given up.
            is_refused = isinstance(problem, Refused) and problem.code != TAKEN_CODE and self.about is None
            if problem.code == "stale_epoch" or is_refused:
                self._exclude(problem)
                return
            delay_s = RETRY_S if self.up else min(delay_s * 2, RETRY_S_MAX)
            self._lost(problem.fault())
            await asyncio.sleep(delay_s)

    async def close(self) -> None:
        self.closing = True
        if self.stream is not None:
            self.stream.cancel()
        await self.tasks.close()
        await self.calls.close()

    def _lost(self, fault: Fault) -> None:
        if self.problem is None or self.problem.message != fault.message:
            log.warning("node %s: %s", self.node, fault.message)
        self.problem = fault
        self.tried.set()
        if self.up:
            self.up = False
            self.allowances.lost()
            self.put(ev.NodeLost(at=0.0, node=self.node))

    def _exclude(self, problem: StagerError) -> None:
        """Whoever composed the link is told first: where nothing goes on without this node, nobody hears that it is lost."""
        if not self.excluded:
            self.excluded = True
            self.refused(problem)
            self._lost(problem.fault())

    def call_lost(self, problem: StagerError) -> None:
        """A call found the node gone, another incarnation in its place, or another scheduler that rules it."""
        if problem.code == "stale_epoch":
            self._exclude(problem)
            if self.stream is not None:
                self.stream.cancel()
        elif self.up and self.stream is not None:
            log.warning("node %s: %s", self.node, problem.message)
            self.stream.cancel()

    async def _meet_and_stream(self) -> None:
        before = self.client.incarnation
        await self.source.contact()
        if self.client.incarnation == self.forgotten:
            text = f"the node {self.node} was forgotten while it answered; it is taken again when it is started again"
            raise Transient(text, code=FORGOTTEN_CODE, subject=self.node)
        if self.client.incarnation != before:
            self.seen_seq = self.acked_seq = self.durable_seq = 0
        self.calls.origins.clear()
        self.calls.readied.clear()
        about = await self.client.node()
        self.stores.claim(self.node, about.store_id)
        self.peering.met(self.node, self.source.peer_address())
        await self._report(about)
        while True:
            page = await self.client.poll_events(self.seen_seq, wait_s=POLL_WAIT_S)
            if page.gap:
                await self._report(await self.client.node())
            else:
                self._take(page)

    def _take(self, page: EventPage) -> None:
        for fact in page.node_events():
            event, seq = node_event(self.node, fact), fact.seq
            if event is None:
                self.durable(seq)
            else:
                self.put(event, partial(self.durable, seq))
            self.seen_seq = seq

    async def _report(self, about: NodeAbout) -> None:
        """The node's whole state as one event, after all events that lie before it."""
        self.up = False
        self.allowances.lost()
        await self.calls.quiet()
        state = await self.client.state()
        if self.seen_seq >= state.next_seq:
            self.seen_seq = 0
        # A gap does not matter here: the state that follows says all that the lost events said.
        while self.seen_seq < state.next_seq - 1:
            page = await self.client.poll_events(self.seen_seq, wait_s=0)
            self._take(page)
            if not page.events:
                self.seen_seq = state.next_seq - 1
        self.about, self.problem = about, None
        self.put(node_reported(self.node, about, state, self.source.apart))
        strays = [entry.attempt_id for entry in state.attempts if entry.attempt_id not in self.outstanding.attempts]
        if strays:
            self.tasks.start(f"the attempts of node {self.node} that are over", self._close(strays))

    async def _close(self, attempts: Sequence[str]) -> None:
        """Their ends are in the journal, and the node was not told."""
        for attempt in attempts:
            try:
                await self.client.close_attempt(attempt)
            except StagerError as problem:
                log.info("node %s: attempt %s is over, and stays open for now: %s", self.node, attempt, problem)
                return

    def durable(self, seq: int) -> None:
        """The journal holds this event and all before it: the node may forget them."""
        self.durable_seq = max(self.durable_seq, seq)
        if self.acking is None or self.acking.done():
            self.acking = self.tasks.start(f"the acknowledging of events of node {self.node}", self._acknowledge())

    async def _acknowledge(self) -> None:
        while self.acked_seq < self.durable_seq:
            await asyncio.sleep(ACK_DELAY_S)
            seq = self.durable_seq
            try:
                await self.client.ack_events(seq)
            except StagerError as problem:
                # They are sent again after the next contact, and are stale then.
                log.debug("node %s: events up to %d not acknowledged: %s", self.node, seq, problem)
                return
            self.acked_seq = max(self.acked_seq, seq)

    async def report_again(self) -> None:
        """Something was done at the node behind the Machine's back."""
        if self.up and self.stream is not None:
            self.asked_again = True
            self.stream.cancel()

    def go_up(self) -> None:
        """The Machine has taken the report: calls may be made again, those first whose answer was lost."""
        if self.excluded:
            # It excluded itself while its report was on the way.
            self.put(ev.NodeLost(at=0.0, node=self.node))
            return
        self.up = True
        self.tried.set()
        self.allowances.met(self.client.incarnation)
        self.calls.untold.clear()
        self._take_up(list(self.outstanding.transfers.values()))
        unanswered: list[cmd.CancelTransfer | cmd.EraseSpill] = [*self.outstanding.cancels.values(), *self.outstanding.erases.values()]
        for command in unanswered:
            if command.node == self.node:
                self.calls.carry_out(command)

    def given_up(self) -> None:
        """The Machine counts it as gone for good. Where it answers all the same, this incarnation of it does not come back."""
        self.stores.give_up(self.node)
        if self.up and self.stream is not None:
            self.forgotten = self.client.incarnation
            self.stream.cancel()

    def resumed(self, run: str) -> None:
        """Its credentials are there now. What the node goes on with for it could not be taken up without them."""
        if self.up:
            transfers = [command for transfer in self.calls.untold if (command := self.outstanding.transfers.get(transfer)) is not None]
            self._take_up([command for command in transfers if command.run == run])

    def _take_up(self, transfers: Sequence[cmd.Fetch | cmd.AssembleStripes | cmd.CopyReplica | cmd.Upload]) -> None:
        goes_on = [command for command in transfers if command.node == self.node and not isinstance(command, cmd.CopyReplica)]
        if goes_on:
            self.tasks.start(f"the transfers that node {self.node} goes on with", self.calls.take_up(goes_on))

    def job_begins(self, run: str, job: str) -> None:
        if self.up:
            self.tasks.start(f"getting node {self.node} ready for finals", self.calls.get_ready(run, job))

    def carry_out(self, command: ToNode) -> None:
        """Not while the node is lost: see the module's rule."""
        if self.up:
            self.calls.carry_out(command)
