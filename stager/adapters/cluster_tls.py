"""How this scheduler and an I/O node of another host know each other: TLS 1.3, by certificates of one cluster.

May know: http_pool. One rule: a certificate says who its holder is by its role, and nothing by names of hosts; what is renewed on the disk
counts from the next connection on.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stager.adapters.http_pool import Lost

log = logging.getLogger(__name__)

CA, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"
SCHEME = "stager://"
SCHEDULER = "scheduler"
HANDSHAKE_TIMEOUT_S = 10.0
Stamps = tuple[tuple[int, int, int], ...]

# What OpenSSL says of a chain that it does not accept.
EXPIRED, NOT_YET = 10, 9
# What the other side says of ours, or of what it was sent.
ALERTS = {
    "CERTIFICATE_EXPIRED": "it says that this scheduler's certificate has expired",
    "UNKNOWN_CA": "it says that this scheduler's certificate is not of its cluster's authority",
    "DECRYPT_ERROR": "it says that this scheduler's certificate is not of its cluster's authority",
    "BAD_CERTIFICATE": "it does not accept this scheduler's certificate",
    "CERTIFICATE_UNKNOWN": "it does not accept this scheduler's certificate",
    "CERTIFICATE_REQUIRED": "it asks for a certificate",
    "ACCESS_DENIED": "it does not accept this scheduler's certificate",
}
NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"})


class NotTrusted(Lost):
    """One of the two certificates is not accepted, or the other side has none."""

    for_somebody = True


@dataclass(frozen=True, slots=True)
class Own:
    """What this side shows, as it was read: `cluster` is that of the authority."""

    context: ssl.SSLContext
    cluster: str
    expires_at: float
    stamps: Stamps


class ClusterTls:
    """The certificate of this side, in `directory`: the scheduler's, or that of another role."""

    def __init__(self, directory: Path, role: str = SCHEDULER) -> None:
        self.directory, self.role = directory, role
        self.kept: Own | None = None

    def own(self) -> Own:
        """As the files are now. Raises NotTrusted that says what is wrong with them."""
        try:
            stamps = self._stamps()
            if self.kept is None or self.kept.stamps != stamps:
                self.kept = read(self.directory, self.role, stamps)
        except NotTrusted as problem:
            # As they are half replaced, for example: what was good stays in force, as at a node.
            if self.kept is None:
                raise
            log.warning("the certificate before it stays in force: %s", problem)
        if self.kept.expires_at <= time.time():
            raise NotTrusted(f"this {whose(self.role)}'s own certificate in {self.directory} has expired; {how(self.role, self.directory)}")
        return self.kept

    def _stamps(self) -> Stamps:
        try:
            found = [(self.directory / name).stat() for name in (CA, CERTIFICATE, KEY)]
        except OSError as problem:
            text = f"the {whose(self.role)}'s certificate cannot be read: {problem.filename}: {problem.strerror}"
            first = "`stager cluster init` makes it in the state directory" if self.role == SCHEDULER else how(self.role, self.directory)
            raise NotTrusted(f"{text}; {first}") from problem
        if found[2].st_mode & 0o077:
            raise NotTrusted(f"others can read the {whose(self.role)}'s key; chmod 600 {self.directory / KEY}")
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)

    async def connected(self, address: tuple[str, int], node: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to that node and no other. Raises Lost, NotTrusted where it is not that."""
        return await self.connected_to(address, f"node/{node}")

    async def connected_to(self, address: tuple[str, int], role: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The same, to whoever has that role."""
        own = self.own()
        try:
            reader, writer = await asyncio.open_connection(
                *address, ssl=own.context, server_hostname="", ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S
            )
        except UnicodeError as problem:
            raise Lost(f"{address[0]!r} is no name of a host: {problem}") from problem
        except OSError as problem:
            raise self.lost(problem) from problem
        try:
            require(writer.get_extra_info("peercert"), f"{SCHEME}{own.cluster}/{role}")
        except NotTrusted:
            writer.transport.abort()
            raise
        return reader, writer

    def secured(self, connected: socket.socket, role: str) -> ssl.SSLSocket:
        """The same for code that waits, to whoever has that role."""
        own = self.own()
        try:
            secured = own.context.wrap_socket(connected)
        except OSError as problem:
            raise self.lost(problem) from problem
        try:
            require(secured.getpeercert(), f"{SCHEME}{own.cluster}/{role}")
        except NotTrusted:
            secured.close()
            raise
        return secured

    def lost(self, problem: OSError, *, began: bool = False) -> Lost:
        """What broke a connection. Of a certificate that the node does not accept it is told by its first answer only."""
        if isinstance(problem, Lost):
            return problem
        if (why := reason_of(problem)) is not None:
            return NotTrusted(why, began=began)
        if isinstance(problem, ssl.SSLError):
            return Lost(f"TLS failed: {problem.reason or problem}", began=began)
        return Lost(str(problem) or type(problem).__name__, began=began)


def whose(role: str) -> str:
    return role.partition("/")[0]


def how(role: str, directory: Path) -> str:
    """To have a good one."""
    if role == SCHEDULER:
        return f"make it anew: `stager cluster certify {SCHEDULER} --out {directory}`"
    return "join again with a new invite, or have it made anew by `stager cluster certify`"


def reason_of(problem: OSError) -> str | None:
    if isinstance(problem, ssl.SSLCertVerificationError):
        if problem.verify_code == EXPIRED:
            return "its certificate has expired"
        if problem.verify_code == NOT_YET:
            return "its certificate is not valid yet"
        return f"its certificate is not of this cluster's authority ({problem.verify_message})"
    if isinstance(problem, ssl.SSLError):
        reason = problem.reason or ""
        if reason in NO_TLS:
            return "it speaks no TLS; serve it with --tls-dir"
        return next((text for word, text in ALERTS.items() if reason.endswith(f"ALERT_{word}")), None)
    return None


def require(certificate: Any, wanted: str) -> None:
    """Raises NotTrusted for a certificate with another role."""
    found = uris(certificate)
    if found == [wanted]:
        return
    cluster, _, role = found[0].removeprefix(SCHEME).partition("/") if len(found) == 1 else ("", "", "")
    if not found[:1] or not found[0].startswith(SCHEME) or len(found) > 1:
        raise NotTrusted("its certificate names no role")
    wanted_cluster = wanted.removeprefix(SCHEME).partition("/")[0]
    if cluster != wanted_cluster:
        raise NotTrusted(f"its certificate is of the cluster {cluster}, and not of {wanted_cluster}")
    kind, _, name = role.partition("/")
    raise NotTrusted(f"its certificate is that of the node {name}" if kind == "node" else f"its certificate is that of {role}")


def require_one_of(certificate: Any, cluster: str, roles: Sequence[str]) -> None:
    """Raises NotTrusted for a certificate with none of these roles; one that ends with `/` is that of anybody of the kind."""
    for role in roles:
        wanted = f"{SCHEME}{cluster}/{role}"
        found = uris(certificate)
        if found == [wanted] or (role.endswith("/") and len(found) == 1 and found[0].startswith(wanted) and found[0] != wanted):
            return
    require(certificate, f"{SCHEME}{cluster}/{roles[0]}")


def role_in(directory: Path) -> tuple[str, str]:
    """(cluster, role) of the certificate there. Raises NotTrusted for one that is no good."""
    what = "pool"
    try:
        context, server = (side(directory, protocol) for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER))
    except (OSError, ValueError) as problem:
        why = getattr(problem, "reason", None) or problem
        raise NotTrusted(f"the {what}'s certificate in {directory} cannot be used: {why}") from problem
    found = uris(handshake(directory, what, context, server).getpeercert())
    if len(found) != 1 or not found[0].startswith(SCHEME):
        raise NotTrusted(f"the certificate in {directory} names no role; make it by `stager cluster certify`")
    cluster, _, role = found[0].removeprefix(SCHEME).partition("/")
    return cluster, role


