"""An I/O node that somebody else started, as a person names it.

May know: the model's errors. One rule: a secret is named by its file, never given.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from stager.model.errors import InvalidInput, Refused

EMBEDDED_NODE = "node0"
NO_TOKEN_CODE = "token_missing"
HOW = "write ID=HOST:PORT, or for a node of this machine without TLS ID=HOST:PORT@TOKEN_FILE, as in node1=127.0.0.1:7411@/srv/node1/token"
LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}$){LABEL}(\.{LABEL})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodePlace:
    """`address`: HOST:PORT. `token_file` None: it is spoken to by TLS, on whatever host it is."""

    node_id: str
    address: str
    token_file: Path | None

    def __str__(self) -> str:
        return f"{self.node_id}={self.address}" + (f"@{self.token_file}" if self.token_file is not None else "")

    @property
    def by_tls(self) -> bool:
        return self.token_file is None

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)


def node_places(named: dict[str, tuple[str, Path | None]]) -> tuple[NodePlace, ...]:
    """From address and token file by id. Raises InvalidInput that names the node, Refused for plain text to another machine."""
    found = tuple(node_place(node_id, address, token_file) for node_id, (address, token_file) in sorted(named.items()))
    require_alike(found)
    return found


def require_alike(found: Collection[NodePlace]) -> None:
    """Raises Refused for nodes that cannot copy from one another."""
    if len({place.by_tls for place in found}) > 1:
        plain = ", ".join(place.node_id for place in found if not place.by_tls)
        text = f"nodes that speak TLS and nodes that do not ({plain}) cannot copy from one another"
        raise Refused(f"{text}; serve all with --tls-dir, and name them without @TOKEN_FILE", code="not_encrypted", subject="nodes")


def node_place(node_id: str, address: str, token_file: Path | None) -> NodePlace:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", node_id):
        raise InvalidInput(f"{node_id!r} is no name of an I/O node; {HOW}", subject="nodes")
    if node_id == EMBEDDED_NODE:
        text = f"{EMBEDDED_NODE!r} is the node that the scheduler starts itself"
        raise InvalidInput(f"{text}; start the other with another --node-id", subject="nodes")
    place = NodePlace(node_id, address, token_file)
    port = address.rpartition(":")[2]
    if not port.isdecimal() or not 0 < int(port) <= 65_535 or (token_file is not None and not token_file.is_absolute()):
        raise InvalidInput(f"{str(place).partition('=')[2]!r} says not where the node {node_id} is; {HOW}", subject="nodes")
    host = place.host_and_port[0]
    if token_file is None:
        if not is_ip(host) and not HOST_NAME.fullmatch(host):
            raise InvalidInput(f"{host!r} is no host; {HOW}", subject="nodes")
        return place
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        raise InvalidInput(f"{host!r} is no IP address; {HOW}", subject="nodes") from None
    if not is_here:
        text = f"the node {node_id} is on another machine ({host}), and calls with its token would not be encrypted"
        raise Refused(f"{text}; serve it with --tls-dir, and leave @TOKEN_FILE out", code="not_loopback", subject="nodes")
    return place


def is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
