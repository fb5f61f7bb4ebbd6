"""The NodeClient port over HTTP: control of one I/O node (docs/formats/ionode-api.md).

May know: http_pool, the model's errors. One rule: it says what the node said.
It keeps no state but the address, the token, the epoch and the incarnation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from stager.adapters.http_pool import Header, Lost, Pool
from stager.model.errors import ErrorClass, Fault, StagerError, Transient, error_from

API_VERSION = 1
CALL_TIMEOUT_S = 30.0
LISTING_TIMEOUT_S = 600.0
POLL_GRACE_S = 15.0
# What needs no quoting, as `quote` has it.
PLAIN = re.compile(r"[A-Za-z0-9_.~-]*", re.ASCII)
LOST_CODES = frozenset({"connection_lost", "stale_incarnation", "draining"})


class NodeCaller:
    """How a call is made. One incarnation is talked to at a time; whoever makes contact says which."""

    def __init__(self, address: Path | tuple[str, int], token: str, *, epoch: int, incarnation: str = "") -> None:
        self.pool = Pool(address)
        self.token, self.epoch, self.incarnation = token, epoch, incarnation

    def meet(self, address: Path | tuple[str, int], token: str, incarnation: str) -> None:
        """From now on talk to this incarnation."""
        if (address, token, incarnation) != (self.pool.address, self.token, self.incarnation):
            self.pool.close()
            self.pool = Pool(address)
            self.token, self.incarnation = token, incarnation

    def close(self) -> None:
        self.pool.close()

    async def call(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        *,
        command_id: str = "",
        timeout_s: float | None = CALL_TIMEOUT_S,
    ) -> dict[str, Any]:
        """The answer as it is on the wire. Raises StagerError with the node's class and code; `connection_lost` if it cannot be asked."""
        headers: list[Header] = [
            ("Host", "stager-ionode"),
            ("Authorization", f"Bearer {self.token}"),
            ("X-Stager-Api", str(API_VERSION)),
            ("X-Stager-Epoch", str(self.epoch)),
            ("Content-Type", "application/json"),
        ]
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
        return msgspec.json.decode(data) if data else {}


class OriginCalls(NodeCaller):
    """What can be asked about origins."""

    async def put_origin(self, origin_id: str, config: Mapping[str, Any]) -> None:
        await self.call("PUT", f"/v1/origins/{part(origin_id)}", config)

    async def stat(self, origin_id: str, paths: Sequence[str]) -> list[dict[str, Any]]:
        answer = await self.call("POST", f"/v1/origins/{part(origin_id)}/stat", {"paths": list(paths)}, timeout_s=LISTING_TIMEOUT_S)
        return list(answer["entries"])

    async def get_ready(self, origin_id: str, files: int) -> None:
        """So many files will go there soon: the node logs in now."""
        await self.call("POST", f"/v1/origins/{part(origin_id)}/ready", {"files": files})

    async def put_mount(self, origin_id: str) -> dict[str, Any]:
        """Longer than the node waits for the origin (30 s)."""
        return await self.call("PUT", f"/v1/mounts/{part(origin_id)}", timeout_s=2 * CALL_TIMEOUT_S)

    async def erase(self, origin_id: str, path: str, token: str | None, *, command_id: str) -> bool:
        body = {"path": path, "token": token}
        answer = await self.call("POST", f"/v1/origins/{part(origin_id)}/erase", body, command_id=command_id, timeout_s=LISTING_TIMEOUT_S)
        return bool(answer["erased"])


class IoNode(OriginCalls):
    """What can be called."""

    async def node(self) -> dict[str, Any]:
        return await self.call("GET", "/v1/node")

    async def state(self) -> dict[str, Any]:
        return await self.call("GET", "/v1/state", timeout_s=LISTING_TIMEOUT_S)

    async def set_capacity(self, capacity_bytes: int) -> dict[str, Any]:
        return await self.call("PUT", "/v1/capacity", {"capacity_bytes": capacity_bytes})

    async def put_transfer(self, transfer_id: str, body: Mapping[str, Any], *, command_id: str) -> dict[str, Any]:
        return await self.call("PUT", f"/v1/transfers/{part(transfer_id)}", body, command_id=command_id)

    async def put_transfers(self, asked: Sequence[tuple[str, Mapping[str, Any], str]]) -> list[dict[str, Any] | StagerError]:
        """Of (transfer id, body, command id) each: its answer, or why it was refused."""
        body = {"transfers": [{"transfer_id": name, "command_id": command, "request": request} for name, request, command in asked]}
        answers = (await self.call("POST", "/v1/transfers", body))["answers"]
        return [error_from(fault_of(answer["error"])) if "error" in answer else answer for answer in answers]

    async def cancel_transfer(self, transfer_id: str, *, command_id: str) -> None:
        await self.call("DELETE", f"/v1/transfers/{part(transfer_id)}", command_id=command_id)

    async def transfers(self) -> list[dict[str, Any]]:
        transfers: list[dict[str, Any]] = (await self.call("GET", "/v1/transfers"))["transfers"]
        return transfers

    async def poll_events(self, after: int, *, wait_s: float) -> dict[str, Any]:
        return await self.call("GET", f"/v1/events?after={after}&wait_s={wait_s:g}", timeout_s=wait_s + POLL_GRACE_S)

    async def ack_events(self, seq: int) -> None:
        await self.call("POST", "/v1/events/ack", {"seq": seq})

    async def delete_replica(self, file_id: str, generation: str, *, command_id: str) -> None:
        await self.call("DELETE", f"/v1/replicas/{part(file_id)}/{part(generation)}", command_id=command_id)

    async def put_reservation(self, reservation_id: str, size_bytes: int) -> None:
        await self.call("PUT", f"/v1/reservations/{part(reservation_id)}", {"bytes": size_bytes}, command_id=reservation_id)

    async def stage_in(self, attempt_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._attempt(attempt_id, "stage-in", body)

    async def stage_out(self, attempt_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._attempt(attempt_id, "stage-out", body)

    async def release(self, attempt_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._attempt(attempt_id, "release", body)

    async def _attempt(self, attempt_id: str, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Without a timeout: copying and hashing take as long as the bytes do, and a dead node breaks the connection."""
        return await self.call("POST", f"/v1/attempts/{part(attempt_id)}/{what}", body, command_id=attempt_id, timeout_s=None)

    async def shutdown(self, drain_s: float = 0.0) -> None:
        await self.call("POST", "/v1/shutdown", {"drain_s": round(drain_s)}, timeout_s=drain_s + CALL_TIMEOUT_S)


def part(text: str) -> str:
    """One segment of a path; ids have a narrow alphabet, but nothing here depends on that."""
    return text if PLAIN.fullmatch(text) else quote(text, safe="")


def error_of(status: int, data: bytes) -> StagerError:
    """The node's error as the exception of its class; `details` holds what else it said, such as `needed_bytes`."""
    try:
        said = msgspec.json.decode(data)
        entry = said["error"]
        fault = fault_of(entry)
    except (ValueError, KeyError, TypeError):
        return Transient(f"the I/O node answered {status}: {data[:200].decode(errors='replace')}", code="io_error")
    error = error_from(fault)
    error.details = {key: value for key, value in said.items() if key != "error"} | {"retry_after_s": entry.get("retry_after_s")}
    return error


def fault_of(entry: Mapping[str, Any]) -> Fault:
    """An error of the wire as a value."""
    return Fault(ErrorClass(entry["class"]), entry["code"], entry["message"], entry.get("subject") or "")


def is_lost(error: StagerError) -> bool:
    """The node, not the call, is what failed: contact it anew."""
    return error.code in LOST_CODES
