"""What is asked of one I/O node many times: as much in a call as came while the call before was under way.

May know: nothing of what is asked. One rule: each is answered for itself, and who asked first is asked for first.
A call costs more than what it asks for, and a job may have thousands of finals.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

TOGETHER_MAX = 256
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """`call` asks for several at once, and returns the answer or the error of each, in their order. What it raises is raised for all."""

    def __init__(self, call: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer | Exception]]]) -> None:
        self.call = call
        self.waiting: deque[tuple[Asked, asyncio.Future[Answer]]] = deque()
        self.asking: asyncio.Task[None] | None = None

    async def ask(self, asked: Asked) -> Answer:
        """The answer to this one. Raises the error that was returned for it, or that the call raised."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting.append((asked, answer))
        if self.asking is None or self.asking.done():
            # It begins behind all that are about to ask now.
            self.asking = asyncio.create_task(self._ask_all())
        return await answer

    async def _ask_all(self) -> None:
        while self.waiting:
            taken = [self.waiting.popleft() for _ in range(min(TOGETHER_MAX, len(self.waiting)))]
            # Who does not wait any more was called off: nothing is asked for it.
            together = [(asked, answer) for asked, answer in taken if not answer.done()]
            said: Sequence[Answer | Exception]
            try:
                said = await self.call([asked for asked, _ in together]) if together else []
            except Exception as problem:
                said = [problem] * len(together)
            for (_, answer), each in zip(together, said, strict=True):
                if answer.done():
                    continue
                if isinstance(each, Exception):
                    answer.set_exception(each)
                else:
                    answer.set_result(each)

    def close(self) -> None:
        if self.asking is not None:
            self.asking.cancel()
