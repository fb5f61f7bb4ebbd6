"""Questions that take several asks, written once for clients that wait and for those that await: each yields what to ask next, and is
sent the answer.

May know: wire. One rule: nothing is asked here.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from typing import Protocol, TypeVar

from stager import wire

POLL_S = 20.0
Q = TypeVar("Q")
A = TypeVar("A")
E = TypeVar("E")
F = TypeVar("F")


class Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=Page)


def until_finished(deadline_s: float | None) -> Generator[float, wire.WaitResponse, wire.WaitResponse]:
    """Yields how long the next wait may take; the last answer, which has finished unless the deadline came first."""
    end = None if deadline_s is None else time.monotonic() + deadline_s
    while True:
        answer = yield POLL_S if end is None else max(0.0, min(POLL_S, end - time.monotonic()))
        if answer.finished or (end is not None and time.monotonic() >= end):
            return answer


def all_pages(
    call_of: Callable[[str | None, int], Q], entries_of: Callable[[P], list[E]], page: int, limit: int | None = None
) -> Generator[Q, P, list[E]]:
    """`call_of(cursor, entries)` asks for one page; pages have `next_cursor`."""
    found: list[E] = []
    cursor: str | None = None
    while True:
        answer = yield call_of(cursor, page if limit is None else min(page, limit - len(found)))
        found += entries_of(answer)
        cursor = answer.next_cursor
        if cursor is None or (limit is not None and len(found) >= limit):
            return found


def play(steps: Generator[Q, A, F], ask: Callable[[Q], A]) -> F:
    try:
        question = next(steps)
        while True:
            question = steps.send(ask(question))
    except StopIteration as end:
        found: F = end.value
        return found


async def play_async(steps: Generator[Q, A, F], ask: Callable[[Q], Awaitable[A]]) -> F:
    try:
        question = next(steps)
        while True:
            question = steps.send(await ask(question))
    except StopIteration as end:
        found: F = end.value
        return found
