"""How a host joins a cluster: it pins the authority by the invite, makes its key here, has it signed, and says where its node is.

May know: the authority's key functions, cluster_tls, the bodies. One rule: the secret of an invite goes to the scheduler
of the cluster whose fingerprint stands beside it, and nowhere else; the key never leaves this host.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from stager import __version__
from stager.adapters.authority import kept_key, need_cryptography, request_by
from stager.adapters.cluster_tls import CA, CERTIFICATE, KEY, SCHEDULER, ClusterTls, NotTrusted, reason_of, require, uris
from stager.adapters.whole_file import write_public
from stager.model.errors import Denied, InvalidInput, StagerError, Transient, error_from
from stager.wire.cluster import (
    CA_PATH,
    JOIN_PATH,
    NODES_PATH,
    PATH,
    POOL_PATH,
    RENEW_PATH,
    ClusterAbout,
    JoinAnswer,
    JoinedNode,
    JoinRequest,
    PoolAnswer,
    PoolRequest,
    RenewRequest,
)
from stager.wire.node import ErrorAnswer

TIMEOUT_S = 30.0
# Of the life of a certificate.
RENEWED_AT = 2 / 3
BODY_BYTES_MAX = 1 << 20
URL = re.compile(r"https://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})/#([0-9a-f]{64})\.([A-Za-z0-9_-]{16,128})", re.ASCII)
A = TypeVar("A")
Secured = Callable[[socket.socket], ssl.SSLSocket]


@dataclass(frozen=True, slots=True)
class Invitation:
    """As it stands in the URL. What follows `#` is never sent as a part of one."""

    address: str
    ca_sha256: str
    secret: str

    @classmethod
    def of(cls, url: str) -> Invitation:
        """Raises InvalidInput that never shows the secret."""
        found = URL.fullmatch(url.strip())
        if found is None:
            text = "this is no invite; `stager cluster invite` prints one, https://HOST:PORT/#FINGERPRINT.SECRET"
            raise InvalidInput(f"{text}. Quote it, since it holds a #", code="invite_wrong", subject="url")
        return cls(f"{found[1]}:{found[2]}", found[3], found[4])


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join(invitation: Invitation, node_id: str, tls_dir: Path) -> None:
    """Leaves a certificate of that node in `tls_dir`, with the key that is there, if one is. Raises what the scheduler says."""
    need_cryptography()
    ca = pinned_ca(invitation)
    key = kept_key(tls_dir / KEY)
    request = JoinRequest(secret=invitation.secret, role=f"node/{node_id}", csr=request_by(key), version=__version__)
    answer = call(invitation.address, to_scheduler(ca), "POST", JOIN_PATH, JoinAnswer, request)
    write_public(tls_dir / CA, ca.encode())
    write_public(tls_dir / CERTIFICATE, answer.certificate.encode())


def renew(address: str, node_id: str, tls_dir: Path) -> bool:
    """True: its certificate was past two thirds of its life, and is a new one now, of the same key."""
    need_cryptography()
    from cryptography import x509

    held = x509.load_pem_x509_certificate((tls_dir / CERTIFICATE).read_bytes())
    begins, ends = held.not_valid_before_utc.timestamp(), held.not_valid_after_utc.timestamp()
    if time.time() < begins + (ends - begins) * RENEWED_AT:
        return False
    request = RenewRequest(csr=request_by(kept_key(tls_dir / KEY)))
    answer = call(address, as_node(tls_dir, node_id), "POST", RENEW_PATH, JoinAnswer, request)
    write_public(tls_dir / CERTIFICATE, answer.certificate.encode())
    return True


def join_pool(address: str, node_id: str, tls_dir: Path, pool_tls: Path) -> str:
    """The address of the cluster's pool, and in `pool_tls` a certificate for it, of a key of its own. Raises Refused where there is no
    pool.
    """
    need_cryptography()
    request = PoolRequest(csr=request_by(kept_key(pool_tls / KEY)))
    answer = call(address, as_node(tls_dir, node_id), "POST", POOL_PATH, PoolAnswer, request)
    write_public(pool_tls / CA, (tls_dir / CA).read_bytes())
    write_public(pool_tls / CERTIFICATE, answer.certificate.encode())
    return answer.address


def why_no_pool(address: str, pool_tls: Path) -> str:
    """Empty: the pool's meeting place takes connections with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(pool_tls / CA)
    context.load_cert_chain(pool_tls / CERTIFICATE, pool_tls / KEY)
    try:
        with socket.create_connection(host_and_port(address.partition("://")[2]), timeout=TIMEOUT_S) as plain:
            context.wrap_socket(plain).close()
    except OSError as problem:
        return reason_of(problem) or str(problem)
    return ""


