"""An I/O node that somebody else started, at an address, with its token in a file.

May know: ionode. One rule: it is used as it is: its capacity is not set, and it is never started and never ended from here.
"""

from __future__ import annotations

import asyncio
import http.client
import logging

import msgspec

from stager.adapters.ionode import API_VERSION, IoNode, PeerAddress
from stager.adapters.node_place import NodePlace
from stager.model.errors import Refused, Transient
from stager.wire.node import NodeAbout

log = logging.getLogger(__name__)
ASK_TIMEOUT_S = 2.0


class NodeRemote:
    """`client` stays the same object over the node's restarts, so whoever holds it talks to the living one."""

    def __init__(self, place: NodePlace, epoch: int) -> None:
        self.place = place
        self.client = IoNode(place.host_and_port, "", epoch=epoch)

    @property
    def node_id(self) -> str:
        return self.place.node_id

    def peer_address(self) -> PeerAddress | None:
        return PeerAddress(self.place.address, self.client.token, self.client.incarnation)

    async def contact(self) -> IoNode:
        """The client, in contact with the node that answers. The file is read each time, since a new store has a new token."""
        token = await asyncio.to_thread(token_of, self.place)
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


def token_of(place: NodePlace) -> str:
    file = place.token_file
    try:
        words = file.read_text(errors="replace").split()
    except OSError as problem:
        text = f"the token of the node {place.node_id} cannot be read: {file}: {problem.strerror}"
        raise Transient(text, code="token_missing", subject=str(file)) from problem
    if len(words) != 1:
        text = f"{file} should hold the token of the node {place.node_id} and nothing else"
        raise Transient(text, code="token_missing", subject=str(file))
    return words[0]


def capacity_of(place: NodePlace) -> int | None:
    """Of the node that answers there now; None: none does. For commands that wait for it."""
    host, port = place.host_and_port
    connection = http.client.HTTPConnection(host, port, timeout=ASK_TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {token_of(place)}", "X-Stager-Api": str(API_VERSION)}
        connection.request("GET", "/v1/node", headers=headers)
        about = msgspec.json.decode(connection.getresponse().read(), type=NodeAbout)
    except (OSError, http.client.HTTPException, msgspec.DecodeError, Transient) as problem:
        log.info("node %s does not answer, so nothing is planned for it: %s", place.node_id, problem)
        return None
    finally:
        connection.close()
    return about.capacity_bytes if about.node_id == place.node_id and not about.draining else None
