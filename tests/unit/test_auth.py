"""The door of the REST API: rates, by token and by address, and which hosts and addresses it may listen on and answer to."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import types
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from stager.adapters.tokens import TokenStore
from stager.model.errors import InvalidInput, Refused
from stager.model.tenants import Scope
from stager.readers.tenants import read_tenants
from stager.service.process import ProtocolWithTimeouts, Server
from stager.service.rest.auth import BodyRefused, Buckets, Guard, host_name
from stager.service.rest.limits import Limiter, TooManyOpen, Waits
from stager.service.settings import RestSettings, StorageSettings, default_capacity, rest_settings, storage_settings
from stager.service.tenancy import Tenancy


async def inner(scope: Any, receive: Any, send: Any) -> None:
    """What is behind the door."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["state"]["caller"].tenant.encode()})


def guarded(place: Path, **settings: Any) -> tuple[Guard, TokenStore]:
    (place / "tenants.toml").touch(mode=0o600)
    (place / "tenants.toml").write_text("[tenants.alice]\n[tenants.bob]\n")
    tokens = TokenStore(place / "tokens.sqlite")
    return Guard(inner, RestSettings(**settings), tokens, Tenancy(place / "tenants.toml", place / "state", {}, read_tenants)), tokens


def asked(guard: Guard, secrets: list[str], host: str = "localhost") -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=f"http://{host}") as client:
            return [await client.get("/api/v1/runs", headers={"Authorization": f"Bearer {secret}"} if secret else {}) for secret in secrets]

    return asyncio.run(ask())


def test_each_token_has_a_rate_of_its_own(tmp_path: Path) -> None:
    guard, tokens = guarded(tmp_path, rate_per_s=0.001, rate_burst=5.0)
    alice, bob = (tokens.create(name, Scope.READ, "", 0.0)[1] for name in ("alice", "bob"))
    answers = asked(guard, [alice] * 8 + [bob])
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3 + [200]
    refused = answers[5]
    assert int(refused.headers["retry-after"]) > 100 and refused.json()["code"] == "rate"


def test_those_without_a_good_token_are_slowed_by_their_address(tmp_path: Path) -> None:
    guard, tokens = guarded(tmp_path)
    alice = tokens.create("alice", Scope.READ, "", 0.0)[1]
    answers = [answer.status_code for answer in asked(guard, [*(f"stg_{n}" for n in range(30)), alice])]
    assert answers[:20] == [401] * 20 and set(answers[20:30]) <= {401, 429} and answers[29] == 429
    assert answers[30] == 200, "a good token is not slowed by what others send from the same address"


def test_a_bucket_fills_again() -> None:
    buckets = Buckets(per_s=2.0, burst=2.0)
    assert [buckets.wait_s("a", now) for now in (0.0, 0.0, 0.0)] == [0.0, 0.0, 0.5]
    assert buckets.wait_s("a", 0.5) == 0.0 and buckets.wait_s("b", 0.5) == 0.0


def test_names_that_a_proxy_calls_it_by_are_told(tmp_path: Path) -> None:
    guard, tokens = guarded(tmp_path, allow_hosts=("Stager.example.org",))
    alice = tokens.create("alice", Scope.READ, "", 0.0)[1]
    assert asked(guard, [alice], "stager.example.org")[0].status_code == 200
    assert asked(guard, [alice], "stager.example.org.evil.org")[0].status_code == 421


