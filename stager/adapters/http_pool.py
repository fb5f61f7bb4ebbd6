"""A small HTTP/1.1 client for control calls: keep-alive connections over a Unix socket or loopback, to our own I/O nodes.

May know: asyncio. One rule: a call costs a fraction of a millisecond, since every job makes several: so it reads answers by itself, as
strictly as h11 did, which took half of the scheduler's time. Payload bytes never come this way.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

READ_BYTES = 65_536
IDLE_KEPT_MAX = 32
HEAD_END = b"\r\n\r\n"
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
# What says where an answer ends must be said once.
FRAMING = (b"content-length", b"transfer-encoding")
HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")
BODILESS = (204, 304)
Header = tuple[str, str]


class Lost(ConnectionError):
    """The connection broke; `began` is True once a part of the answer had come."""

    def __init__(self, message: str, *, began: bool = False) -> None:
        super().__init__(message)
        self.began = began


class Misread(ValueError):
    """What came is no answer of HTTP/1.1."""


class Connection:
    """One call at a time. What is left in `buffer` after an answer belongs to none that was asked for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.buffer = bytearray()
        self.began = self.stays = False

    async def exchange(self, method: str, target: str, headers: Iterable[Header], body: bytes) -> tuple[int, bytes]:
        """Status and body; raises Lost."""
        self.began = self.stays = False
        try:
            self.writer.write(head_of(method, target, headers, len(body)) + body)
            if len(body) > READ_BYTES:
                await self.writer.drain()
            status, said = await self._head()
            while status < 200:
                status, said = await self._head()
            answer = b"" if status in BODILESS else await self._body(said)
        except (OSError, Misread) as problem:
            if isinstance(problem, Lost):
                raise
            raise Lost(str(problem), began=self.began) from problem
        self.stays = self.stays and said.get(b"connection", b"").lower() != b"close"
        return status, answer

    async def _head(self) -> tuple[int, dict[bytes, bytes]]:
        """The status and the headers, by their names in small letters."""
        while (end := self.buffer.find(HEAD_END)) < 0:
            if len(self.buffer) > READ_BYTES:
                raise Misread("the head of the answer is too long")
            await self._more()
        first, *lines = bytes(self.buffer[:end]).split(b"\r\n")
        del self.buffer[: end + len(HEAD_END)]
        version, status = first[:8], first[9:12]
        if version not in VERSIONS or first[8:9] != b" " or not status.isdigit():
            raise Misread(f"the answer begins with {first[:40]!r}")
        self.stays = version == b"HTTP/1.1"
        said: dict[bytes, bytes] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            name = name.lower()
            if not colon or name in said and name in FRAMING:
                raise Misread(f"the answer has the header {line[:40]!r}")
            said[name] = value.strip()
        return int(status), said

    async def _body(self, said: dict[bytes, bytes]) -> bytes:
        coding, length = said.get(b"transfer-encoding"), said.get(b"content-length")
        if coding is not None:
            if coding.lower() != b"chunked" or length is not None:
                raise Misread(f"the answer comes as {coding[:40]!r}")
            return await self._chunks()
        if length is not None:
            if not length.isdigit():
                raise Misread(f"the answer is {length[:40]!r} bytes long")
            return await self._take(int(length))
        self.stays = False
        while data := await self.reader.read(READ_BYTES):
            self.buffer += data
        return await self._take(len(self.buffer))

    async def _chunks(self) -> bytes:
        parts = []
        while True:
            size = (await self._line()).partition(b";")[0].strip()
            if not size or not HEX_DIGITS.issuperset(size):
                raise Misread(f"a part of the answer is {size[:40]!r} bytes long")
            length = int(size, 16)
            if not length:
                break
            parts.append(await self._take(length))
            if await self._line():
                raise Misread("a part of the answer is longer than it says")
        while await self._line():
            """Of what follows the parts nothing is used."""
        return b"".join(parts)

    async def _line(self) -> bytes:
        while (end := self.buffer.find(b"\r\n")) < 0:
            if len(self.buffer) > READ_BYTES:
                raise Misread("a line of the answer is too long")
            await self._more()
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 2]
        return line

    async def _take(self, length: int) -> bytes:
        while len(self.buffer) < length:
            await self._more()
        taken = bytes(self.buffer[:length])
        del self.buffer[:length]
        return taken

    async def _more(self) -> None:
        data = await self.reader.read(READ_BYTES)
        if not data:
            raise Lost("the connection was closed before an answer came", began=self.began)
        self.began = True
        self.buffer += data

    def reusable(self) -> bool:
        return self.stays and not self.buffer and not self.reader.at_eof()

    def close(self) -> None:
        self.writer.close()


def head_of(method: str, target: str, headers: Iterable[Header], length: int) -> bytes:
    """Nobody but us writes it; what would make two lines of one is refused all the same."""
    lines = [f"{method} {target} HTTP/1.1", *[f"{name}: {value}" for name, value in headers], f"Content-Length: {length}"]
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or lines[0].count(" ") != 2:
        raise ValueError(f"{method} {target!r}: a header, or the target, holds what none may")
    return head.encode("ascii") + HEAD_END


class Pool:
    """Connections to one address: a socket path, or (host, port)."""

    def __init__(self, address: Path | tuple[str, int]) -> None:
        self.address = address
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
            return Connection(*await asyncio.open_connection(*self.address))
        except OSError as problem:
            raise Lost(f"cannot connect to {self.address}: {problem}") from problem

    def close(self) -> None:
        self.closed = True
        while self.idle:
            self.idle.pop().close()


async def connect_unix(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A socket's path may be longer than the 107 bytes the kernel takes: its directory is then named by descriptor."""
    if len(os.fsencode(path)) < 100:
        return await asyncio.open_unix_connection(path)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
