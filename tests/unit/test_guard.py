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
from stager.service.process import Impatient, Server
from stager.service.rest.guard import BodyRefused, Buckets, Guard, host_name
from stager.service.rest.turns import TooManyOpen, Turns, Waits
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
    return Guard(inner, RestSettings(**settings), tokens, Tenancy(place / "tenants.toml", place / "state", {})), tokens


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
    monkeypatch.setattr("stager.service.rest.turns.PATIENCE_S", 0.2)

    async def play() -> list[str]:
        turns, told = Turns(), []
        async with turns.turn("alice"), turns.turn("alice"):
            try:
                async with turns.turn("alice"):
                    told.append("a third")
            except Exception as problem:
                told.append(getattr(problem, "code", ""))
            async with turns.turn("bob"):
                told.append("bob's")
                try:
                    async with turns.turn("carol"):
                        told.append("carol's")
                except Exception as problem:
                    told.append(getattr(problem, "code", ""))
        async with turns.turn("carol"), turns.turn("carol"), turns.turn("bob"):
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
    monkeypatch.setattr("stager.service.rest.guard.BODY_SILENCE_S", 0.05)
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


def test_who_connects_and_asks_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stager.service.process.HEADERS_DEADLINE_S", 0.1)

    async def play() -> tuple[bytes, bytes]:
        config = uvicorn.Config(inner, http=Impatient, lifespan="off", log_config=None)
        server = Server(config)
        listening = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        answers = []
        for said in (b"", b"GET / HTTP/1.1\r\nHost: "):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(said)
            answers.append(await asyncio.wait_for(reader.read(), 20))
            writer.close()
        server.should_exit = True
        await serving
        return answers[0], answers[1]

    assert asyncio.run(play()) == (b"", b"")


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