@pytest.mark.parametrize(
    ("header", "name"),
    [("a:1", "a"), ("A", "a"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("a:", "a:"), ("a:b", "a:b"), ("a@b:1", "a@b")],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize("listen", ["127.0.0.1:7433", "localhost:1", "[::1]:7433", "127.0.0.2:0"])
def test_loopback_needs_no_more_words(listen: str) -> None:
    assert rest_settings(listen).port == int(listen.rpartition(":")[2])


@pytest.mark.parametrize("listen", ["0.0.0.0:7433", "[::]:7433", "192.168.1.5:7433", "stager.example.org:7433"])
def test_what_others_can_reach_must_be_meant(listen: str) -> None:
    with pytest.raises(Refused, match="no TLS.*--trust-network"):
        rest_settings(listen)
    assert rest_settings(listen, trust_network=True).port == 7433


@pytest.mark.parametrize("listen", ["", "7433", "localhost", ":7433", "localhost:http", "localhost:70000"])
def test_an_address_is_a_host_and_a_port(listen: str) -> None:
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        rest_settings(listen)


def test_a_tenant_takes_its_share_of_reading_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stager.service.rest.limits.PATIENCE_S", 0.2)
    monkeypatch.setattr("stager.service.rest.limits.READING_MAX", 3)

    async def play() -> list[str]:
        limiter, told = Limiter(), []
        async with limiter.permit("alice"), limiter.permit("alice"):
            try:
                async with limiter.permit("alice"):
                    told.append("a third")
            except Exception as problem:
                told.append(getattr(problem, "code", ""))
            async with limiter.permit("bob"):
                told.append("bob's")
                try:
                    async with limiter.permit("carol"):
                        told.append("carol's")
                except Exception as problem:
                    told.append(getattr(problem, "code", ""))
        async with limiter.permit("carol"), limiter.permit("carol"), limiter.permit("bob"):
            told.append("all free again")
        return told

    assert asyncio.run(play()) == ["busy", "bob's", "busy", "all free again"]


def test_open_answers_are_counted_by_tenant_and_given_back() -> None:
    waits = Waits(1)
    with waits.one("alice"):
        with pytest.raises(TooManyOpen), waits.one("alice"):
            pass
        with waits.one("bob"):
            pass
    with waits.one("alice"):
        pass


async def reading(scope: Any, receive: Any, send: Any) -> None:
    """A handler that wants the body."""
    await receive()


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("stager.service.rest.auth.BODY_SILENCE_S", 0.05)
    guard, tokens = guarded(tmp_path)
    guard.app = reading
    secret = tokens.create("alice", Scope.READ, "", 0.0)[1]
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {secret}".encode())]
    scope = {"type": "http", "path": "/api/v1/runs", "method": "POST", "headers": headers}

    async def never() -> Any:
        await asyncio.sleep(60)

    async def nothing(message: Any) -> None:
        """Where answers go."""

    with pytest.raises(BodyRefused) as caught:
        asyncio.run(guard(scope, never, nothing))
    assert caught.value.answer.status_code == 408


def test_bodies_of_a_tenant_take_so_much_memory_at_a_time_and_no_more(tmp_path: Path) -> None:
    guard, tokens = guarded(tmp_path, submit_bytes_max=1000)
    secrets = {name: tokens.create(name, Scope.READ, "", 0.0)[1] for name in ("alice", "bob")}
    told: list[str] = []

    async def ask(name: str, go: asyncio.Event, path: str = "/api/v1/validate") -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"x" * 900, "more_body": False}

        async def handler(scope: Any, receive: Any, send: Any) -> None:
            try:
                await receive()
            except BodyRefused as refused:
                told.append(f"{name} {refused.answer.status_code}")
            else:
                await go.wait()
                told.append(f"{name} read")

        guard.app = handler
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {secrets[name]}".encode())]
        await guard({"type": "http", "path": path, "method": "POST", "headers": headers}, receive, nothing)

    async def nothing(message: Any) -> None:
        """Where answers go."""

    async def play() -> None:
        go = asyncio.Event()
        asking = [asyncio.create_task(ask(name, go)) for name in ("alice", "alice", "alice", "bob", "bob")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert told == ["alice 429"], told
        go.set()
        await asyncio.gather(*asking)
        await ask("alice", go)

    asyncio.run(play())
    assert sorted(told) == ["alice 429", "alice read", "alice read", "alice read", "bob read", "bob read"]


@pytest.mark.parametrize("how", ["revoked", "removed", "broken"])
def test_a_stream_and_a_long_poll_end_when_their_token_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr("stager.service.rest.auth.LATE_S", 0.0)
    guard, tokens = guarded(tmp_path)
    token, secret = tokens.create("alice", Scope.READ, "", 0.0)

    def end() -> None:
        if how == "revoked":
            tokens.revoke(token.id, 1.0)
        else:
            (tmp_path / "tenants.toml").write_text("[tenants.bob]\n" if how == "removed" else "[[[")

    async def streamed(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(5):
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})
            if number == 1:
                end()

    async def polled(scope: Any, receive: Any, send: Any) -> None:
        end()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"secret"})

    guard.app = streamed
    (answer,) = asked(guard, [secret])
    assert (answer.status_code, answer.content) == (200, b"01")
    guard, tokens = guarded(tmp_path)
    token, secret = tokens.create("alice", Scope.READ, "", 0.0)
    guard.app = polled
    (answer,) = asked(guard, [secret])
    assert answer.status_code == (503 if how == "broken" else 401) and b"secret" not in answer.content
    assert guard.requests.open["alice"] == 0 and guard.bodies.held["alice"] == 0


def test_open_requests_of_a_tenant_leave_connections_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stager.service.rest.auth.OPEN_EACH_MAX", 2)
    guard, tokens = guarded(tmp_path)
    secrets = {name: tokens.create(name, Scope.READ, "", 0.0)[1] for name in ("alice", "bob")}

    async def play() -> list[int]:
        go = asyncio.Event()

        async def held(scope: Any, receive: Any, send: Any) -> None:
            await go.wait()
            await inner(scope, receive, send)

        guard.app = held
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://localhost") as client:
            names = ["alice", "alice", "alice", "bob"]
            headers = [{"Authorization": f"Bearer {secrets[name]}"} for name in names]
            asking = [asyncio.create_task(client.get("/api/v1/runs", headers=each)) for each in headers]
            refused = await asking[2]
            assert refused.json()["code"] == "too_many_open"
            go.set()
            return [answer.status_code for answer in await asyncio.gather(*asking)]

    assert asyncio.run(play()) == [200, 200, 429, 200]


