"""An I/O node that somebody else started, at an address, with its token in a file.

May know: ionode. One rule: it is used as it is: its capacity is not set, and it is never started and never ended from here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from stager.adapters.ionode import IoNode, PeerAddress
from stager.model.errors import Refused, Transient


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Of one node, as a person names it. `address`: HOST:PORT."""

    node_id: str
    address: str
    token_file: Path


class NodeRemote:
    """`client` stays the same object over the node's restarts, so whoever holds it talks to the living one."""

    def __init__(self, place: NodePlace, epoch: int) -> None:
        self.place = place
        self.client = IoNode(host_and_port(place.address), "", epoch=epoch)

    @property
    def node_id(self) -> str:
        return self.place.node_id

    def peer_address(self) -> PeerAddress | None:
        return PeerAddress(self.place.address, self.client.token, self.client.incarnation)

    async def contact(self) -> IoNode:
        """The client, in contact with the node that answers. The file is read each time, since a new store has a new token."""
        token = await asyncio.to_thread(self._token)
        # Of its own: nobody may call without an incarnation meanwhile.
        asking = IoNode(self.client.pool.address, token, epoch=self.client.epoch)
        try:
            about = await asking.node()
        finally:
            asking.close()
        if about.node_id != self.node_id:
            text = f"the node {about.node_id} answers at {self.place.address}, and not {self.node_id}"
            raise Refused(f"{text}; name it as it calls itself, or give its right address", code="another_node", subject=self.node_id)
        if about.draining:
            raise Transient(f"the node {self.node_id} is ending", code="draining")
        self.client.meet(asking.pool.address, token, about.incarnation)
        return self.client

    def _token(self) -> str:
        file = self.place.token_file
        try:
            words = file.read_text(errors="replace").split()
        except OSError as problem:
            text = f"the token of the node {self.node_id} cannot be read: {file}: {problem.strerror}"
            raise Transient(text, code="token_missing", subject=str(file)) from problem
        if len(words) != 1:
            raise Transient(
                f"{file} should hold the token of the node {self.node_id} and nothing else", code="token_missing", subject=str(file)
            )
        return words[0]


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
