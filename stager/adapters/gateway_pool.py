"""The pool of a tenant, asked through its gateway: the service is no Dask client of it, since one unpickles what Dask sends.

May know: the words of gateways, TLS by roles. One rule: the tenant may say whatever it likes. It speaks for hosts of its own pool alone,
and neither its words nor their number harm anybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stager.adapters.cluster_tls import ClusterTls
from stager.adapters.dask_pool import AGAIN_AFTER_S, Heard, reported
from stager.adapters.gateway_words import (
    FROM_GATEWAY,
    SILENT_AFTER_S,
    Answer,
    AskHost,
    CallHost,
    HostsThere,
    HostThere,
    NotWanted,
    ToGateway,
    Unanswered,
    collected_in,
    frame_of,
    piece_in,
    read_frame,
    understood,
)
from stager.adapters.host_words import ANSWER_DEADLINE_S, Asked, Call, HostFacts, answer_deadline_s
from stager.model.errors import Transient
from stager.model.tenants import host_in_pool, name_in_pool
from stager.ports import Put
from stager.scheduler import events as ev
from stager.tasks import Tasks
from stager.wire.cluster import NAME

log = logging.getLogger(__name__)
LOOK_EVERY_S = 1.0
# Names that a pool may bring up for its hosts, and changes of them in a second, since each goes into the journal.
HOSTS_MAX = 1000
CHANGES_PER_S, CHANGES_AT_ONCE = 1.0, 200.0
# A reader that is told more waits for it.
READ_FRAMES_PER_S, READ_BYTES_PER_S = 5000.0, 64e6
CORES_MAX, WORDS_MAX = 65_536, 200


class Budget:
    """So many at once, and so many in each second behind it."""

    def __init__(self, per_s: float, at_once: float) -> None:
        self.per_s, self.at_once = per_s, at_once
        self.left, self.counted_at = at_once, time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self.left = min(self.at_once, self.left + (now - self.counted_at) * self.per_s)
        self.counted_at = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True

    async def taken(self) -> None:
        while not self.take():
            await asyncio.sleep(0.1)


@dataclass(slots=True)
class Link:
    """One connection."""

    writer: asyncio.StreamWriter
    waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    asked: int = 0

    async def ask(self, make: Callable[[int], ToGateway]) -> Any:
        """Raises Transient where there is no answer."""
        self.asked += 1
        number, future = self.asked, asyncio.get_running_loop().create_future()
        self.waiting[number] = future
        try:
            self.say(make(number))
            return await future
        except (OSError, ValueError) as problem:
            raise Transient(str(problem), code="connection_lost") from problem
        finally:
            if self.waiting.pop(number, None) is not None:
                with contextlib.suppress(OSError, ValueError):
                    self.say(NotWanted(id=number))

    def say(self, message: ToGateway) -> None:
        """Raises ConnectionError where the gateway does not read what it is told."""
        if self.writer.is_closing():
            raise ConnectionError("the connection is closed")
        transport: Any = self.writer.transport
        if transport.get_write_buffer_size() > 4 * 2**20:
            transport.abort()
            raise ConnectionError("the gateway reads nothing")
        self.writer.write(frame_of(message))

    def hears(self, message: Answer | Unanswered) -> None:
        """An answer to what nobody asked is passed over."""
        future = self.waiting.pop(message.id, None)
        if future is None or future.done():
            return
        if isinstance(message, Answer):
            future.set_result(message.answer)
        else:
            future.set_exception(Transient(message.why, code="connection_lost"))

    def end(self) -> None:
        self.writer.transport.abort()
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(Transient("the connection to the gateway is lost", code="connection_lost"))
        self.waiting.clear()


class GatewayPool:
    """On the event loop's thread. `address`: HOST:PORT; empty: nowhere for now. `problem`: why it does not answer. `is_node`: an I/O node
    by this name is here.
    """

    def __init__(self, tenant: str, put: Put, tls: ClusterTls, is_node: Callable[[str], bool]) -> None:
        self.tenant, self.tls, self.is_node = tenant, tls, is_node
        self.address, self.problem = "", "not asked yet"
        self.heard, self.tasks = Heard(put), Tasks()
        self.link: Link | None = None
        self.up, self.moved = asyncio.Event(), asyncio.Event()
        self.said: dict[str, HostThere] = {}
        self.reported: dict[str, HostThere] = {}
        self.names: set[str] = set()
        self.refused: set[str] = set()
        self.heard_at = time.monotonic()
        self.changes = Budget(CHANGES_PER_S, CHANGES_AT_ONCE)

    @property
    def answers(self) -> bool:
        return self.link is not None and self.problem == ""

    def open(self) -> None:
        self.tasks.start(f"the link to the pool of {self.tenant}", self._run())
        self.tasks.start(f"the look at the pool of {self.tenant}", self._keep_looking())

    async def close(self) -> None:
        await self.tasks.close()
        self._end_link("")

    def move(self, address: str) -> None:
        """Where its gateway listens from now on."""
        if address != self.address:
            self.address = address
            self._end_link("not asked yet" if address else "it is not in tenants.toml any more")
            self.moved.set()

    async def call(self, key: str, make: Callable[[], Awaitable[Call]], host: str, cores: int) -> dict[str, Any]:
        """As that of `DaskPool`. What comes may be anything."""
        while True:
            await self.up.wait()
            call, name = await make(), name_in_pool(host)
            try:
                if self.link is not None:
                    answer: dict[str, Any] = await self.link.ask(
                        lambda number: CallHost(id=number, key=key, host=name, cores=cores, call=call)  # noqa: B023
                    )
                    return answer
            except Transient as problem:
                log.info("the pool of %s has no answer about %s, and is asked again: %s", self.tenant, key, shown(problem.message))
            await asyncio.sleep(AGAIN_AFTER_S)

    async def ask(self, host: str, what: Asked, *args: Any) -> Any:
        """Beside all that runs there. Raises Transient where the host does not answer, or answers something else."""
        if self.link is None:
            raise Transient(f"host {host} is not there: {self.problem}", code="connection_lost", subject=host)
        name = name_in_pool(host)
        try:
            async with asyncio.timeout(answer_deadline_s(what)):
                answer = await self.link.ask(lambda number: AskHost(id=number, host=name, what=what, args=list(args)))
            if what is Asked.COLLECT:
                said = collected_in(answer)
                return msgspec.structs.replace(said, problem=shown(said.problem))
            return piece_in(answer) if what is Asked.READ_LOG else None
        except (TimeoutError, ValueError, Transient) as problem:
            text = f"host {host} does not answer: {shown(str(problem))}"
            raise Transient(text, code="connection_lost", subject=host) from problem

    async def _run(self) -> None:
        while True:
            while not self.address:
                self.moved.clear()
                await self.moved.wait()
            try:
                async with asyncio.timeout(2 * ANSWER_DEADLINE_S):
                    reader, writer = await self.tls.connected_to(host_and_port(self.address), f"pool/{self.tenant}")
                self.link = Link(writer)
                await self._listen(self.link, reader)
            except (OSError, TimeoutError) as problem:
                self._end_link(shown(str(problem)) or type(problem).__name__)
            except Exception as problem:
                # Else nobody would look for its hosts any more.
                log.exception("the pool of %s: a defect of stager; it is tried again", self.tenant)
                self._end_link(type(problem).__name__)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _listen(self, link: Link, reader: asyncio.StreamReader) -> None:
        """Until the connection breaks, which raises."""
        self.said = {}
        while True:
            try:
                async with asyncio.timeout(SILENT_AFTER_S):
                    data = await read_frame(reader)
            except TimeoutError as problem:
                raise ConnectionError(f"its gateway has said nothing for {SILENT_AFTER_S:.0f} s") from problem
            if link is not self.link:
                raise ConnectionError("it is somewhere else now")
            message = understood(FROM_GATEWAY, data)
            if isinstance(message, HostsThere):
                self._hosts(message)
            else:
                link.hears(message)
            await asyncio.sleep(1 / READ_FRAMES_PER_S + len(data) / READ_BYTES_PER_S)

    def _hosts(self, message: HostsThere) -> None:
        self.heard_at = time.monotonic()
        self._is(shown(message.problem))
        self.up.set()
        if message.hosts is not None:
            self.said = {each.facts.host: each for each in message.hosts}
            self._look()

    def _is(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.warning("the pool of %s at %s does not answer, and is tried again: %s", self.tenant, self.address, problem)
            else:
                log.info("the pool of %s at %s answers", self.tenant, self.address)

    def _end_link(self, problem: str) -> None:
        link, self.link = self.link, None
        self.up.clear()
        self._is(problem)
        if link is not None:
            link.end()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._look()

    def _look(self) -> None:
        """At what was said last: what of it is new, the largest hosts first, and who is not there any more."""
        if self.link is None and time.monotonic() - self.heard_at > SILENT_AFTER_S:
            self.said = {}
        elif self.link is None:
            return
        there = sorted(self.said.values(), key=lambda each: size_of(each.facts), reverse=True)
        for each in there:
            if each != self.reported.get(each.facts.host) and self._is_taken(each.facts) and self.changes.take():
                self._report(each)
        for host in [host for host in self.reported if host not in self.said]:
            if self.changes.take():
                del self.reported[host]
                log.warning("host %s of the pool of %s has not answered for a while", host, self.tenant)
                self.heard.put(ev.HostLost(at=0.0, cause="host", host=host_in_pool(self.tenant, host)))

    def _report(self, each: HostThere) -> None:
        known = self.reported.get(each.facts.host)
        self.reported[each.facts.host] = each
        facts = msgspec.structs.replace(each.facts, host=host_in_pool(self.tenant, each.facts.host), pool=self.address)
        self.heard.on_host(facts)
        if known is None or known.facts != each.facts:
            log.info("host %s is there, beside the I/O node %s, with %d cores", facts.host, facts.node, facts.cores)
            self.heard.put(reported(facts, self.tenant))

    def _is_taken(self, facts: HostFacts) -> bool:
        why = self._why_not(facts)
        if why and facts.host not in self.refused and len(self.refused) < HOSTS_MAX:
            self.refused.add(facts.host)
            log.error("host %s of the pool of %s is not taken: %s", shown(facts.host), self.tenant, why)
        if not why:
            self.names.add(facts.host)
            self.refused.discard(facts.host)
        return not why

    def _why_not(self, facts: HostFacts) -> str:
        """Empty: it is one of its pool."""
        sizes = [size for size in (facts.memory_bytes, facts.scratch_bytes) if size is not None]
        if NAME.fullmatch(facts.host) is None:
            return "that is no name of a host"
        if facts.shares_files:
            return "it says that it shares the files of the service, which a tenant's host never does; give its worker --node ID alone"
        if facts.why_unfit:
            return shown(facts.why_unfit)
        if not self.is_node(facts.node):
            return f"there is no I/O node {shown(facts.node)!r} here"
        if not 1 <= facts.cores <= CORES_MAX or any(not 0 <= size <= 2**53 for size in sizes):
            return "that is no size of a host"
        if max(len(facts.incarnation), len(facts.scratch)) > WORDS_MAX:
            return "its names are too long"
        if facts.host not in self.names and len(self.names) >= HOSTS_MAX:
            return f"a pool has {HOSTS_MAX} hosts at most"
        return ""


def size_of(facts: HostFacts) -> tuple[int, int, int]:
    return facts.cores, facts.memory_bytes or 0, facts.scratch_bytes or 0


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def shown(text: str) -> str:
    """What a tenant's pool said, as it may stand in a log or an answer."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:WORDS_MAX])