async def ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.slow
def test_who_connects_and_asks_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    monkeypatch.setattr("stager.service.process.HEADERS_DEADLINE_S", 0.5)

    async def play() -> list[bytes]:
        config = uvicorn.Config(ok, http=ProtocolWithTimeouts, lifespan="off", log_config=None)
        server = Server(config)
        listening = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        answers = []
        for said in (b"", b"GET / HTTP/1.1\r\nHost: ", whole + b"GET / HTTP/1.1\r\nHost: "):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            if said.startswith(whole):
                writer.write(whole)
                answers.append(await reader.readuntil(b"0\r\n\r\n"))
            writer.write(said.removeprefix(whole))
            answers.append(await asyncio.wait_for(reader.read(), 20))
            writer.close()
        # One that goes on asking is served on, however long it has been there.
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        for _ in range(3):
            writer.write(whole)
            answers.append(await reader.readuntil(b"0\r\n\r\n"))
            await asyncio.sleep(0.7)
        writer.close()
        server.should_exit = True
        await serving
        return [answer[:15] for answer in answers]

    good = b"HTTP/1.1 200 OK"
    assert asyncio.run(play()) == [b"", b"", good, b"", good, good, good]


def test_strangers_leave_room_for_who_has_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that came first make room for the next, whatever they said; who has shown a token once stays."""
    monkeypatch.setattr("stager.service.process.UNAUTHENTICATED_MAX", 4)
    monkeypatch.setattr("stager.service.process.HEADERS_DEADLINE_S", 600)
    guard, tokens = guarded(tmp_path)
    token = tokens.create("alice", Scope.READ, "", 0.0)[1]
    asking = b"GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n"
    with_token = asking + f"Authorization: Bearer {token}\r\n\r\n".encode()

    async def play() -> list[bytes]:
        go = asyncio.Event()

        async def held(scope: Any, receive: Any, send: Any) -> None:
            await go.wait()
            await inner(scope, receive, send)

        limits = {"limit_concurrency": 8, "timeout_keep_alive": 600}
        server = Server(uvicorn.Config(guard, http=ProtocolWithTimeouts, lifespan="off", log_config=None, **limits))
        listening = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve(sockets=[listening]))

        async def connected(said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(said)
            return reader, writer

        async def answered(reader: asyncio.StreamReader, end: bytes = b"alice\r\n0\r\n\r\n") -> asyncio.StreamReader:
            heads.append(await asyncio.wait_for(reader.readuntil(end), 30))
            return reader

        heads: list[bytes] = []
        first, idle = await connected(with_token)
        await answered(first)
        guard.app = held
        waiting, waits = await connected(with_token)
        while server.server_state.tasks == set():
            await asyncio.sleep(0.01)
        unauthenticated = []
        for said in (b"", asking, asking + b"\r\n") * 5:
            unauthenticated.append(await connected(said))
            if said.endswith(b"\r\n\r\n"):
                await answered(unauthenticated[-1][0], b"\r\n\r\n")
        gone = [asyncio.create_task(reader.read()) for reader, _ in unauthenticated[:11]]
        done, late = await asyncio.wait(gone, timeout=30)
        assert not late and len(server.server_state.connections) == 6
        go.set()
        await answered(waiting)
        idle.write(with_token)
        await answered(first)
        last, new = await connected(with_token)
        await answered(last)
        for writer in (idle, waits, new, *(writer for _, writer in unauthenticated)):
            writer.close()
        for each in done:
            each.exception()
        server.should_exit = True
        await serving
        return [head[:12] for head in heads if not head.startswith((b"HTTP/1.1 401", b"HTTP/1.1 429"))]

    assert asyncio.run(play()) == [b"HTTP/1.1 200"] * 4


def test_storage_is_a_tenth_of_the_capacity_on_loopback_unless_it_is_told_otherwise() -> None:
    assert storage_settings(1_000_000) == StorageSettings(100_000, "127.0.0.1:7434")
    assert storage_settings(1_000_000, 0) is None
    proxied = storage_settings(1_000_000, 5, "[::1]:0", "https://storage.example.org/")
    assert proxied == StorageSettings(5, "[::1]:0", "https://storage.example.org")
    for listen in ("localhost:7434", "7434", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"):
        with pytest.raises(InvalidInput, match="IP:PORT"):
            storage_settings(1, listen=listen)
    with pytest.raises(Refused, match="--storage-url"):
        storage_settings(1, listen="0.0.0.0:7434")
    assert storage_settings(1, listen="0.0.0.0:7434", trust_network=True) is not None
    for url in ("storage.example.org", "https://user@host", "https://host/path", "ftp://host"):
        with pytest.raises(InvalidInput, match="without a path"):
            storage_settings(1, url=url)


def test_what_tenants_store_is_no_room_for_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that counted their objects as its own would be told to grow into a full disk."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10 << 20))
    for directory in ("files", "objects/ab"):
        (tmp_path / "node" / directory).mkdir(parents=True)
        with open(tmp_path / "node" / directory / "content", "wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, 10 << 20)
    assert default_capacity(tmp_path) == 10_000_000
