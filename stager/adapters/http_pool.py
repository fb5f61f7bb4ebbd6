"""A small HTTP/1.1 client for control calls: keep-alive connections over a Unix socket or loopback, parsed by h11.

May know: h11 and asyncio. One rule: a call costs a fraction of a millisecond, since every job makes several.
Payload bytes never come this way.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import h11

READ_BYTES = 65_536
IDLE_KEPT_MAX = 32
Header = tuple[str, str]


class Lost(ConnectionError):
    """The connection broke; `began` is True once a part of the answer had come."""

    def __init__(self, message: str, *, began: bool = False) -> None:
        super().__init__(message)
        self.began = began


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.state = h11.Connection(h11.CLIENT, max_incomplete_event_size=READ_BYTES)

    async def exchange(self, method: str, target: str, headers: Iterable[Header], body: bytes) -> tuple[int, bytes]:
        """Status and body; raises Lost."""
        began = False
        try:
            request = h11.Request(method=method, target=target, headers=[*headers, ("Content-Length", str(len(body)))])
            head = self.state.send(request) or b""
            payload = self.state.send(h11.Data(body)) if body else b""
            self.writer.write(head + (payload or b"") + (self.state.send(h11.EndOfMessage()) or b""))
            if len(body) > READ_BYTES:
                await self.writer.drain()
            status, parts = 0, []
            while True:
                event = self.state.next_event()
                if event is h11.NEED_DATA:
                    data = await self.reader.read(READ_BYTES)
                    began = began or bool(data)
                    self.state.receive_data(data)
                elif type(event) is h11.Response:
                    status = event.status_code
                elif type(event) is h11.Data:
                    parts.append(bytes(event.data))
                elif type(event) is h11.EndOfMessage:
                    return status, b"".join(parts)
                elif type(event) is h11.ConnectionClosed:
                    raise Lost("the connection was closed before an answer came", began=began)
        except (OSError, h11.RemoteProtocolError) as problem:
            if isinstance(problem, Lost):
                raise
            raise Lost(str(problem), began=began) from problem

    def reusable(self) -> bool:
        if self.state.our_state is not h11.DONE or self.state.their_state is not h11.DONE or self.reader.at_eof():
            return False
        self.state.start_next_cycle()
        return True

    def close(self) -> None:
        self.writer.close()


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
