"""The gateway of a tenant's pool: what Dask loads in its scheduler, `dask scheduler --preload stager.adapters.pool_gateway LISTEN TLS_DIR`.

May know: the pool as its own client, the words of gateways. One rule: it is the tenant's process, and listens to the service alone, which
it knows by its certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from stager.adapters.cluster_tls import HANDSHAKE_TIMEOUT_S, SCHEDULER, NotTrusted, require_one_of, role_in, side
from stager.adapters.dask_member import renewed
from stager.adapters.dask_pool import DaskPool
from stager.adapters.gateway_words import (
    ASKABLE,
    BEAT_S,
    TO_GATEWAY,
    Answer,
    AskHost,
    CallHost,
    FromGateway,
    HostsThere,
    HostThere,
    NotWanted,
    ToGateway,
    Unanswered,
    frame_of,
    read_frame,
    understood,
)
from stager.adapters.host_words import HostFacts
from stager.model.errors import Transient
from stager.tasks import Tasks

log = logging.getLogger(__name__)
WHY_MAX = 500
GATEWAY: list[Gateway] = []


@click.command()
@click.argument("listen")
@click.argument("tls_dir", type=click.Path(path_type=Path))
async def dask_setup(scheduler: Any, listen: str, tls_dir: Path) -> None:
    """`listen`: HOST:PORT."""
    gateway = Gateway(DaskPool(scheduler.address, lambda event, on_durable=None: None, tls_dir), tls_dir)
    GATEWAY[:] = [gateway]
    host, _, port = listen.rpartition(":")
    await gateway.open(host.removeprefix("[").removesuffix("]"), int(port))


async def dask_teardown(scheduler: Any) -> None:
    for gateway in GATEWAY:
        await gateway.close()


class Gateway:
    """On Dask's event loop."""

    def __init__(self, pool: DaskPool, tls_dir: Path) -> None:
        self.pool, self.tls_dir = pool, tls_dir
        self.met: dict[str, int] = {}
        self.server: asyncio.Server | None = None
        self.tasks = Tasks()
        pool.heard.on_host = self._meet

    async def open(self, host: str, port: int) -> None:
        cluster, role = await asyncio.to_thread(role_in, self.tls_dir)
        context = renewed(side(self.tls_dir, ssl.PROTOCOL_TLS_SERVER), self.tls_dir)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                require_one_of(writer.get_extra_info("peercert"), cluster, (SCHEDULER,))
            except NotTrusted as problem:
                log.warning("somebody is not let in: %s", problem)
                writer.transport.abort()
                return
            await Served(self, writer).run(reader)

        self.server = await asyncio.start_server(answer, host, port, ssl=context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S)
        self.pool.open()
        log.info("the gateway of %s listens on %s:%d", role, host, port)

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
        await self.tasks.close()
        await self.pool.close()

    def hosts(self) -> list[HostThere]:
        """All that answer."""
        there = [seen.reported for seen in self.pool.heard.hosts.values() if seen.reported is not None]
        return [HostThere(facts=facts, met=self.met.get(facts.host, 0)) for facts in there]

    def _meet(self, facts: HostFacts) -> None:
        self.met[facts.host] = self.met.get(facts.host, 0) + 1


@dataclass(slots=True)
class Served:
    """One connection of the service."""

    gateway: Gateway
    writer: asyncio.StreamWriter
    tasks: Tasks = field(default_factory=Tasks)
    under_way: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self, reader: asyncio.StreamReader) -> None:
        log.info("the service is here")
        self.tasks.start("the word of what hosts there are", self._keep_telling())
        try:
            while True:
                self._take(understood(TO_GATEWAY, await read_frame(reader)))
        except OSError as problem:
            log.info("the service is gone: %s", problem)
        finally:
            await self.tasks.close()
            with contextlib.suppress(OSError):
                self.writer.close()

    def _take(self, message: ToGateway) -> None:
        if isinstance(message, NotWanted):
            if (task := self.under_way.pop(message.id, None)) is not None:
                task.cancel()
            return
        steps = self._call(message) if isinstance(message, CallHost) else self._ask(message)
        task = self.under_way[message.id] = self.tasks.start(f"question {message.id}", steps)
        task.add_done_callback(lambda _: self.under_way.pop(message.id, None))

    async def _call(self, asked: CallHost) -> None:
        await self._answer(asked.id, lambda: self.gateway.pool.call_once(asked.key, asked.call, asked.host, asked.cores))

    async def _ask(self, asked: AskHost) -> None:
        if asked.what not in ASKABLE:
            self._say(Unanswered(id=asked.id, why=f"a gateway is not asked for {asked.what.value}"))
            return
        await self._answer(asked.id, lambda: self.gateway.pool.ask(asked.host, asked.what, *asked.args))

    async def _answer(self, number: int, ask: Callable[[], Any]) -> None:
        try:
            said: FromGateway = Answer(id=number, answer=await ask())
        except Transient as problem:
            said = Unanswered(id=number, why=problem.message[:WHY_MAX])
        except Exception as problem:
            # Whoever asked would wait for ever.
            log.exception("question %d has no answer, by a defect of stager", number)
            said = Unanswered(id=number, why=type(problem).__name__)
        self._say(said)

    def _say(self, message: FromGateway) -> None:
        """Where the service has gone, its end is found by reading."""
        try:
            self.writer.write(frame_of(message))
        except ValueError as problem:
            log.error("an answer is not given: %s", problem)
            if isinstance(message, Answer):
                self.writer.write(frame_of(Unanswered(id=message.id, why=str(problem)[:WHY_MAX])))

    async def _keep_telling(self) -> None:
        told: list[HostThere] | None = None
        while True:
            hosts = self.gateway.hosts()
            problem = "" if self.gateway.pool.answers else "its Dask scheduler does not answer"
            self._say(HostsThere(hosts=None if hosts == told else hosts, problem=problem))
            told = hosts
            await asyncio.sleep(BEAT_S)
