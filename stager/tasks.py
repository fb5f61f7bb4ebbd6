"""The tasks that run beside everything else on the event loop: each is kept until it ends, and its failure is told.

May know: asyncio. One rule: no task is lost and no exception of one is; all are ended in order, the newest first.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from stager.model.errors import StagerError

log = logging.getLogger(__name__)
Failed = Callable[[BaseException], None]
Made = TypeVar("Made")
AFTER_DEFECT_S = 10.0
# Most end at once. One that does not is named in the log, and asked again: a wish that comes just as a wait is over can be lost.
ENDS_WITHIN_S = 10.0


class Tasks:
    def __init__(self) -> None:
        self.under_way: list[asyncio.Task[Any]] = []

    def start(self, name: str, steps: Coroutine[Any, Any, Any], failed: Failed | None = None) -> asyncio.Task[Any]:
        """`failed` is called with the exception that ends it, for what nothing goes on without."""
        task = asyncio.create_task(steps, name=name)
        self.under_way.append(task)
        task.add_done_callback(lambda done: self._ended(done, failed))
        return task

    def _ended(self, task: asyncio.Task[Any], failed: Failed | None) -> None:
        self.under_way.remove(task)
        problem = None if task.cancelled() else task.exception()
        if problem is None:
            return
        if isinstance(problem, StagerError):
            log.warning("%s ended: %s", task.get_name(), problem.message)
        else:
            log.error("%s ended by a defect of stager", task.get_name(), exc_info=problem)
        if failed is not None:
            failed(problem)

    async def close(self) -> None:
        """Asks what is under way to end, and waits until it has; not for the one that asks."""
        while mine := [task for task in reversed(self.under_way) if task is not asyncio.current_task()]:
            for task in mine:
                task.cancel()
                while not (await asyncio.wait([task], timeout=ENDS_WITHIN_S))[0]:
                    log.warning("%s takes long to end, and is asked again; it is at\n%s", task.get_name(), place_of(task))
                    task.cancel()
            # Their ends are told by callbacks.
            await asyncio.sleep(0)


async def tried_until_done(name: str, steps: Callable[[], Awaitable[Made]]) -> Made:
    """Of what nobody else would ever do again."""
    while True:
        try:
            return await steps()
        except Exception:
            log.exception("%s failed, and is tried again in %.0f s", name, AFTER_DEFECT_S)
            await asyncio.sleep(AFTER_DEFECT_S)


def place_of(task: asyncio.Task[Any]) -> str:
    """Where it waits, line by line."""
    text = io.StringIO()
    task.print_stack(file=text)
    return text.getvalue().rstrip()
