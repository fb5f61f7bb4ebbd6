"""Changes that a client asks for: answered once the journal holds what follows from them.

May know: the scheduler. One rule: an answer that something was taken comes after the journal holds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from stager.model.errors import Refused
from stager.service.app import Scheduler

log = logging.getLogger(__name__)
T = TypeVar("T")


async def taken(scheduler: Scheduler, ask: Callable[[Callable[[], None]], T]) -> T:
    """Asks the run service, and answers once the journal holds what follows."""
    durable: asyncio.Future[None] = scheduler.loop.create_future()

    def told() -> None:
        scheduler.loop.call_soon_threadsafe(lambda: None if durable.done() else durable.set_result(None))

    answer = await scheduler.ask(lambda: ask(told))
    waiting = asyncio.create_task(scheduler.ended.wait())
    either: list[asyncio.Future[Any]] = [durable, waiting]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not durable.done():
        raise Refused("the scheduler ended before it took this; start it again and ask again", code="draining")
    return answer


async def done(scheduler: Scheduler, ask: Callable[[Callable[[], None]], object]) -> None:
    def asked(told: Callable[[], None]) -> str:
        ask(told)
        return ""

    await taken(scheduler, asked)


async def give_way(scheduler: Scheduler) -> None:
    """To a service. All that is active are runs of its tenants, which are left as by a crash, and go on there. Raises Refused."""
    if scheduler.is_service:
        raise Refused("it is a service itself", code="is_service", subject=str(scheduler.state_dir.root))
    state, tenancy = scheduler.machine.state, scheduler.tenancy
    mine = await scheduler.ask(lambda: sorted(run for run in state.active if not tenancy.of_run(run)))
    if mine:
        raise Refused(f"it has runs of its owner's ({', '.join(mine)}); wait for them", code="run_active", subject=mine[0])
    log.info("it gives way to a service")
    scheduler.ending = True
    scheduler.ended.set()


def begin_to_end(scheduler: Scheduler, *, now: bool) -> None:
    """Ends it in order, beside all else; what that fails by ends it all the same."""
    scheduler.tasks.start("the end in order", scheduler.shut_down(now=now), scheduler.world.fatal)
