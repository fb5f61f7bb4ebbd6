"""How the event loop learns of the Machine: it asks the driving thread, and it waits until something has happened.

May know: the inbox. One rule: an answer is of one moment between two batches.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from stager.model.errors import Transient
from stager.runtime.inbox import Inbox

T = TypeVar("T")


class Inquiry:
    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox

    async def ask(self, question: Callable[[], T]) -> T:
        """Answered on the driving thread. Raises what the question raises."""
        try:
            return await asyncio.wrap_future(self.inbox.ask(question))
        except asyncio.CancelledError:
            if not self.inbox.closed:
                raise
            raise Transient("the scheduler is ending; ask again in a moment", code="draining") from None


class Pulse:
    """On the event loop's thread."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    def beat(self) -> None:
        """Wakes who waits for something to happen."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def happening(self, since: asyncio.Event, timeout_s: float | None = None) -> None:
        """Until something has happened since `changed` was taken, before the question that found nothing; or the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await since.wait()
