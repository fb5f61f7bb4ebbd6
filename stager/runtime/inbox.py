"""Where everything that happens waits for the Machine: events from any thread, questions about its state, and the next time it asked for.

May know: threads and a clock. One rule: one thread takes, any thread puts; time never goes back.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from msgspec.structs import replace

from stager.scheduler import events as ev

BATCH_EVENTS_MAX = 1000
# A wait in Python does not count the time that the machine sleeps; then it looks at its clock again.
WAIT_S_MAX = 10.0
T = TypeVar("T")
Callback = Callable[[], None]


class Inbox:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.changed = threading.Condition()
        self.items: deque[tuple[ev.Event, Callback | None]] = deque()
        self.questions: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self.wakes: list[float] = []
        self.last_at = 0.0
        self.closed = False

    def put(self, event: ev.Event, on_durable: Callback | None = None) -> None:
        """`on_durable` is called once the journal holds the event."""
        with self.changed:
            self.items.append((event, on_durable))
            self.changed.notify()

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """The taking thread answers between two batches, so that no batch is half applied."""
        answer: Future[T] = Future()
        with self.changed:
            if self.closed:
                answer.cancel()
            else:
                self.questions.append((question, answer))
                self.changed.notify()
        return answer

    def wake_at(self, at: float) -> None:
        with self.changed:
            heapq.heappush(self.wakes, at)

    def close(self) -> None:
        """`take` answers None from now on; what still waits here was not journaled and is told again after the next start."""
        with self.changed:
            self.closed = True
            self.changed.notify()
            while self.questions:
                self.questions.popleft()[1].cancel()

    def take(self) -> tuple[list[ev.Event], list[Callback]] | None:
        """The next events, stamped, with what to call when they are durable. Blocks; None when closed."""
        while True:
            with self.changed:
                while not (self.closed or self.items or self.questions or self._due()):
                    self.changed.wait(self._wait_s())
                if self.closed:
                    return None
                questions = list(self.questions)
                self.questions.clear()
                batch = self._batch()
            for question, answer in questions:
                settle(question, answer)
            if batch[0]:
                return batch

    def _due(self) -> bool:
        return bool(self.wakes) and self.wakes[0] <= self.clock()

    def _wait_s(self) -> float | None:
        return min(WAIT_S_MAX, max(0.0, self.wakes[0] - self.clock())) if self.wakes else None

    def _batch(self) -> tuple[list[ev.Event], list[Callback]]:
        """A node's report opens a batch of its own: commands given before it was taken must not be mixed with those that answer it."""
        events: list[ev.Event] = []
        callbacks: list[Callback] = []
        at = self.last_at = max(self.last_at, self.clock())
        if self._due():
            while self.wakes and self.wakes[0] <= at:
                heapq.heappop(self.wakes)
            events.append(ev.Woken(at=at))
        while self.items and len(events) < BATCH_EVENTS_MAX:
            if events and isinstance(self.items[0][0], ev.NodeReported):
                break
            event, on_durable = self.items.popleft()
            events.append(replace(event, at=at))
            if on_durable is not None:
                callbacks.append(on_durable)
        return events, callbacks


def settle(question: Callable[[], Any], answer: Future[Any]) -> None:
    """The asker gets the question's error; it is not the Machine's."""
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(question())
    except Exception as problem:
        answer.set_exception(problem)
