"""The port that hosts of the cluster call (docs/formats/cluster-api.md): TLS 1.3, with the scheduler's certificate on this side.

May know: joining. One rule: a certificate is asked for and needs not be shown, since a host that joins has none yet; what is shown must be
of this cluster. Secrets come in bodies only, and nothing here is logged but names.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stager.adapters.cluster_tls import CA, CERTIFICATE, KEY, SCHEME, take_up, uris
from stager.model.errors import Denied, ErrorClass, InvalidInput, StagerError
from stager.service.joining import Joining
from stager.wire.cluster import (
    CA_PATH,
    JOIN_PATH,
    NODES_PATH,
    PATH,
    POOL_PATH,
    RENEW_PATH,
    JoinedNode,
    JoinRequest,
    PoolRequest,
    RenewRequest,
)

log = logging.getLogger(__name__)
BODY_BYTES_MAX = 16_384
RENEWAL_POLL_S = 5.0
STATUS = {ErrorClass.INVALID_INPUT: 400, ErrorClass.DENIED: 403, ErrorClass.REFUSED: 409, ErrorClass.TRANSIENT: 503}


def cluster_app(joining: Joining) -> Starlette:
    async def ca(request: Request) -> Response:
        """For a host that has its fingerprint from the invite, and compares it."""
        return Response(await asyncio.to_thread(joining.ca), media_type="application/x-pem-file")

    async def join(request: Request) -> Response:
        asked = await body_of(request, JoinRequest)
        return json_of(await asyncio.to_thread(joining.join, asked))

    async def renew(request: Request) -> Response:
        node_id, key = node_of(request)
        asked = await body_of(request, RenewRequest)
        return json_of(await asyncio.to_thread(joining.renew, node_id, key, asked))

    async def pool(request: Request) -> Response:
        node_id, key = node_of(request)
        asked = await body_of(request, PoolRequest)
        return json_of(await asyncio.to_thread(joining.pool, node_id, key, asked))

    async def about(request: Request) -> Response:
        node_id, key = node_of(request)
        return json_of(await asyncio.to_thread(joining.about, node_id, key))

    async def put_node(request: Request) -> Response:
        holder, key = node_of(request)
        node_id = request.path_params["node_id"]
        if holder != node_id:
            text = f"the certificate is that of the node {holder}, and does not speak for {node_id}"
            raise Denied(text, code="role_refused", subject=node_id)
        await asyncio.to_thread(joining.put, node_id, key, await body_of(request, JoinedNode))
        return json_of({})

    routes = [
        Route(PATH, about, methods=["GET"]),
        Route(CA_PATH, ca, methods=["GET"]),
        Route(JOIN_PATH, join, methods=["POST"]),
        Route(RENEW_PATH, renew, methods=["POST"]),
        Route(POOL_PATH, pool, methods=["POST"]),
        Route(f"{NODES_PATH}{{node_id}}", put_node, methods=["PUT"]),
    ]
    return Starlette(routes=routes, exception_handlers={StagerError: refusal})


async def refusal(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, StagerError)
    fault = problem.fault()
    log.warning("refused %s %s: %s", request.method, request.url.path, fault.message)
    error = {"class": fault.error_class, "code": fault.code, "message": fault.message, "subject": fault.subject}
    return json_of({"error": error}, STATUS.get(fault.error_class, 500))


def json_of(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


async def body_of(request: Request, kind: type[Any]) -> Any:
    """Raises InvalidInput, which never shows what came."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise InvalidInput(f"the body is larger than {BODY_BYTES_MAX} bytes", code="too_large")
        parts.append(part)
    try:
        return msgspec.json.decode(b"".join(parts), type=kind)
    except msgspec.DecodeError:
        raise InvalidInput("the body is not what docs/formats/cluster-api.md says", code="bad_request") from None


def node_of(request: Request) -> tuple[str, str]:
    """(id, digest of the public key) of the certificate that was shown. Raises Denied where it is no node's."""
    shown: ssl.SSLObject | None = request.scope["state"].get("shown")
    names = uris(shown.getpeercert()) if shown is not None else []
    data = shown.getpeercert(binary_form=True) if shown is not None else None
    role = names[0].removeprefix(SCHEME).partition("/")[2] if len(names) == 1 else ""
    if data is None or not role.startswith("node/"):
        raise Denied("this call needs the certificate of a node of this cluster", code="role_refused")
    return role.removeprefix("node/"), digest_of_certificate(data)


def digest_of_certificate(data: bytes) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    key = x509.load_der_x509_certificate(data).public_key()
    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def listening_context(tls_dir: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_OPTIONAL
    context.num_tickets = 0
    context.load_verify_locations(tls_dir / CA)
    context.load_cert_chain(tls_dir / CERTIFICATE, tls_dir / KEY)
    return context


async def keep_renewed(context: ssl.SSLContext, tls_dir: Path) -> None:
    """The certificate as it is on the disk; one that cannot be used leaves the one before in force."""
    seen = stamp(tls_dir)
    while True:
        await asyncio.sleep(RENEWAL_POLL_S)
        if (now := stamp(tls_dir)) == seen:
            continue
        try:
            take_up(context, tls_dir)
            seen = now
        except (OSError, ValueError) as problem:
            log.warning("the certificate before it stays in force, since that in %s cannot be used: %s", tls_dir, problem)


def stamp(tls_dir: Path) -> list[int]:
    try:
        return [(tls_dir / name).stat().st_mtime_ns for name in (CERTIFICATE, KEY)]
    except OSError:
        return []


def configured(app: Starlette, context: ssl.SSLContext, protocol: type[asyncio.Protocol], **more: Any) -> uvicorn.Config:
    """`protocol` is uvicorn's; the certificate that a connection shows is in the state of its requests."""
    config = uvicorn.Config(app, http=showing(protocol), log_config=None, access_log=False, lifespan="off", **more)
    config.load()
    config.ssl = context
    return config


def showing(protocol: type[asyncio.Protocol]) -> type[asyncio.Protocol]:
    class Showing(protocol):  # type: ignore[valid-type, misc]
        app_state: dict[str, Any]

        def connection_made(self, transport: asyncio.Transport) -> None:
            self.app_state = self.app_state | {"shown": transport.get_extra_info("ssl_object")}
            super().connection_made(transport)

    return Showing
