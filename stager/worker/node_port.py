"""The calls that the worker needs of the I/O node on its host (docs/formats/ionode-api.md, Attempts).

May know: the messages of nodes. One rule: what is asked is written as on the wire.
Errors are raised as StagerError with the node's class and code; `details` holds `needed_bytes` of `exceeds_reservation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stager.wire import node

# The node could not be asked, which says nothing about the attempt.
UNASKED_CODES = frozenset({"connection_lost", "timeout", "stale_incarnation", "stale_epoch", "draining"})


class NodePort(Protocol):
    async def put_reservation(self, reservation_id: str, size_bytes: int) -> None: ...
    async def stage_in(self, attempt_id: str, body: Mapping[str, object]) -> node.StagedIn: ...
    async def stage_out(self, attempt_id: str, body: Mapping[str, object]) -> node.StagedOut: ...
    async def release(self, attempt_id: str, body: Mapping[str, object]) -> node.Released: ...
