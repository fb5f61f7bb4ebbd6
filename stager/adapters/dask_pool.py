"""One Dask scheduler with the hosts of one OS user: calls to hosts, and what is heard of them, as events.

May know: distributed, which is imported when a pool is opened, and the words of hosts. One rule: Dask is believed nothing but what a host
has answered. A future that ends otherwise is a hint, upon which the same is asked again under the same key.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from stager.adapters.dask_member import security_of
from stager.adapters.host_words import ANSWER_DEADLINE_S, RESOURCE, Asked, Call, HostFacts, answer_deadline_s, plain
from stager.model.errors import Refused, Transient
from stager.model.tenants import SCOPE
from stager.ports import Put
from stager.scheduler import events as ev
from stager.tasks import Tasks

log = logging.getLogger(__name__)
LOST_AFTER_S = 15.0
LOOK_EVERY_S = 1.0
AGAIN_AFTER_S = 0.5


@dataclass(slots=True)
class HostSeen:
    """`heard_at`: by our steady clock, when its worker's heartbeat was last seen to go on. `reported`: the Machine knows it as these
    facts. `why`: it was not taken the last time that it was asked.
    """

    address: str
    beat: float
    heard_at: float
    reported: HostFacts | None = None
    why: str = ""


@dataclass(slots=True)
class Heard:
    """`on_host` is called when a host is there, before the Machine hears of it."""

    put: Put
    on_host: Callable[[HostFacts], None] = lambda facts: None
    hosts: dict[str, HostSeen] = field(default_factory=dict)


class DaskPool:
    """On the event loop's thread. `tls`: the directory of our certificate; None: no TLS, which is for loopback alone. `scheduler`: the id
    of the one that we are; empty: we speak for one that asks through us.
    """

    def __init__(self, address: str, put: Put, tls: Path | None = None, scheduler: str = "") -> None:
        self.address, self.tls, self.scheduler = address, tls, scheduler
        self.heard = Heard(put)
        self.tasks = Tasks()
        # Most of Dask has no types.
        self.client: Any = None
        self.up, self.problem = asyncio.Event(), ""
        self.refused: set[str] = set()
        # The addresses of workers that the Dask scheduler named last. One that it does not know is called in vain, for a while.
        self.known: frozenset[str] = frozenset()

    @property
    def answers(self) -> bool:
        return self.client is not None

    def open(self) -> None:
        self.tasks.start(f"the link to the pool {self.address}", self._run())

    async def close(self) -> None:
        await self.tasks.close()
        await self._drop()

    async def call(self, key: str, make: Callable[[], Awaitable[Call]], host: str, cores: int) -> dict[str, Any]:
        """What the host answered, however long that takes and whatever dies meanwhile. `make` is asked for the call each time. Raises what
        that does.
        """
        while True:
            await self.connected()
            try:
                return await self.call_once(key, await make(), host, cores)
            except Transient as problem:
                log.info("%s; it is asked again", problem.message)
            await asyncio.sleep(AGAIN_AFTER_S)

    async def call_once(self, key: str, call: Call, host: str, cores: int) -> dict[str, Any]:
        """Raises Transient where Dask has no answer of the host, which says nothing about the attempt."""
        from stager.adapters.host_preload import carry_out

        client, asked = await self.connected(), plain(call)
        try:
            # A client that gave its scheduler up takes nothing any more, which is seen at the next look only.
            future = client.submit(carry_out, asked, key=key, pure=False, retries=0, resources={f"{RESOURCE}{host}": cores})
        except Exception as problem:
            raise Transient(f"the pool does not take {key}: {problem}", code="connection_lost", subject=host) from problem
        try:
            # Dask brings the answers of several futures by one task, which ends for all of them when it is cancelled for one. So nobody
            # who may be called off waits for a future itself.
            said: dict[str, Any] | str = await asyncio.shield(self.tasks.start(f"the answer to {key}", answer_of(future)))
        finally:
            future.release()
        if isinstance(said, str):
            raise Transient(f"the pool has no answer to {key}: {said}", code="connection_lost", subject=host)
        return said

    async def ask(self, host: str, what: Asked, *args: Any) -> Any:
        """Beside all that runs there. Raises Transient where the host does not answer."""
        from stager.adapters import host_preload

        function = getattr(host_preload, what.value)
        client, seen = self.client, self.heard.hosts.get(host)
        if client is None or seen is None or seen.address not in self.known:
            raise Transient(f"host {host} is not there", code="connection_lost", subject=host)
        try:
            async with asyncio.timeout(answer_deadline_s(what)):
                return (await client.run(function, *args, workers=[seen.address]))[seen.address]
        except Exception as problem:
            raise Transient(f"host {host} does not answer: {problem}", code="connection_lost", subject=host) from problem

    async def connected(self) -> Any:
        while self.client is None:
            await self.up.wait()
        return self.client

    async def _run(self) -> None:
        """Imported in a thread: it takes a second."""
        await asyncio.to_thread(import_distributed)
        while True:
            try:
                await self._connect()
                while True:
                    await self._look()
                    self._judge()
                    await asyncio.sleep(LOOK_EVERY_S)
            except (OSError, Transient) as problem:
                self.problem = str(problem)
                log.warning("the pool %s does not answer, and is tried again: %s", self.address, problem)
            except Exception as problem:
                # Else nobody would look at its hosts any more.
                self.problem = f"{type(problem).__name__}: {problem}"
                log.exception("the pool %s: a defect of stager; it is tried again", self.address)
            await self._drop()
            self._judge()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _connect(self) -> None:
        """Raises Transient where there is no answer, or one of another kind of Dask."""
        from distributed import Client

        make: Any = Client
        security = security_of(self.tls) if self.tls is not None else None
        client = make(self.address, asynchronous=True, security=security, timeout=ANSWER_DEADLINE_S, set_as_default=False)
        try:
            async with asyncio.timeout(2 * ANSWER_DEADLINE_S):
                self.client = await client
        except BaseException as problem:
            await closed(client)
            if isinstance(problem, Exception):
                raise Transient(f"{type(problem).__name__}: {problem}", code="connection_lost", subject=self.address) from problem
            raise
        log.info("the pool %s answers", self.address)
        self.up.set()

    async def _drop(self) -> None:
        """Whoever waits for an answer is told that it is cancelled, and asks again."""
        client, self.client = self.client, None
        self.up.clear()
        if client is not None:
            await closed(client)

    async def _look(self) -> None:
        """At the workers that the Dask scheduler knows. Raises Transient where it does not answer."""
        try:
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                known = (await self.client.scheduler.identity(n_workers=-1))["workers"]
        except Exception as problem:
            raise Transient(f"{type(problem).__name__}: {problem}") from problem
        self.known = frozenset(known)
        named = [
            (resource.removeprefix(RESOURCE), address)
            for address, worker in known.items()
            for resource in worker["resources"]
            if resource.startswith(RESOURCE) and SCOPE not in resource
        ]
        to_meet = [host for host, address in named if self._is_to_be_met(host, address, known)]
        met = await asyncio.gather(*(self._meet(host, self.heard.hosts[host]) for host in to_meet))
        self._report([facts for facts in met if facts is not None])

    def _is_to_be_met(self, host: str, address: str, known: Mapping[str, Any]) -> bool:
        """New, or not heard of for a while until now."""
        now, beat = time.monotonic(), float(known[address]["last_seen"])
        seen = self.heard.hosts.get(host)
        if seen is not None and seen.address != address:
            if seen.address in known:
                if address not in self.refused:
                    self.refused.add(address)
                    log.error("two workers say that they are host %s: %s is not asked for anything; name it otherwise", host, address)
                return False
            seen.address = address
            seen.beat = -1.0
        if seen is None:
            seen = self.heard.hosts[host] = HostSeen(address, -1.0, now)
        is_new = seen.beat < 0.0
        if beat != seen.beat:
            seen.beat, seen.heard_at = beat, now
        return is_new or (seen.reported is None and now - seen.heard_at < LOOK_EVERY_S * 2)

    async def _meet(self, host: str, seen: HostSeen) -> HostFacts | None:
        try:
            said = await self.ask(host, Asked.LOOK, self.scheduler)
            facts = None if "refused" in said else msgspec.convert(said, HostFacts)
            why = str(said["refused"]) if facts is None else facts.why_unfit
            if facts is not None and facts.host != host:
                why = f"it offers the cores of {host}, and calls itself {facts.host}"
            if facts is not None and not why:
                return facts
            self._lose(host, seen)
        except (Transient, ValueError) as problem:
            why = str(problem)
        if why != seen.why:
            seen.why = why
            log.warning("host %s is not taken: %s", host, why)
        seen.beat = -1.0
        return None

    def _report(self, met: Sequence[HostFacts]) -> None:
        """The largest first: the Machine fails a job that is too large for every host that it knows."""
        for facts in sorted(met, key=lambda facts: (facts.cores, facts.memory_bytes or 0, facts.scratch_bytes or 0), reverse=True):
            self.heard.on_host(facts)
            seen = self.heard.hosts[facts.host]
            seen.why = ""
            if facts != seen.reported:
                seen.reported = facts
                log.info("host %s is there, beside the I/O node %s, with %d cores", facts.host, facts.node, facts.cores)
                self.heard.put(reported(facts))

    def _judge(self) -> None:
        """Those that have been silent for too long."""
        now = time.monotonic()
        for host, seen in self.heard.hosts.items():
            if seen.reported is not None and now - seen.heard_at > LOST_AFTER_S:
                log.warning("host %s has not answered for %.0f s", host, LOST_AFTER_S)
                self._lose(host, seen)

    def _lose(self, host: str, seen: HostSeen) -> None:
        if seen.reported is not None:
            seen.reported = None
            self.heard.put(ev.HostLost(at=0.0, cause="host", host=host))


async def answer_of(future: Any) -> dict[str, Any] | str:
    """What the host said, or why it is not known."""
    from distributed.client import FutureCancelledError

    try:
        said: dict[str, Any] = await future
        return said
    except FutureCancelledError:
        return "it has lost it"
    except asyncio.CancelledError:
        if (this := asyncio.current_task()) is not None and this.cancelling():
            raise
        return "its client has called it off"
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


async def closed(client: Any) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(ANSWER_DEADLINE_S):
            await client.close(timeout=1)


def reported(facts: HostFacts, tenant: str = "") -> ev.HostReported:
    return ev.HostReported(
        at=0.0,
        cause="host",
        host=facts.host,
        node=facts.node,
        pool=facts.pool,
        cores=facts.cores,
        memory_bytes=facts.memory_bytes,
        scratch_bytes=facts.scratch_bytes,
        incarnation=facts.incarnation,
        tenant=tenant,
    )


def import_distributed() -> None:
    need_distributed()
    import distributed.client  # noqa: F401


def need_distributed() -> None:
    """Raises Refused that says what to install."""
    try:
        import distributed  # noqa: F401
    except ImportError as problem:
        text = "pools of hosts need Dask, which is not installed; run `pip install 'stager[cluster]'`"
        raise Refused(text, code="not_installed", subject="distributed") from problem