def pinned_ca(invitation: Invitation) -> str:
    """The authority's certificate as PEM. Raises Denied where it is not that of the invite: somebody may be in between."""
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.minimum_version = ssl.TLSVersion.TLSv1_3
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    try:
        data = ssl.PEM_cert_to_DER_cert(asked(invitation.address, blind.wrap_socket, "GET", CA_PATH, b"").decode("ascii"))
    except ValueError:
        data = b""
    if not hmac.compare_digest(hashlib.sha256(data).hexdigest(), invitation.ca_sha256):
        text = f"{invitation.address} is not of the cluster that this invite is for: its authority has another fingerprint"
        raise Denied(f"{text}; the secret was not sent", code="authority_wrong", subject=invitation.address)
    # Nothing but what was compared.
    return ssl.DER_cert_to_PEM_cert(data)


def to_scheduler(ca: str) -> Secured:
    """Connections to the scheduler of that authority's cluster, before this host has a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=ca)
    cluster = uris(context.get_ca_certs()[0])

    def secured(connected: socket.socket) -> ssl.SSLSocket:
        shown = context.wrap_socket(connected)
        require(shown.getpeercert(), f"{''.join(cluster)}/{SCHEDULER}")
        return shown

    return secured


def as_node(tls_dir: Path, node_id: str) -> Secured:
    tls = ClusterTls(tls_dir, f"node/{node_id}")
    return lambda connected: tls.secured(connected, SCHEDULER)


def about(address: str, secured: Secured) -> ClusterAbout:
    return call(address, secured, "GET", PATH, ClusterAbout)


def tell(address: str, secured: Secured, node_id: str, node: JoinedNode) -> None:
    call(address, secured, "PUT", f"{NODES_PATH}{node_id}", dict[str, str], node)


def call(address: str, secured: Secured, method: str, path: str, answer: type[A], body: object = None) -> A:
    """Raises StagerError as the scheduler's."""
    data = asked(address, secured, method, path, msgspec.json.encode(body) if body is not None else b"")
    try:
        return msgspec.json.decode(data, type=answer)
    except msgspec.DecodeError as problem:
        raise Transient(f"{address} gives no answer of a scheduler: {problem}", code="connection_lost", subject=address) from problem


def asked(address: str, secured: Secured, method: str, path: str, body: bytes) -> bytes:
    connection = http.client.HTTPConnection(*host_and_port(address), timeout=TIMEOUT_S)
    try:
        connected = socket.create_connection(host_and_port(address), timeout=TIMEOUT_S)
        try:
            connection.sock = secured(connected)
        except BaseException:
            connected.close()
            raise
        connection.request(method, path, body=body, headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read(BODY_BYTES_MAX)
    except NotTrusted as problem:
        raise Denied(f"the scheduler at {address} is not spoken to: {problem}", code="peer_refused", subject=address) from problem
    except (OSError, http.client.HTTPException) as problem:
        why = reason_of(problem) if isinstance(problem, OSError) else None
        if why is not None:
            raise Denied(f"the scheduler at {address} is not spoken to: {why}", code="peer_refused", subject=address) from problem
        text = f"the scheduler does not answer at {address}: {problem}; is `stager serve --cluster-listen` there?"
        raise Transient(text, code="connection_lost", subject=address) from problem
    finally:
        connection.close()
    if answer.status >= 400:
        raise refusal(address, answer.status, data)
    return data


def refusal(address: str, status: int, data: bytes) -> StagerError:
    try:
        return error_from(msgspec.json.decode(data, type=ErrorAnswer).error.fault())
    except msgspec.DecodeError:
        return Transient(f"{address} answered {status}", code="io_error", subject=address)
