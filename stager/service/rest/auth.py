"""The door of the REST API: host, token, rate and size are checked before a handler, and before the body is read.

May know: the tokens, the tenants. One rule: a caller without a good token learns nothing but that, and costs next to nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stager.adapters.tokens import TokenStore
from stager.model.errors import StagerError
from stager.service.dashboard import PATHS
from stager.service.rest.callers import Caller
from stager.service.rest.limits import TooManyOpen, Waits
from stager.service.rest.problems import problem_response, response_of, too_many_open
from stager.service.settings import RestSettings
from stager.service.tenancy import Tenancy

OPEN = PATHS | {"/healthz", "/readyz", "/api/v1/openapi.json"}
LARGE = frozenset(("/api/v1/runs", "/api/v1/engine-runs", "/api/v1/plan", "/api/v1/validate", "/api/v1/estimate"))
BUCKETS_MAX = 10_000
# Of those who come without a good token, by address.
UNAUTHENTICATED_PER_S, UNAUTHENTICATED_BURST = 1.0, 20.0
BODY_SILENCE_S = 30.0
# So many of the largest bodies may lie in memory for one tenant, and for all.
BODIES_EACH_MAX, BODIES_MAX = 2, 4
# Of the connections that there are, the share of one tenant.
OPEN_EACH_MAX = 500
# What is answered later than that after the token was checked is answered only if it still is good.
LATE_S = 0.1
LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))


@dataclass(slots=True)
class Buckets:
    """Token buckets by key; the least recently used are forgotten."""

    per_s: float
    burst: float
    levels: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def wait_s(self, key: str, now: float) -> float:
        """0: taken. Else how long until one may be."""
        level, at = self.levels.pop(key, (self.burst, now))
        level = min(self.burst, level + (now - at) * self.per_s)
        self.levels[key] = (level - 1, now) if level >= 1 else (level, now)
        if len(self.levels) > BUCKETS_MAX:
            self.levels.popitem(last=False)
        return 0.0 if level >= 1 else (1 - level) / self.per_s


class Guard:
    def __init__(self, app: ASGIApp, settings: RestSettings, tokens: TokenStore, tenancy: Tenancy) -> None:
        self.app, self.settings, self.tokens, self.tenancy = app, settings, tokens, tenancy
        self.callers = Buckets(settings.rate_per_s, settings.rate_burst)
        self.unauthenticated = Buckets(UNAUTHENTICATED_PER_S, UNAUTHENTICATED_BURST)
        self.hosts = LOOPBACK_NAMES | {bracketed(settings.host)} | {name.lower() for name in settings.allow_hosts}
        self.open = OPEN | ({"/metrics"} if settings.metrics_open else frozenset())
        self.bodies = Bodies(settings.submit_bytes_max)
        self.requests = Waits(OPEN_EACH_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # Nothing here speaks websocket.
            await Response(status_code=404)(scope, receive, send) if scope["type"] == "websocket" else None
            return
        answer = self.check(scope)
        if answer is not None:
            await answer(scope, receive, plain(send))
            return
        caller: Caller | None = scope.get("state", {}).get("caller")
        if caller is None:
            await self.app(scope, Body(scope, receive, self.size_max(scope["path"])).receive, plain(send))
            return
        try:
            with self.requests.one(caller.tenant):
                await self.let_in(caller, scope, receive, plain(send))
        except TooManyOpen as problem:
            await too_many_open(problem)(scope, receive, plain(send))

    async def let_in(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        body = Body(scope, receive, self.size_max(scope["path"]), self.bodies.of(caller.tenant))
        try:
            await self.app(scope, body.receive, Late(scope, send, lambda: self.check_again(caller)).send)
        except TokenGone:
            # In the middle of a stream; it is closed.
            pass
        finally:
            body.let_go()

    def check(self, scope: Scope) -> Response | None:
        """The refusal, if there is one."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or host_name(hosts[0]) not in self.hosts:
            fix = "call it by the name of `--listen`, or have it served with --allow-host NAME"
            return problem_response(421, "host", "the Host header names no host of this service", key="Host", fix=fix)
        if scope["path"] in self.open:
            return None
        return self.check_token(scope, headers)

    def check_token(self, scope: Scope, headers: Headers) -> Response | None:
        now = time.monotonic()
        given = headers.getlist("authorization")
        kind, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        token = self.tokens.find(secret.strip(), time.time()) if kind.lower() == "bearer" else None
        if token is None:
            address = scope["client"][0] if scope.get("client") else ""
            wait_s = self.unauthenticated.wait_s(address, now)
            return too_many(wait_s) if wait_s else no_token(bool(given))
        refused = self.check_tenant(token.tenant)
        if refused is not None:
            return refused
        wait_s = self.callers.wait_s(token.id, now)
        if wait_s:
            return too_many(wait_s)
        scope.setdefault("state", {})["caller"] = Caller(token.tenant, token.scope, token.id, token.expires_at)
        return None

    def check_tenant(self, tenant: str) -> Response | None:
        try:
            return None if self.tenancy.now().get(tenant) is not None else no_token(True)
        except StagerError as problem:
            return response_of(problem)

    def check_again(self, caller: Caller) -> Response | None:
        return self.check_tenant(caller.tenant) if self.tokens.is_good(caller.token, time.time()) else no_token(True)

    def size_max(self, path: str) -> int:
        return self.settings.submit_bytes_max if path in LARGE else self.settings.body_bytes_max


