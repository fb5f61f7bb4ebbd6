"""What clients send to a proxy that the environment names. One rule: the proxy is a real one, and what it was sent is what it read."""

from __future__ import annotations

import asyncio
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import obstore
import pytest

from stager.client import AsyncRestClient, RestClient
from stager.client.proxies import goes_direct
from stager.fs.access import ServiceAccess

SECRET = "stgr-a-token-that-nobody-may-see"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class Proxy(socketserver.ThreadingTCPServer):
    """Writes down what it is sent, and serves nothing."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        self.read: list[bytes] = []
        super().__init__(("127.0.0.1", 0), Recording)


class Recording(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        self.server.read.append(self.request.recv(65536))
        self.request.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


class Service(BaseHTTPRequestHandler):
    """Of the service only what says where objects are; objects are all alike."""

    def do_GET(self) -> None:
        place = f"http://127.0.0.1:{self.server.server_address[1]}"
        given = {"endpoint": place, "region": "us-east-1", "access_key_id": "k", "secret_access_key": "s", "expires_at": 2**40}
        body = json.dumps(given | {"expires_in_s": 3600, "may_write": True}) if "/api/" in self.path else "an object"
        if self.path.startswith("/?") or self.path == "/":
            body = "<ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>"
        self.send_response(200)
        for name, value in (("Content-Length", str(len(body))), ("Last-Modified", "Mon, 23 Nov 2026 06:00:00 GMT"), ("ETag", '"1"')):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def started() -> Iterator[Callable[[socketserver.BaseServer], None]]:
    servers: list[socketserver.BaseServer] = []

    def start(server: socketserver.BaseServer) -> None:
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def proxy(started: Callable[[socketserver.BaseServer], None], monkeypatch: pytest.MonkeyPatch) -> Proxy:
    made = Proxy()
    started(made)
    for name in VARIABLES:
        for spelled in (name, name.lower()):
            monkeypatch.setenv(spelled, f"http://127.0.0.1:{made.server_address[1]}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture
def service(started: Callable[[socketserver.BaseServer], None]) -> str:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    started(server)
    return f"http://127.0.0.1:{server.server_address[1]}"


def test_the_proxy_of_these_tests_is_one_that_clients_take(proxy: Proxy, service: str) -> None:
    assert httpx.get(service).status_code == 502 and proxy.read


def test_a_service_on_this_machine_is_asked_directly(proxy: Proxy, service: str) -> None:
    with RestClient(service, SECRET) as client:
        assert client.storage().access_key_id == "k"

    async def ask() -> str:
        async with AsyncRestClient(service, SECRET) as client:
            return (await client.http.get("api/v1/storage")).text

    assert "us-east-1" in asyncio.run(ask())
    assert proxy.read == []


def test_objects_on_this_machine_are_asked_for_directly(proxy: Proxy, service: str) -> None:
    access = ServiceAccess(service, SECRET)
    assert bytes(obstore.get(access.store("bucket"), "name").bytes()) == b"an object"
    assert access.buckets() == []
    assert proxy.read == []


def test_a_service_elsewhere_is_asked_through_the_proxy_that_cannot_read_the_token(proxy: Proxy) -> None:
    with RestClient("https://stager.example.org", SECRET) as client, pytest.raises(httpx.ProxyError):
        client.http.get("api/v1/runs")
    assert [text.split(b"\r\n")[0] for text in proxy.read] == [b"CONNECT stager.example.org:443 HTTP/1.1"]
    assert SECRET.encode() not in b"".join(proxy.read)


def test_without_tls_no_proxy_is_asked_however_far_it_is(proxy: Proxy) -> None:
    with RestClient("http://stager.invalid", SECRET) as client, pytest.raises(httpx.ConnectError):
        client.http.get("api/v1/runs")
    assert proxy.read == []


@pytest.mark.parametrize(
    ("url", "direct"),
    [
        ("https://127.0.0.1:7443", True),
        ("https://127.3.2.1", True),
        ("https://[::1]:7443", True),
        ("https://[::ffff:127.0.0.1]", True),
        ("https://LocalHost.", True),
        ("https://stager.localhost", True),
        ("HTTP://stager.example.org", True),
        ("https://stager.example.org", False),
        ("https://10.0.0.1", False),
        ("https://localhost.example.org", False),
    ],
)
def test_who_is_asked_directly(url: str, direct: bool) -> None:
    assert goes_direct(url) is direct
