"""Invites to the cluster of a state directory, as URLs.

May know: the authority, the invites. One rule: the secret is in the URL alone; what is kept here is its hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stager.adapters.authority import Authority
from stager.adapters.invites import Invites
from stager.model.errors import InvalidInput
from stager.service.state_dir import StateDir

ROLE = "node"


@dataclass(frozen=True, slots=True)
class InviteUrl:
    url: str = field(repr=False)
    expires_at: float
    ca_sha256: str


def invite_url(place: StateDir, now: float, ttl_s: float, address: str = "", role: str = ROLE) -> InviteUrl:
    """`address`: where hosts reach the service; empty: where it listens. Raises InvalidInput where it does not."""
    fingerprint = Authority(place.authority).fingerprint()
    at = address or listening_at(place)
    secret = Invites(place.authority / "invites").make(role, now, ttl_s)
    return InviteUrl(f"https://{at}/#{fingerprint}.{secret}", now + ttl_s, fingerprint)


def listening_at(place: StateDir) -> str:
    try:
        return (place.authority / "address").read_text().strip()
    except FileNotFoundError:
        text = "no service listens for hosts that join; start `stager serve --cluster-listen IP:PORT`, or name --address"
        raise InvalidInput(text, code="not_listening", subject="address") from None
