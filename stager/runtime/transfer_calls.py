"""Transfers asked of one I/O node: as many in a call as came while the call before was under way.

May know: the NodeClient port. One rule: each is answered for itself, and who asked first is asked for first.
A call costs more than what it asks for, and a job may have thousands of finals.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from stager.model.errors import StagerError
from stager.ports import Body, NodeClient
from stager.wire.node import TransferAnswer

TOGETHER_MAX = 256


class Asked(NamedTuple):
    transfer: str
    body: Body
    command_id: str
    answer: asyncio.Future[TransferAnswer]


class TransferCalls:
    def __init__(self, client: NodeClient) -> None:
        self.client = client
        self.waiting: deque[Asked] = deque()
        self.asking: asyncio.Task[None] | None = None

    async def ask(self, transfer: str, body: Body, command_id: str) -> TransferAnswer:
        """The node's answer to this one, as of put_transfer. Raises StagerError as that does."""
        asked = Asked(transfer, body, command_id, asyncio.get_running_loop().create_future())
        self.waiting.append(asked)
        if self.asking is None or self.asking.done():
            # It begins behind all that are about to ask now.
            self.asking = asyncio.create_task(self._ask_all())
        return await asked.answer

    async def _ask_all(self) -> None:
        while self.waiting:
            taken = [self.waiting.popleft() for _ in range(min(TOGETHER_MAX, len(self.waiting)))]
            # Who does not wait any more was called off: nothing is asked for it.
            together = [asked for asked in taken if not asked.answer.done()]
            answers: Sequence[TransferAnswer | Exception]
            try:
                answers = await self._answers(together)
            except Exception as problem:
                answers = [problem] * len(together)
            for asked, answer in zip(together, answers, strict=True):
                if asked.answer.done():
                    continue
                if isinstance(answer, Exception):
                    asked.answer.set_exception(answer)
                else:
                    asked.answer.set_result(answer)

    async def _answers(self, together: list[Asked]) -> Sequence[TransferAnswer | StagerError]:
        if len(together) > 1:
            return await self.client.put_transfers([(asked.transfer, asked.body, asked.command_id) for asked in together])
        return [await self.client.put_transfer(asked.transfer, asked.body, command_id=asked.command_id) for asked in together]

    def close(self) -> None:
        if self.asking is not None:
            self.asking.cancel()
