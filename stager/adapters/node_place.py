"""An I/O node that somebody else started, as a person names it.

May know: the model's errors. One rule: a secret is named by its file, never given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from stager.model.errors import InvalidInput, Refused

EMBEDDED_NODE = "node0"
HOW = "write ID=HOST:PORT@TOKEN_FILE, as in node1=127.0.0.1:7411@/srv/node1/token"


@dataclass(frozen=True, slots=True)
class NodePlace:
    """`address`: HOST:PORT."""

    node_id: str
    address: str
    token_file: Path

    def __str__(self) -> str:
        return f"{self.node_id}={self.address}@{self.token_file}"

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


def node_places(named: dict[str, tuple[str, Path]]) -> tuple[NodePlace, ...]:
    """From address and token file by id. Raises InvalidInput that names the node, Refused for an address that is not this machine's."""
    return tuple(node_place(node_id, address, token_file) for node_id, (address, token_file) in sorted(named.items()))


def node_place(node_id: str, address: str, token_file: Path) -> NodePlace:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", node_id):
        raise InvalidInput(f"{node_id!r} is no name of an I/O node; {HOW}", subject="nodes")
    if node_id == EMBEDDED_NODE:
        text = f"{EMBEDDED_NODE!r} is the node that the scheduler starts itself"
        raise InvalidInput(f"{text}; start the other with another --node-id", subject="nodes")
    place = NodePlace(node_id, address, token_file)
    port = address.rpartition(":")[2]
    if not port.isdecimal() or not 0 < int(port) <= 65_535 or not token_file.is_absolute():
        raise InvalidInput(f"{address}@{token_file} says not where the node {node_id} is; {HOW}", subject="nodes")
    host = place.host_and_port[0]
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        raise InvalidInput(f"{host!r} is no IP address; {HOW}", subject="nodes") from None
    if not is_here:
        text = f"the node {node_id} is on another machine ({host}): jobs run on this one, and calls to it would not be encrypted"
        raise Refused(f"{text}; name nodes of this machine by a loopback address", code="not_loopback", subject="nodes")
    return place
