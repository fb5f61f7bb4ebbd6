"""The specs of attempts, handed to the workers of this machine's hosts over a Unix socket. They hold the jobs' environments, so they lie
in memory and go through no other program.

May know: the worker's specs. One rule: only this user reaches the socket, and a brief is there only while its attempt is being started.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from stager.adapters.http_pool import connect_unix
from stager.adapters.private_socket import listen
from stager.model.errors import Transient
from stager.worker import AttemptSpec

LINE_BYTES_MAX = 64 << 20
ASK_TIMEOUT_S = 30.0


class Briefs:
    """On the event loop's thread. One connection for each question: the attempt's id and a line end come, the brief goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.specs: dict[str, AttemptSpec] = {}
        self.server: asyncio.Server | None = None

    async def open(self) -> None:
        """0600 from its first moment."""
        self.server = await asyncio.start_unix_server(self._answer, sock=listen(self.path))

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()
            self.path.unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                attempt = (await reader.readline()).decode(errors="replace").strip()
                spec = self.specs.get(attempt)
                if spec is not None:
                    writer.write(msgspec.json.encode(spec))
                    await writer.drain()
        except (OSError, ValueError):
            # Whoever asked is gone, or asks for no attempt.
            pass
        finally:
            writer.close()


async def brief_from(path: str, attempt: str) -> AttemptSpec:
    """Raises Transient where nobody hands it out now, which says nothing about the attempt."""
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            reader, writer = await connect_unix(Path(path))
            try:
                writer.write(f"{attempt}\n".encode())
                told = await reader.read(-1)
            finally:
                writer.close()
    except OSError as problem:
        raise Transient(f"the scheduler does not hand out the brief of attempt {attempt}: {problem}", code="connection_lost") from problem
    if not told:
        raise Transient(f"the scheduler does not start attempt {attempt} now", code="connection_lost")
    return msgspec.json.decode(told, type=AttemptSpec)
