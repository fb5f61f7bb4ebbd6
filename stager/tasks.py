"""The tasks that run beside everything else on the event loop: each is kept until it ends, and its failure is told.

May know: asyncio. One rule: no task is lost and no exception of one is; all are ended in order, the newest first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from stager.model.errors import StagerError

log = logging.getLogger(__name__)
Failed = Callable[[BaseException], None]


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
                await asyncio.wait([task])
            # Their ends are told by callbacks.
            await asyncio.sleep(0)
