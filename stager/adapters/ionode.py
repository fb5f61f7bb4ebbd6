"""The NodeClient port over HTTP: control of one I/O node (docs/formats/ionode-api.md).

May know: http_pool, the model's errors. One rule: it says what the node said.
It keeps no state but the address, the token, the epoch and the incarnation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from stager.adapters.http_pool import Header, Lost, Pool, Secure
from stager.model.errors import Fault, StagerError, Transient, error_from
from stager.wire import node as said

API_VERSION = 1
CALL_TIMEOUT_S = 30.0
LISTING_TIMEOUT_S = 600.0
POLL_GRACE_S = 9.0
# What needs no quoting, as `quote` has it.
PLAIN = re.compile(r"[A-Za-z0-9_.~-]*", re.ASCII)
LOST_CODES = frozenset({"connection_lost", "stale_incarnation", "draining"})
A = TypeVar("A")
Body = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Where other nodes reach a node, and what they show to be let in: by TLS nothing. `incarnation`: after a restart they are told
    again.
    """

    address: str
    token: str = field(repr=False)
    incarnation: str

    def body(self) -> Body:
        return {"address": self.address} | ({"token": self.token} if self.token else {})


class NodeCaller:
    """How a call is made. One incarnation is talked to at a time; whoever makes contact says which."""

    def __init__(
        self,
        address: Path | tuple[str, int],
        token: str,
        *,
        epoch: int,
        incarnation: str = "",
        secure: tuple[Secure, str] | None = None,
    ) -> None:
        self.pool = Pool(address, secure)
        self.token, self.epoch, self.incarnation = token, epoch, incarnation

    def meet(self, address: Path | tuple[str, int], token: str, incarnation: str) -> None:
        """From now on talk to this incarnation."""
        if (address, token, incarnation) != (self.pool.address, self.token, self.incarnation):
            self.pool.close()
            self.pool = Pool(address, self.pool.secure)
            self.token, self.incarnation = token, incarnation

    def close(self) -> None:
        self.pool.close()

    async def call(
        self,
        answer: type[A],
        method: str,
        target: str,
        body: Body | None = None,
        *,
        command_id: str = "",
        timeout_s: float | None = CALL_TIMEOUT_S,
    ) -> A:
        """Raises StagerError with the node's class and code; `connection_lost` if it cannot be asked."""
        headers: list[Header] = [
            ("Host", "stager-ionode"),
            ("X-Stager-Api", str(API_VERSION)),
            ("X-Stager-Epoch", str(self.epoch)),
            ("Content-Type", "application/json"),
        ]
        if self.token:
            headers.append(("Authorization", f"Bearer {self.token}"))
        if self.incarnation:
            headers.append(("X-Stager-Incarnation", self.incarnation))
        if command_id:
            headers.append(("X-Stager-Command", command_id))
        payload = msgspec.json.encode(body) if body is not None else b""
        try:
            status, data = await self.pool.request(method, target, headers, payload, timeout_s)
        except Lost as problem:
            raise Transient(f"the I/O node does not answer: {problem}", code="connection_lost") from problem
        except TimeoutError as problem:
            raise Transient(f"the I/O node did not answer {method} {target} within {timeout_s:.0f} s", code="timeout") from problem
        if status >= 400:
            raise error_of(status, data)
        try:
            return msgspec.json.decode(data or b"{}", type=answer)
        except msgspec.DecodeError as problem:
            text = f"the I/O node answers {method} {target} with what is not understood: {problem}"
            raise Transient(text, code="connection_lost") from problem