def uris(certificate: Any) -> list[str]:
    names = (certificate or {}).get("subjectAltName", ())
    return [str(value) for kind, value in names if kind == "URI"]


def read(directory: Path, role: str, stamps: Stamps) -> Own:
    """With a handshake of the certificate with itself: nothing else of the standard library tells what is in it, and whether it is good."""
    try:
        context, server = (side(directory, protocol) for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER))
    except (OSError, ValueError) as problem:
        why = getattr(problem, "reason", None) or problem
        raise NotTrusted(f"the {whose(role)}'s certificate in {directory} cannot be used: {why}") from problem
    authorities = uris(context.get_ca_certs()[0])
    client = handshake(directory, role, context, server)
    found = uris(client.getpeercert())
    cluster = authorities[0].removeprefix(SCHEME) if len(authorities) == 1 else ""
    if found != [f"{SCHEME}{cluster}/{role}"]:
        text = f"the certificate in {directory} is that of {' and '.join(found) or 'nobody'}, and not of the {role}"
        raise NotTrusted(f"{text}; {how(role, directory)}")
    ends = (client.getpeercert() or {})["notAfter"]
    return Own(context, cluster, float(ssl.cert_time_to_seconds(str(ends))), stamps)


def side(directory: Path, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(directory / CA)
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)
    return context


def take_up(context: ssl.SSLContext, directory: Path) -> None:
    """Its next connection shows the certificate that is there now. Raises OSError or ValueError for one that is no good, or is half
    replaced: it is tried elsewhere first, since a context that fails to load one has lost the one before.
    """
    side(directory, ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / CERTIFICATE, directory / KEY)


def handshake(directory: Path, role: str, context: ssl.SSLContext, server: ssl.SSLContext) -> ssl.SSLObject:
    """The calling half."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    peer = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _ in range(2):
            for each in (client, peer):
                try:
                    each.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError as problem:
        why = "has expired" if problem.verify_code == EXPIRED else "is not valid yet" if problem.verify_code == NOT_YET else ""
        why = why or f"is not of the authority in {CA} ({problem.verify_message})"
        text = f"this {whose(role)}'s own certificate in {directory} {why}"
        raise NotTrusted(f"{text}; {how(role, directory)}") from problem
    except ssl.SSLError as problem:
        raise NotTrusted(f"the {whose(role)}'s certificate in {directory} cannot be used: {problem.reason}") from problem
    return client
