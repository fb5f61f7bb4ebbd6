"""The worker's NodePort on a host that shares no files with the I/O node: programs of stager-ionode that copy inputs and send outputs.

May know: the programs' orders (docs/formats/ionode-api.md, "Programs on the other host"), the model's errors. One rule: a ticket goes
over stdin, never into an argument, an environment or a file.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from stager.adapters.ionode import error_of
from stager.model.errors import Refused, StagerError, Transient
from stager.wire import node as said

A = TypeVar("A")
# The node was not reached, as `connection_lost` says of a connection: nothing is known of the attempt.
AWAY_CODES = frozenset({"peer_unreachable"})
TICKET_UNKNOWN_CODE = "ticket_unknown"
# Of the programs, with an error on stdout.
EXIT_FAULT = 1


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a host needs to take part in one attempt. `address`: host:port of the node, or the path of its socket.

    `ca_pem`: of the cluster's authority; None: the line is not encrypted. `epoch`: the one that the attempt was opened under.
    """

    attempt_id: str
    address: str
    ticket: str = field(repr=False)
    epoch: int
    node_id: str | None = None
    ca_pem: str | None = field(default=None, repr=False)

    def order(self, request: Mapping[str, object] | None) -> bytes:
        """For the stdin of a program."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return msgspec.json.encode({**fields, "request": request})


class RemoteNode:
    """`binary`: the path of stager-ionode. Attempts are known by their tickets, which whoever starts them hands over."""

    def __init__(self, binary: str) -> None:
        self.binary = binary
        self.tickets: dict[str, Ticket] = {}

    def meet(self, ticket: Ticket) -> None:
        """From now on calls of this attempt can be made; a later ticket takes the place of the one before."""
        self.tickets[ticket.attempt_id] = ticket

    def forget(self, attempt_id: str) -> None:
        self.tickets.pop(attempt_id, None)

    def require(self, attempt_id: str) -> Ticket:
        """Raises Refused."""
        ticket = self.tickets.get(attempt_id)
        if ticket is None:
            raise Refused(f"this host has no ticket of the attempt {attempt_id}", code=TICKET_UNKNOWN_CODE, subject=attempt_id)
        return ticket

    async def put_reservation(self, reservation_id: str, size_bytes: int) -> None:
        """Does nothing: a ticket allows no more space, and whoever grants it has set it at the node by now."""

    async def stage_in(self, attempt_id: str, body: Mapping[str, object]) -> said.StagedIn:
        return await self._run(said.StagedIn, attempt_id, "stage-in", body)

    async def stage_out(self, attempt_id: str, body: Mapping[str, object]) -> said.StagedOut:
        return await self._run(said.StagedOut, attempt_id, "stage-out", body)

    async def release(self, attempt_id: str, body: Mapping[str, object]) -> said.Released:
        return await self._run(said.Released, attempt_id, "release", body)

    async def brief(self, attempt_id: str) -> object:
        """What the scheduler gave the node for this attempt. Raises Transient while a restarted node was not told it again."""
        return (await self._run(said.Brief, attempt_id, "fetch-brief", None)).brief

    async def _run(self, answer: type[A], attempt_id: str, program: str, request: Mapping[str, object] | None) -> A:
        """Raises StagerError as a call to the node would. Without a timeout: the program ends by itself where the node does not live."""
        ticket = self.require(attempt_id)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(self.binary, program, "--brief", "-", stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            printed, complaint = await process.communicate(ticket.order(request))
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        if process.returncode == 0:
            return msgspec.json.decode(printed, type=answer)
        raise as_lost(error_of(EXIT_FAULT, printed)) if printed else ended_early(program, process.returncode, complaint)


def as_lost(error: StagerError) -> StagerError:
    """A node that is not reached is said by one code, whichever way it was asked."""
    if error.code not in AWAY_CODES:
        return error
    return Transient(error.message, code="connection_lost", subject=error.subject)


def ended_early(program: str, code: int | None, complaint: bytes) -> StagerError:
    """Killed before it had an answer: what it did is found by doing it again."""
    tail = complaint[-500:].decode(errors="replace").strip()
    return Transient(f"stager-ionode {program} ended with {code} and no answer: {tail or 'it said nothing'}", code="connection_lost")
