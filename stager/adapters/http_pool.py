"""A small HTTP/1.1 client for control calls: keep-alive connections over a Unix socket, loopback or TLS, parsed by httptools.

May know: asyncio and httptools. One rule: a call costs a fraction of a millisecond, since every job makes several.
Payload bytes never come this way.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import httptools

READ_BYTES = 65_536
IDLE_KEPT_MAX = 32
BODILESS = (204, 304)
# As in ionode/node/src/lines.rs: dead after so long without a sign of life. A line that is mended sooner is gone on with.
DEAD_AFTER_S = 30
LINE_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_S * 1000),
)
Header = tuple[str, str]


class Lost(ConnectionError):
    """The connection broke; `began` is True once a part of the answer had come. `for_somebody`: trying again alone does not help."""

    for_somebody = False

    def __init__(self, message: str, *, began: bool = False) -> None:
        super().__init__(message)
        self.began = began


class Secure(Protocol):
    """Connects by TLS, and says what breaks such a connection. Raises Lost."""

    async def connected(self, address: tuple[str, int], node: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]: ...

    def lost(self, problem: OSError, *, began: bool = False) -> Lost: ...


class Misread(ValueError):
    """The answer is none of HTTP/1.1."""


class Answer:
    """One answer as httptools tells of it: whoever began it feeds the parser until it `is_whole`."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status, self.parts = 0, list[bytes]()
        self.head_is_whole = self.is_whole = self.is_framed = self.stays = False
        self.head_bytes = 0

    def feed(self, data: bytes) -> None:
        """Raises Misread."""
        self.head_bytes += 0 if self.head_is_whole else len(data)
        if self.head_bytes > 2 * READ_BYTES:
            raise Misread("the head of the answer is too long")
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as problem:
            if not self.is_whole:
                raise Misread(f"the answer is not understood: {problem}") from problem
            self.stays = False

    def ended(self) -> bool:
        """The connection did: whether that is how this answer ends."""
        self.is_whole = self.is_whole or self.head_is_whole and not self.is_framed
        return self.is_whole

    def on_message_begin(self) -> None:
        # What follows an answer belongs to none that was asked for.
        if self.is_whole:
            self.stays = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_whole:
            return
        name = name.lower()
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            raise Misread(f"the answer comes as {value[:40]!r}")
        self.is_framed = self.is_framed or name in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        if not self.is_whole:
            self.status = self.parser.get_status_code()
            self.head_is_whole = self.status >= 200
            self.is_framed = self.is_framed or self.status in BODILESS

    def on_body(self, body: bytes) -> None:
        if not self.is_whole:
            self.parts.append(body)

    def on_message_complete(self) -> None:
        if not self.is_whole and self.head_is_whole:
            self.is_whole, self.stays = True, self.parser.should_keep_alive()


class Connection:
    """One call at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secure: Secure | None = None) -> None:
        self.reader, self.writer, self.secure = reader, writer, secure
        self.stays = False

    async def exchange(self, method: str, target: str, headers: Iterable[Header], body: bytes) -> tuple[int, bytes]:
        """Status and body; raises Lost."""
        began, self.stays = False, False
        try:
            self.writer.write(head_of(method, target, headers, len(body)) + body)
            if len(body) > READ_BYTES:
                await self.writer.drain()
            answer = Answer()
            while not answer.is_whole:
                data = await self.reader.read(READ_BYTES)
                began = began or bool(data)
                if data:
                    answer.feed(data)
                elif not answer.ended():
                    raise Lost("the connection was closed before an answer came", began=began)
        except (OSError, Misread) as problem:
            if isinstance(problem, Lost):
                raise
            if self.secure is not None and isinstance(problem, OSError):
                raise self.secure.lost(problem, began=began) from problem
            raise Lost(str(problem), began=began) from problem
        self.stays = answer.stays
        return answer.status, b"".join(answer.parts)

    def reusable(self) -> bool:
        return self.stays and not self.reader.at_eof()

    def close(self) -> None:
        self.writer.close()


def head_of(method: str, target: str, headers: Iterable[Header], length: int) -> bytes:
    """Nobody but us writes it; what would make two lines of one is refused all the same."""
    lines = [f"{method} {target} HTTP/1.1", *[f"{name}: {value}" for name, value in headers], f"Content-Length: {length}"]
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or lines[0].count(" ") != 2:
        raise ValueError(f"{method} {target!r}: a header, or the target, holds what none may")
    return head.encode("ascii") + b"\r\n\r\n"


class Pool:
    """Connections to one address: a socket path, or (host, port). `secure`: by TLS, to the node of that name."""

    def __init__(self, address: Path | tuple[str, int], secure: tuple[Secure, str] | None = None) -> None:
        self.address, self.secure = address, secure
        self.idle: list[Connection] = []
        self.closed = False

    async def request(
        self, method: str, target: str, headers: Iterable[Header] = (), body: bytes = b"", timeout_s: float | None = None
    ) -> tuple[int, bytes]:
        """One call. A kept connection that turns out closed before any byte of the answer is replaced once. Raises Lost or TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while True:
                kept = bool(self.idle)
                connection = self.idle.pop() if kept else await self._connect()
                try:
                    answer = await connection.exchange(method, target, headers, body)
                except Lost as problem:
                    connection.close()
                    if kept and not problem.began:
                        continue
                    raise
                except BaseException:
                    connection.close()
                    raise
                self._keep(connection)
                return answer

    def _keep(self, connection: Connection) -> None:
        if not self.closed and len(self.idle) < IDLE_KEPT_MAX and connection.reusable():
            self.idle.append(connection)
        else:
            connection.close()

    async def _connect(self) -> Connection:
        try:
            if isinstance(self.address, Path):
                return Connection(*await connect_unix(self.address))
            if self.secure is not None:
                secure, node = self.secure
                reader, writer = await secure.connected(self.address, node)
            else:
                secure = None
                reader, writer = await asyncio.open_connection(*self.address)
            watch(writer)
            return Connection(reader, writer, secure)
        except Lost:
            raise
        except (OSError, UnicodeError) as problem:
            # A name with an empty label is none for the encoder of names, which calls it no OSError.
            raise Lost(f"cannot connect to {self.address}: {problem}") from problem

    def close(self) -> None:
        self.closed = True
        while self.idle:
            self.idle.pop().close()


def watch(writer: asyncio.StreamWriter) -> None:
    """A line that is cut tells nobody: the system asks whether the other end lives, so that no call waits for ever."""
    connected = writer.get_extra_info("socket")
    for level, option, value in LINE_OPTIONS:
        connected.setsockopt(level, option, value)


async def connect_unix(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A socket's path may be longer than the 107 bytes the kernel takes: its directory is then named by descriptor."""
    if len(os.fsencode(path)) < 100:
        return await asyncio.open_unix_connection(path)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
