"""How much the service does at once for those who call it. One rule: a tenant takes only its share, and who must wait too long is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from stager.model.errors import Transient
from stager.service.threads import Threads

READING_MAX, READING_EACH_MAX = 6, 2
PATIENCE_S = 30.0
T = TypeVar("T")


class Limiter:
    """Reading and planning of workflows takes a processor and minutes, and so does looking up hosts: a few at a time, on threads of their
    own. On those that all share, a few tenants would hold up logs, graphs and the jobs' outputs of everybody.
    """

    def __init__(self) -> None:
        self.threads = Threads("reading", READING_MAX)
        self.all = asyncio.Semaphore(READING_MAX)
        self.each: dict[str, asyncio.Semaphore] = {}

    async def run(self, tenant: str, question: Callable[..., T], *words: object) -> T:
        """Raises Transient where its turn does not come soon, and what the question raises."""
        async with self.permit(tenant):
            return await asyncio.get_running_loop().run_in_executor(self.threads, question, *words)

    @asynccontextmanager
    async def permit(self, tenant: str) -> AsyncIterator[None]:
        own = self.each.setdefault(tenant, asyncio.Semaphore(READING_EACH_MAX))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await own.acquire()
                try:
                    await self.all.acquire()
                except BaseException:
                    own.release()
                    raise
        except TimeoutError:
            raise Transient("the service reads other workflows just now; ask again in a moment", code="busy") from None
        try:
            yield
        finally:
            self.all.release()
            own.release()


class Waits:
    """Answers that stay open: long polls and streams of events, so many for each tenant."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open: Counter[str] = Counter()

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        if self.open[tenant] >= self.most:
            text = f"{self.most} answers of this tenant are open already"
            raise TooManyOpen(f"{text}; close one, or ask without waiting", code="too_many_open", subject=tenant)
        self.open[tenant] += 1
        try:
            yield
        finally:
            self.open[tenant] -= 1


class Turns:
    """One answer of a kind at a time for each tenant, on the threads that all share: who asks for many waits for its own only."""

    def __init__(self) -> None:
        self.each: dict[str, asyncio.Lock] = {}

    def of(self, tenant: str) -> asyncio.Lock:
        return self.each.setdefault(tenant, asyncio.Lock())


class TooManyOpen(Transient):
    """Answered with 429."""
