"""The worker's calls, each to the node of its attempt.

May know: what is outstanding, the links. One rule: the Machine has said where an attempt is, and nothing of it is asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from stager.adapters.ionode import IoNode
from stager.model.errors import Transient
from stager.runtime.node_link import NodeLink
from stager.runtime.outstanding import Outstanding
from stager.wire import node as said

Body = Mapping[str, object]


class AttemptNodes:
    """The NodePort of a worker whose attempts are on several nodes; on the event loop's thread. A reservation is named as its attempt."""

    def __init__(self, outstanding: Outstanding, links: Mapping[str, NodeLink]) -> None:
        self.outstanding, self.links = outstanding, links

    async def put_reservation(self, reservation_id: str, size_bytes: int) -> None:
        await self._of(reservation_id).put_reservation(reservation_id, size_bytes)

    async def stage_in(self, attempt_id: str, body: Body) -> said.StagedIn:
        return await self._of(attempt_id).stage_in(attempt_id, body)

    async def stage_out(self, attempt_id: str, body: Body) -> said.StagedOut:
        return await self._of(attempt_id).stage_out(attempt_id, body)

    async def release(self, attempt_id: str, body: Body) -> said.Released:
        return await self._of(attempt_id).release(attempt_id, body)

    def _of(self, attempt_id: str) -> IoNode:
        node = self.outstanding.attempts[attempt_id].node
        if (link := self.links.get(node)) is None:
            text = f"attempt {attempt_id} is on the I/O node {node}, which this scheduler does not have; start it with that node"
            raise Transient(text, code="connection_lost", subject=node)
        return link.client
