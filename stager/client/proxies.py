"""The services that are asked through the proxy that the environment names, and those that are not.

May know: URLs. One rule: a token is never sent where a proxy can read it, nor is what this machine says to itself.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

# Stronger than those that httpx makes of HTTP_PROXY, HTTPS_PROXY and ALL_PROXY; certificates are still taken from the environment.
NONE_AT_ALL: dict[str, None] = {"http://": None, "https://": None, "all://": None}


def goes_direct(url: str) -> bool:
    """Without TLS a proxy reads all that is sent. On this machine there is nothing that a proxy could reach."""
    parts = urlsplit(url)
    return parts.scheme.lower() != "https" or is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    name = host.rstrip(".").lower()
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def mounts_for(url: str) -> dict[str, None]:
    """The `mounts` for httpx."""
    return NONE_AT_ALL if goes_direct(url) else {}