class BodyRefused(Exception):
    """Raised where a handler reads the body; the answer is made already."""

    def __init__(self, answer: Response) -> None:
        super().__init__("the body is refused")
        self.answer = answer


async def on_body_refused(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, BodyRefused)
    return problem.answer


class Bodies:
    """The bytes of bodies in memory until their handlers have ended. Each may be large, and many come at a time."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self.held: Counter[str] = Counter()

    def of(self, tenant: str) -> Callable[[int], bool]:
        """Takes so many bytes more (or fewer); False: there is no room for them."""

        def take(size_bytes: int) -> bool:
            fits = self.held[tenant] + size_bytes <= BODIES_EACH_MAX * self.size_max
            fits = fits and self.held.total() + size_bytes <= BODIES_MAX * self.size_max
            if size_bytes <= 0 or fits:
                self.held[tenant] += size_bytes
            return fits

        return take


class Body:
    """Counts what comes, whatever its length was said to be, and does not wait for ever."""

    def __init__(self, scope: Scope, receive: Receive, size_max: int, take: Callable[[int], bool] = lambda size_bytes: True) -> None:
        self.inner, self.size_max, self.size, self.whole = receive, size_max, 0, False
        self.take, self.held = take, 0
        said = Headers(scope=scope).get("content-length", "0")
        self.said = int(said) if said.isdecimal() else 0

    async def receive(self) -> Message:
        if self.whole:
            return await self.inner()
        if self.said > self.size_max:
            raise BodyRefused(too_large(self.size_max))
        try:
            async with asyncio.timeout(BODY_SILENCE_S):
                message = await self.inner()
        except TimeoutError:
            text = f"no byte of the body came for {BODY_SILENCE_S:.0f} s"
            raise BodyRefused(
                problem_response(408, "slow", text, fix="send it again, more quickly", headers={"Connection": "close"})
            ) from None
        self.whole = not message.get("more_body", False)
        came = len(message.get("body", b""))
        self.size += came
        if self.size > self.size_max:
            raise BodyRefused(too_large(self.size_max))
        if not self.take(came):
            raise BodyRefused(too_much())
        self.held += came
        return message

    def let_go(self) -> None:
        self.take(-self.held)
        self.held = 0


class TokenGone(Exception):
    """Raised into a handler that streams."""


class Late:
    """A stream of events is open for as long as its run, and a long poll for a minute: what is revoked meanwhile is told nothing."""

    def __init__(self, scope: Scope, send: Send, check_again: Callable[[], Response | None]) -> None:
        self.scope, self.inner, self.check_again = scope, send, check_again
        self.checked_at, self.over = time.monotonic(), False

    async def send(self, message: Message) -> None:
        if self.over:
            return
        now = time.monotonic()
        if now - self.checked_at >= LATE_S:
            self.checked_at = now
            refused = self.check_again()
            if refused is not None:
                await self.refuse(refused, message)
                return
        await self.inner(message)

    async def refuse(self, refused: Response, message: Message) -> None:
        self.over = True
        if message["type"] == "http.response.start":
            await refused(self.scope, no_more, self.inner)
            return
        await self.inner({"type": "http.response.body", "body": b"", "more_body": False})
        raise TokenGone


async def no_more() -> Message:
    return {"type": "http.disconnect"}


def plain(send: Send) -> Send:
    """Nothing is guessed from an answer's content, and nothing is kept that does not say so."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            there = {name.lower() for name, _ in message["headers"]}
            more = {b"x-content-type-options": b"nosniff", b"cache-control": b"no-store", b"referrer-policy": b"no-referrer"}
            message["headers"] = [*message["headers"], *((name, value) for name, value in more.items() if name not in there)]
        await send(message)

    return sent


def host_name(header: str) -> str:
    """Without its port, `[…]` of IPv6 kept."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdecimal() and not header.endswith("]") else header).lower()


def bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ip_address(host).version == 6 else host
    except ValueError:
        return host.lower()


def no_token(given: bool) -> Response:
    text = "the token is not good (unknown, expired or revoked)" if given else "a token is needed"
    fix = "send Authorization: Bearer TOKEN; `stager token create` makes one"
    error = ', error="invalid_token"' if given else ""
    return problem_response(401, "token", text, key="Authorization", fix=fix, headers={"WWW-Authenticate": f'Bearer realm="stager"{error}'})


def too_many(wait_s: float) -> Response:
    whole = max(1, -int(-wait_s // 1))
    return problem_response(429, "rate", "more requests than are allowed came", fix=f"wait {whole} s", headers={"Retry-After": str(whole)})


def too_much() -> Response:
    text = "too many large bodies are held for you, or for all, at this moment"
    return problem_response(
        429, "too_much", text, fix="send it again when the answers to others have come", headers={"Retry-After": "5", "Connection": "close"}
    )


def too_large(size_max: int) -> Response:
    text = f"the body is larger than the {size_max} bytes that are allowed here"
    return problem_response(413, "too_large", text, fix="send a smaller one", headers={"Connection": "close"})
