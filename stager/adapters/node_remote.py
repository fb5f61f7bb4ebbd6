"""An I/O node that somebody else started, at an address: by TLS with the certificate of the scheduler, or on this machine with its token.

May know: ionode, cluster_tls where a node speaks TLS. One rule: it is used as it is: its capacity is not set, and it is never started and
never ended from here.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stager.adapters.http_pool import Lost
from stager.adapters.ionode import API_VERSION, IoNode, PeerAddress
from stager.adapters.node_place import NO_TOKEN_CODE, NodePlace
from stager.model.errors import Denied, Refused, Transient
from stager.wire.node import NodeAbout

if TYPE_CHECKING:
    from stager.adapters.cluster_tls import ClusterTls

log = logging.getLogger(__name__)
ASK_TIMEOUT_S = 2.0
NOT_ACCEPTED_CODE = "peer_refused"


class NodeRemote:
    """`client` stays the same object over the node's restarts, so whoever holds it talks to the living one. `place` may be replaced by
    where the node is now. `revoked`: contact is made no more.
    """

    def __init__(self, place: NodePlace, epoch: int, tls: ClusterTls | None = None) -> None:
        assert place.by_tls == (tls is not None), place
        self.place, self.revoked = place, False
        self.secure = (tls, place.node_id) if tls is not None else None
        self.client = IoNode(place.host_and_port, "", epoch=epoch, secure=self.secure)

    @property
    def node_id(self) -> str:
        return self.place.node_id

    @property
    def apart(self) -> bool:
        return self.place.by_tls

    def peer_address(self) -> PeerAddress | None:
        return PeerAddress(self.place.address, self.client.token, self.client.incarnation)

    async def contact(self) -> IoNode:
        """The client, in contact with the node that answers. The file is read each time, since a new store has a new token."""
        if self.revoked:
            text = f"the node {self.node_id} was forgotten, so it is not spoken to"
            raise Denied(f"{text}; it is again when its host joins with a new invite", code="not_registered", subject=self.node_id)
        token = await asyncio.to_thread(token_of, self.place) if self.secure is None else ""
        # Of its own: nobody may call without an incarnation meanwhile.
        asking = IoNode(self.place.host_and_port, token, epoch=self.client.epoch, secure=self.secure)
        try:
            about = await asking.node()
        except Transient as problem:
            raise not_accepted(self.place, problem) or problem from problem.__cause__
        finally:
            asking.close()
        if about.node_id != self.node_id:
            text = f"the node {about.node_id} answers at {self.place.address}, and not {self.node_id}"
            raise Refused(f"{text}; name it as it calls itself, or give its right address", code="another_node", subject=self.node_id)
        if about.draining:
            raise Transient(f"the node {self.node_id} is ending", code="draining")
        self.client.meet(asking.pool.address, token, about.incarnation)
        return self.client


def not_accepted(place: NodePlace, problem: Transient) -> Denied | None:
    """One certificate is not good. Somebody has to mend that, and then it goes on by itself."""
    cause = problem.__cause__
    if not isinstance(cause, Lost) or not cause.for_somebody:
        return None
    return Denied(f"the node {place.node_id} at {place.address} is not spoken to: {cause}", code=NOT_ACCEPTED_CODE, subject=place.node_id)


def token_of(place: NodePlace) -> str:
    file = place.token_file
    assert file is not None, place
    try:
        words = file.read_text(errors="replace").split()
    except OSError as problem:
        text = f"the token of the node {place.node_id} cannot be read: {file}: {problem.strerror}"
        raise Transient(text, code=NO_TOKEN_CODE, subject=str(file)) from problem
    if len(words) != 1:
        text = f"{file} should hold the token of the node {place.node_id} and nothing else"
        raise Transient(text, code=NO_TOKEN_CODE, subject=str(file))
    return words[0]


def capacity_of(place: NodePlace, tls_dir: Path) -> int | None:
    """Of the node that answers there now; None: none does. For commands that wait for it."""
    connection: http.client.HTTPConnection | None = None
    try:
        headers = {"X-Stager-Api": str(API_VERSION)}
        if place.by_tls:
            connection = secured(place, tls_dir)
        else:
            connection = http.client.HTTPConnection(*place.host_and_port, timeout=ASK_TIMEOUT_S)
            headers["Authorization"] = f"Bearer {token_of(place)}"
        connection.request("GET", "/v1/node", headers=headers)
        about = msgspec.json.decode(connection.getresponse().read(), type=NodeAbout)
    except (OSError, http.client.HTTPException, msgspec.DecodeError, Transient) as problem:
        log.info("node %s does not answer, so nothing is planned for it: %s", place.node_id, problem)
        return None
    finally:
        if connection is not None:
            connection.close()
    return about.capacity_bytes if about.node_id == place.node_id and not about.draining else None


def secured(place: NodePlace, tls_dir: Path) -> http.client.HTTPConnection:
    from stager.adapters.cluster_tls import ClusterTls

    connection = http.client.HTTPConnection(*place.host_and_port, timeout=ASK_TIMEOUT_S)
    connected = socket.create_connection(place.host_and_port, timeout=ASK_TIMEOUT_S)
    try:
        connection.sock = ClusterTls(tls_dir).secured(connected, f"node/{place.node_id}")
    except BaseException:
        connected.close()
        raise
    return connection
