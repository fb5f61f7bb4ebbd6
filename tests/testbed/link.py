"""A bad line in front of a server: a TCP proxy that cuts, stalls, delays, throttles, counts, and flips bytes.

May know: sockets. One rule: it does to a stream only what a bad network would do, and only what was asked for by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

CHUNK = 64 * 1024
WINDOW_CHUNKS = 64
# So late a busy machine may wake whoever waits for the line, which was not free meanwhile.
LATE_S = 0.25


@dataclass
class Direction:
    """Bytes one way over all connections. `flip_at` and `cut_at` count from the first byte that this link ever carried this way."""

    carried_bytes: int = 0
    flip_at: int | None = None
    cut_at: int | None = None
    flipped: int = 0


@dataclass
class Link:
    """From `port` to `target_port` on loopback. `up` is towards the server, `down` towards the client. Knobs may be turned at any time."""

    target_port: int
    delay_s: float = 0.0
    bytes_per_s: float | None = None
    port: int = 0
    connections: int = 0
    up: Direction = field(default_factory=Direction)
    down: Direction = field(default_factory=Direction)

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = True
        self._next_free_s = 0.0
        self._thread = threading.Thread(target=self._serve, name="link", daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60), "the link did not come up"

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end)
            self._thread.join(10)

    # What tests do to it, from their own thread.

    def cut(self) -> None:
        """Resets every connection; new ones are welcome."""
        self._call(self._reset_all)

    def go_down(self) -> None:
        """Resets every connection and every new one, until `come_up`."""
        self._call(lambda: (setattr(self, "_accepting", False), self._reset_all()))

    def come_up(self) -> None:
        self._call(lambda: setattr(self, "_accepting", True))

    def stall(self) -> None:
        """Nothing moves any more, nobody is told: the worst that a network does."""
        self._call(self._flowing.clear)

    def flow(self) -> None:
        self._call(self._flowing.set)

    def cut_after(self, bytes_more: int, *, up: bool = False) -> None:
        """Resets every connection once, when so many more bytes have passed this way."""
        way = self.up if up else self.down
        way.cut_at = way.carried_bytes + bytes_more

    def flip_after(self, bytes_more: int, *, up: bool = False) -> None:
        """Turns one bit of the byte that comes after so many more this way."""
        way = self.up if up else self.down
        way.flip_at = way.carried_bytes + bytes_more

    # Below: the thread of the link.

    def _call(self, action: Callable[[], object]) -> None:
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(act)
        assert done.wait(60), "the link does not answer"

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._flowing = asyncio.Event()
        self._flowing.set()
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", self.port))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    def _end(self) -> None:
        self._reset_all()
        self._loop.stop()

    def _reset_all(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if not self._accepting:
            writer.transport.abort()
            return
        self.connections += 1
        # From now on: a line that goes down while the server is being called takes this one with it.
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError):
                await self._carry(reader, writer)
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._open.add(far_writer)
        try:
            if not writer.transport.is_closing():
                await asyncio.gather(self._pump(reader, far_writer, self.up), self._pump(far_reader, writer, self.down))
        finally:
            self._open.discard(far_writer)
            far_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction) -> None:
        """Reading and writing are apart, so that a delay is latency and costs no bandwidth."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WINDOW_CHUNKS)
        writing = asyncio.ensure_future(self._write(queue, writer, way))
        try:
            while data := await reader.read(CHUNK):
                await queue.put((self._loop.time() + self.delay_s, data))
            await queue.put((self._loop.time() + self.delay_s, b""))
            await writing
        except OSError:
            writer.transport.abort()
        finally:
            writing.cancel()

    async def _write(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, way: Direction) -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._flowing.wait()
            if not data:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            await self._take_turn(len(data))
            if writer.transport.is_closing():
                return
            data, cut = self._trouble(data, way)
            way.carried_bytes += len(data)
            try:
                writer.write(data)
                await writer.drain()
            except OSError:
                writer.transport.abort()
            if cut:
                self._reset_all()
                return

    async def _take_turn(self, size_bytes: int) -> None:
        """One line for all connections: each chunk takes its time on it."""
        if self.bytes_per_s:
            now = self._loop.time()
            start = max(self._next_free_s, now) if now - self._next_free_s > LATE_S else self._next_free_s
            self._next_free_s = start + size_bytes / self.bytes_per_s
            await asyncio.sleep(self._next_free_s - self._loop.time())

    @staticmethod
    def _trouble(data: bytes, way: Direction) -> tuple[bytes, bool]:
        cut = way.cut_at is not None and way.carried_bytes + len(data) >= way.cut_at
        if cut:
            data = data[: max(0, way.cut_at - way.carried_bytes)]
            way.cut_at = None
        if way.flip_at is not None and way.carried_bytes <= way.flip_at < way.carried_bytes + len(data):
            place = way.flip_at - way.carried_bytes
            data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            way.flip_at, way.flipped = None, way.flipped + 1
        return data, cut


@contextlib.contextmanager
def running_link(target_port: int, *, delay_s: float = 0.0, bytes_per_s: float | None = None) -> Iterator[Link]:
    link = Link(target_port, delay_s, bytes_per_s)
    link.start()
    try:
        yield link
    finally:
        link.close()
