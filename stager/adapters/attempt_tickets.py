"""The tickets of attempts whose hosts share no files with their nodes: opened before a host is asked, closed when they are over.

May know: the node's calls, the worker's specs. One rule: an attempt is opened with one content; where another one has to be told, the
attempt is closed first, so that two tickets of it are never good at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from stager.adapters.ionode import IoNode, PeerAddress
from stager.adapters.remote_node import Ticket
from stager.model.errors import InvalidInput, StagerError
from stager.scheduler import commands as cmd
from stager.wire.node import ClosedAttempt, NodeReplica
from stager.worker import AttemptResult, AttemptSpec, InputAccess, Outcome
from stager.worker.node_port import UNASKED_CODES

log = logging.getLogger(__name__)
COMMITTED = "committed"
OTHER_CONTENT_CODE = "bad_request"
CLOSED_CODE = "ticket_closed"


@dataclass(frozen=True, slots=True)
class Door:
    """How a node that answers now is called from here, and where hosts reach it."""

    client: IoNode
    peer: PeerAddress


@dataclass(frozen=True, slots=True)
class Opened:
    """`incarnation`: of the node that was told the brief."""

    command: cmd.StartAttempt
    body: Mapping[str, object] = field(repr=False)
    incarnation: str
    ticket: str = field(repr=False)


class Committed(Exception):
    """The attempt was over before it could be opened again: its outputs are at the node."""

    def __init__(self, ending: AttemptResult) -> None:
        super().__init__(ending.attempt_id)
        self.ending = ending


class NotOpened(Exception):
    """The node's answer is that the attempt cannot be."""

    def __init__(self, problem: StagerError) -> None:
        super().__init__(problem.message)
        self.fault = problem.fault()


class AttemptTickets:
    """On the event loop's thread. `door` raises Transient where the node does not answer. `ca`: the file with the cluster's authority."""

    def __init__(self, door: Callable[[str], Door], ca: Path, epoch: int) -> None:
        self.door, self.ca, self.epoch = door, ca, epoch
        self.opened: dict[str, Opened] = {}
        self.locks: dict[str, asyncio.Lock] = {}

    async def of(self, command: cmd.StartAttempt, spec: AttemptSpec) -> Ticket:
        """Of the incarnation that lives now, which knows the brief. Raises NotOpened, Committed, and StagerError where the node could not
        be asked or the job cannot run so.
        """
        async with self.locks.setdefault(command.attempt, asyncio.Lock()):
            known, door = self.opened.get(command.attempt), self.door(command.node)
            if known is None or known.incarnation != door.client.incarnation:
                known = await self._open(command, known.body if known is not None else body_of(command, spec), door)
            by_tls = not door.peer.token
            return Ticket(
                attempt_id=command.attempt,
                address=door.peer.address,
                ticket=known.ticket,
                epoch=self.epoch,
                node_id=command.node,
                ca_pem=self.ca.read_text() if by_tls else None,
            )

    async def grant(self, command: cmd.StartAttempt, size_bytes: int) -> None:
        await self.door(command.node).client.put_reservation(command.attempt, size_bytes)

    async def open_again(self, node: str) -> None:
        """Those that this incarnation of the node was not told: its leases and briefs."""
        for attempt, known in list(self.opened.items()):
            async with self.locks.setdefault(attempt, asyncio.Lock()):
                if known.command.node != node or self.opened.get(attempt) is not known:
                    continue
                try:
                    door = self.door(node)
                    if door.client.incarnation != known.incarnation:
                        await self._open(known.command, known.body, door)
                except (StagerError, NotOpened, Committed) as problem:
                    log.info("attempt %s is not opened again at node %s for now: %s", attempt, node, problem)

    async def close(self, command: cmd.StartAttempt) -> ClosedAttempt:
        """Nothing of it is taken from now on. Raises StagerError."""
        async with self.locks.setdefault(command.attempt, asyncio.Lock()):
            # Also where the node cannot be told now: it is over, and not to be opened again.
            self.opened.pop(command.attempt, None)
            self.locks.pop(command.attempt, None)
            return await self.door(command.node).client.close_attempt(command.attempt)

    async def close_over(self, command: cmd.StartAttempt) -> None:
        """Its end is recorded. A node that is away is told when it reports what it still has open."""
        try:
            await self.close(command)
        except StagerError as problem:
            log.info("attempt %s stays open at node %s for now: %s", command.attempt, command.node, problem.message)

    async def _open(self, command: cmd.StartAttempt, body: Mapping[str, object], door: Door) -> Opened:
        incarnation = door.client.incarnation
        try:
            try:
                answer = await door.client.open_attempt(command.attempt, body)
            except StagerError as problem:
                if problem.code not in (OTHER_CONTENT_CODE, CLOSED_CODE):
                    raise
                # A scheduler before this one has opened it, with variables that are not known any more.
                closed = await door.client.close_attempt(command.attempt)
                if closed.state == COMMITTED:
                    raise Committed(made_of(command, closed)) from problem
                answer = await door.client.open_attempt(command.attempt, body)
        except StagerError as problem:
            if problem.code in UNASKED_CODES:
                raise
            # Its space may have been set before.
            with contextlib.suppress(StagerError):
                no_sandbox = {"sandbox_dir": None, "remove_sandbox": False, "reservation_id": command.attempt}
                await door.client.release(command.attempt, no_sandbox)
            raise NotOpened(problem) from problem
        opened = self.opened[command.attempt] = Opened(command, body, incarnation, answer.ticket)
        return opened


def body_of(command: cmd.StartAttempt, spec: AttemptSpec) -> dict[str, object]:
    """Raises InvalidInput for a job that such a host cannot run."""
    if spec.direct:
        path = spec.direct[0].path
        text = f"job {spec.job_id!r} reads {path!r} directly at its origin, and host {command.host} shares no files with its I/O node"
        raise InvalidInput(f"{text}; submit it with --no-direct", code="direct_elsewhere", subject=path)
    told = replace(spec, inputs=tuple(replace(entry, access=InputAccess.COPY) for entry in spec.inputs))
    reservation = {"id": told.reservation, "bytes": told.reserve_bytes} if told.reserve_bytes else None
    return {
        "inputs": [entry.to_wire() for entry in told.inputs],
        "outputs": [entry.to_wire() for entry in told.outputs],
        "reservation_id": told.reservation,
        "reservation": reservation,
        "brief": msgspec.to_builtins(told),
    }


def spec_of(brief: object) -> AttemptSpec:
    return msgspec.convert(brief, AttemptSpec)


def made_of(command: cmd.StartAttempt, closed: ClosedAttempt) -> AttemptResult:
    """Outputs are sent after a job that ended well, and by nobody else."""
    outputs = tuple(output_of(entry) for entry in closed.outputs)
    return AttemptResult(attempt_id=command.attempt, outcome=Outcome.OK, exit_code=0, outputs=outputs)


def output_of(entry: NodeReplica) -> dict[str, object]:
    told: dict[str, object] = msgspec.to_builtins(entry)
    return told