class OriginCalls(NodeCaller):
    """The questions about origins."""

    async def put_origin(self, origin_id: str, config: Body) -> None:
        await self.call(said.NoAnswer, "PUT", f"/v1/origins/{part(origin_id)}", config)

    async def allow(
        self, origin_id: str, bytes_per_s: int | None, connections: int | None, lease_s: float | None, *, timeout_s: float
    ) -> int:
        """What it may use of the origin from now on, for so long. Returns the connections that it has there still."""
        body = {"bandwidth_bytes_per_s_max": bytes_per_s, "connections_max": connections, "lease_s": lease_s}
        target = f"/v1/origins/{part(origin_id)}/allowance"
        return (await self.call(said.AllowanceAnswer, "PUT", target, body, timeout_s=timeout_s)).connections

    async def stat(self, origin_id: str, paths: Sequence[str]) -> list[said.StatEntry]:
        body = {"paths": list(paths)}
        answer = await self.call(said.StatAnswer, "POST", f"/v1/origins/{part(origin_id)}/stat", body, timeout_s=LISTING_TIMEOUT_S)
        return answer.entries

    async def probe(self, origin_id: str, path: str, *, write: bool) -> list[Fault]:
        """What keeps this directory from being read, or written."""
        target = f"/v1/origins/{part(origin_id)}/probe"
        answer = await self.call(said.ProbeAnswer, "POST", target, {"path": path, "write": write}, timeout_s=LISTING_TIMEOUT_S)
        return [finding.fault() for finding in answer.findings]

    async def get_ready(self, origin_id: str, files: int) -> None:
        """So many files will go there soon: the node logs in now."""
        await self.call(said.NoAnswer, "POST", f"/v1/origins/{part(origin_id)}/ready", {"files": files})

    async def put_mount(self, origin_id: str) -> said.MountAnswer:
        """Longer than the node waits for the origin (30 s)."""
        return await self.call(said.MountAnswer, "PUT", f"/v1/mounts/{part(origin_id)}", timeout_s=2 * CALL_TIMEOUT_S)

    async def erase(self, origin_id: str, path: str, token: str | None, *, command_id: str) -> bool:
        body = {"path": path, "token": token}
        target = f"/v1/origins/{part(origin_id)}/erase"
        answer = await self.call(said.EraseAnswer, "POST", target, body, command_id=command_id, timeout_s=LISTING_TIMEOUT_S)
        return answer.erased


