"""Whether a host is of the public internet, by all addresses that its name has now.

May know: the resolver of this machine. One rule: an address that carries another one inside is judged by that one. The I/O node looks
again at each connection (`public_only`), since a name may mean something else by then.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from stager.model.errors import Denied, Transient

Lookup = Callable[[str], list[str]]
GLOBAL_UNICAST = IPv6Network("2000::/3")
SET_ASIDE = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "3fff::/20"))
NAT64 = IPv6Network("64:ff9b::/96")
COMPATIBLE = IPv6Network("::/96")
# By the IANA registry of special addresses, since what `ipaddress` says of them differs from one version of Python to the next; and where
# Azure answers to its machines.
SPECIAL = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "168.63.129.16/32",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
)


def look_up(host: str) -> list[str]:
    """Every form that the system takes for an address is one here too: `127.1`, `2130706433`, `0x7f000001`."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError) as problem:
        text = f"the host {host!r} is not known here ({getattr(problem, 'strerror', None) or problem})"
        raise Transient(f"{text}; check its name, and ask again later if it is right", code="origin_unreachable", subject=host) from None


def check_public(host: str, lookup: Lookup = look_up) -> None:
    """Raises Denied if one of its addresses is not public, Transient if it has none."""
    for text in lookup(host.strip("[]")):
        if not is_public(text):
            # Which address is for those inside to know.
            message = f"{host!r} leads to an address that is not of the public internet"
            raise Denied(f"{message}; ask your administrator to register that origin for you", code="host_not_public", subject=host)


def is_public(text: str) -> bool:
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inside = inside_of(address)
        if inside is None:
            return address in GLOBAL_UNICAST and not any(address in network for network in SET_ASIDE)
        address = inside
    return not any(address in network for network in SPECIAL)


def inside_of(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for: mapped, compatible, behind NAT64, or 6to4."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in NAT64 or address in COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour
