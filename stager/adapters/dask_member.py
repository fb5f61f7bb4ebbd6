"""The members of a pool, known by their certificates: `python -m stager.adapters.dask_member TLS_DIR scheduler|worker …` is Dask's own
command line, which lets in and talks to nobody else.

May know: distributed, which it is part of, and certificates. One rule: Dask compares authorities, and every host of a cluster has a
certificate of its authority; so the role is compared here, before the first byte that Dask would unpickle.
"""

from __future__ import annotations

import logging
import ssl
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from stager.adapters.cluster_tls import CA, CERTIFICATE, KEY, SCHEDULER, NotTrusted, require_one_of, role_in, take_up
from stager.model.errors import Refused

log = logging.getLogger(__name__)
POOL = "pool/"


def guarded(context: ssl.SSLContext, directory: Path) -> ssl.SSLContext:
    """The same context, for connections with members of our pool and with the scheduler alone. The scheduler itself talks to any pool."""
    cluster, role = role_in(directory)
    roles = (POOL,) if role == SCHEDULER else (role, SCHEDULER)

    def check(connection: ssl.SSLSocket | ssl.SSLObject) -> None:
        try:
            require_one_of(connection.getpeercert(), cluster, roles)
        except NotTrusted as problem:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, f"certificate of no member of this pool: {problem}") from problem

    class MemberSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check(self)

    class MemberObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self)

    context.sslsocket_class, context.sslobject_class = MemberSocket, MemberObject
    return renewed(context, directory)


def renewed(context: ssl.SSLContext, directory: Path) -> ssl.SSLContext:
    """The same context, whose next connection shows the certificate as it is on the disk then. Dask keeps its contexts for as long as it
    lives, which may be longer than a certificate is good. One that is half replaced leaves the one before in force.
    """
    seen = stamps_of(directory)

    def before(make: Callable[..., Any]) -> Callable[..., Any]:
        def connection(*args: Any, **more: Any) -> Any:
            nonlocal seen
            if (now := stamps_of(directory)) != seen:
                try:
                    take_up(context, directory)
                    seen = now
                except (OSError, ValueError) as problem:
                    log.warning("the certificate before it stays in force, since that in %s cannot be used: %s", directory, problem)
            return make(*args, **more)

        return connection

    shown: Any = context
    shown.wrap_socket, shown.wrap_bio = before(context.wrap_socket), before(context.wrap_bio)
    return context


def stamps_of(directory: Path) -> list[tuple[int, int, int]]:
    try:
        found = [(directory / name).stat() for name in (CERTIFICATE, KEY)]
    except OSError:
        return []
    return [(each.st_mtime_ns, each.st_size, each.st_ino) for each in found]


def security_of(directory: Path) -> Any:
    """Nothing is said in plain text, and nobody who is no member is listened to. Raises NotTrusted where our certificate is no good."""
    from distributed.security import Security

    # Dask has no types.
    untyped: Any = Security
    make_context = untyped._get_tls_context
    context = {"_get_tls_context": lambda self, *asked: member_context(directory, partial(make_context, self), *asked)}
    member_security: Any = type("MemberSecurity", (Security,), context)
    return checked(member_security(require_encryption=True, **files_of(directory)))


def member_context(directory: Path, make_context: Callable[..., Any], *asked: Any) -> Any:
    context = make_context(*asked)
    return context if context is None else guarded(context, directory)


def files_of(directory: Path) -> dict[str, str]:
    cert, key = str(directory / CERTIFICATE), str(directory / KEY)
    of_roles = {f"tls_{role}_{what}": path for role in ("client", "scheduler", "worker") for what, path in (("cert", cert), ("key", key))}
    return {"tls_ca_file": str(directory / CA), **of_roles}


def checked(security: Any) -> Any:
    """Raises Refused where this version of Dask makes its contexts another way: then nothing would be compared."""
    for asked in (security.get_listen_args, security.get_connection_args):
        context = asked("scheduler")["ssl_context"]
        if context is None or context.sslsocket_class is ssl.SSLSocket or context.sslobject_class is ssl.SSLObject:
            text = "this version of Dask cannot be held to the members of a pool"
            raise Refused(f"{text}; install another one: pip install 'stager[cluster]'", code="dask_unknown", subject="distributed")
    return security


def main(argv: list[str]) -> None:
    """Becomes `dask WORDS`."""
    import dask.cli
    from distributed.security import Security

    directory, untyped, cli = Path(argv[0]), cast(Any, Security), cast(Any, dask.cli)
    make_context = untyped._get_tls_context
    untyped._get_tls_context = lambda self, *asked: member_context(directory, partial(make_context, self), *asked)
    checked(untyped(require_encryption=True, **files_of(directory)))
    sys.argv = ["dask", *argv[1:]]
    cli.run_cli()


if __name__ == "__main__":
    main(sys.argv[1:])