class IoNode(OriginCalls):
    """The calls of one I/O node."""

    async def node(self) -> said.NodeAbout:
        return await self.call(said.NodeAbout, "GET", "/v1/node")

    async def state(self) -> said.NodeState:
        return await self.call(said.NodeState, "GET", "/v1/state", timeout_s=LISTING_TIMEOUT_S)

    async def set_capacity(self, capacity_bytes: int) -> None:
        await self.call(said.NoAnswer, "PUT", "/v1/capacity", {"capacity_bytes": capacity_bytes})

    async def put_peer(self, node_id: str, peer: PeerAddress) -> None:
        await self.call(said.NoAnswer, "PUT", f"/v1/peers/{part(node_id)}", peer.body())

    async def put_forgotten(self, nodes: Sequence[said.ForgottenNode]) -> None:
        """Certificates of these count for nothing at the node from now on, and those of all others do."""
        body = {"nodes": [{"node_id": each.node_id, "key_sha256": each.key_sha256} for each in nodes]}
        await self.call(said.NoAnswer, "PUT", "/v1/forgotten", body)

    async def put_transfer(self, transfer_id: str, body: Body, *, command_id: str) -> said.TransferAnswer:
        return await self.call(said.TransferAnswer, "PUT", f"/v1/transfers/{part(transfer_id)}", body, command_id=command_id)

    async def put_transfers(self, asked: Sequence[tuple[str, Body, str]]) -> list[said.TransferAnswer | StagerError]:
        """Of (transfer id, body, command id) each: its answer, or why it was refused."""
        body = {"transfers": [{"transfer_id": name, "command_id": command, "request": request} for name, request, command in asked]}
        answers = (await self.call(said.AskedAnswers, "POST", "/v1/transfers", body)).answers
        return [answer if answer.error is None else error_from(answer.error.fault()) for answer in answers]

    async def cancel_transfer(self, transfer_id: str, *, command_id: str) -> None:
        await self.call(said.NoAnswer, "DELETE", f"/v1/transfers/{part(transfer_id)}", command_id=command_id)

    async def transfers(self) -> list[said.NodeTransfer]:
        return (await self.call(said.NodeTransfers, "GET", "/v1/transfers")).transfers

    async def poll_events(self, after: int, *, wait_s: float) -> said.EventPage:
        return await self.call(said.EventPage, "GET", f"/v1/events?after={after}&wait_s={wait_s:g}", timeout_s=wait_s + POLL_GRACE_S)

    async def ack_events(self, seq: int) -> None:
        await self.call(said.NoAnswer, "POST", "/v1/events/ack", {"seq": seq})

    async def delete_replicas(self, asked: Sequence[tuple[str, str, str]]) -> list[StagerError | None]:
        """Of (file id, generation, command id) each: None, or why it was refused."""
        body = {"replicas": [{"file_id": file, "generation": generation, "command_id": command} for file, generation, command in asked]}
        answers = (await self.call(said.DeletedAnswers, "POST", "/v1/replicas/delete", body)).answers
        return [None if answer.error is None else error_from(answer.error.fault()) for answer in answers]

    async def put_reservation(self, reservation_id: str, size_bytes: int) -> None:
        await self.call(said.NoAnswer, "PUT", f"/v1/reservations/{part(reservation_id)}", {"bytes": size_bytes}, command_id=reservation_id)

    async def stage_in(self, attempt_id: str, body: Body) -> said.StagedIn:
        return await self._attempt(said.StagedIn, attempt_id, "stage-in", body)

    async def stage_out(self, attempt_id: str, body: Body) -> said.StagedOut:
        return await self._attempt(said.StagedOut, attempt_id, "stage-out", body)

    async def release(self, attempt_id: str, body: Body) -> said.Released:
        return await self._attempt(said.Released, attempt_id, "release", body)

    async def open_attempt(self, attempt_id: str, body: Body) -> said.OpenedAttempt:
        """Of a job on another host. The same again gets the same answer; each incarnation has to be told."""
        target = f"/v1/attempts/{part(attempt_id)}"
        return await self.call(said.OpenedAttempt, "PUT", target, body, command_id=attempt_id, timeout_s=LISTING_TIMEOUT_S)

    async def close_attempt(self, attempt_id: str) -> said.ClosedAttempt:
        """From now on nothing of it is taken. A commit that came first stays, and is answered."""
        target = f"/v1/attempts/{part(attempt_id)}"
        return await self.call(said.ClosedAttempt, "DELETE", target, command_id=attempt_id)

    async def _attempt(self, answer: type[A], attempt_id: str, what: str, body: Body) -> A:
        """Without a timeout: copying and hashing take as long as the bytes do, and a dead node breaks the connection."""
        return await self.call(answer, "POST", f"/v1/attempts/{part(attempt_id)}/{what}", body, command_id=attempt_id, timeout_s=None)

    async def shutdown(self, drain_s: float = 0.0) -> None:
        await self.call(said.NoAnswer, "POST", "/v1/shutdown", {"drain_s": round(drain_s)}, timeout_s=drain_s + CALL_TIMEOUT_S)


def part(text: str) -> str:
    """One segment of a path; ids have a narrow alphabet, but nothing here depends on that."""
    return text if PLAIN.fullmatch(text) else quote(text, safe="")


def error_of(status: int, data: bytes) -> StagerError:
    """The node's error as the exception of its class; `details` holds what else it said, such as `needed_bytes`."""
    try:
        entry = msgspec.json.decode(data, type=said.ErrorAnswer).error
        details = msgspec.json.decode(data, type=dict[str, object])
    except msgspec.DecodeError:
        return Transient(f"the I/O node answered {status}: {data[:200].decode(errors='replace')}", code="io_error")
    error = error_from(entry.fault())
    error.details = {key: value for key, value in details.items() if key != "error"} | {"retry_after_s": entry.retry_after_s}
    return error


def is_lost(error: StagerError) -> bool:
    """The node, not the call, is what failed: contact it anew."""
    return error.code in LOST_CODES
