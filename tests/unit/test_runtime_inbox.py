"""The inbox: stamped batches in order, time that never goes back, questions answered between batches, wake-ups."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest

from stager.runtime.inbox import Inbox
from stager.scheduler import events as ev


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def lost(node: str) -> ev.NodeLost:
    return ev.NodeLost(at=0.0, node=node)


def report() -> ev.NodeReported:
    return ev.NodeReported(at=0.0, node="n", incarnation="i", capacity_bytes=1, can_link=True, replicas=(), transfers=())


def taken(inbox: Inbox) -> list[Any]:
    batch = inbox.take()
    assert batch is not None
    return batch[0]


def test_events_come_in_order_and_stamped() -> None:
    inbox = Inbox(Clock(5.0))
    inbox.put(lost("a"))
    inbox.put(lost("b"))
    assert taken(inbox) == [ev.NodeLost(at=5.0, node="a"), ev.NodeLost(at=5.0, node="b")]


def test_time_never_goes_back() -> None:
    clock = Clock(5.0)
    inbox = Inbox(clock)
    inbox.put(lost("a"))
    taken(inbox)
    clock.now = 3.0
    inbox.put(lost("b"))
    assert taken(inbox)[0].at == 5.0


def test_a_nodes_report_opens_a_batch() -> None:
    inbox = Inbox(Clock(1.0))
    for event in (lost("a"), report(), lost("b"), report()):
        inbox.put(event)
    kinds = [[type(event) for event in taken(inbox)] for _ in range(3)]
    assert kinds == [[ev.NodeLost], [ev.NodeReported, ev.NodeLost], [ev.NodeReported]]


def test_who_waits_for_durability_is_handed_over_with_the_batch() -> None:
    inbox, told = Inbox(Clock(1.0)), []
    inbox.put(lost("a"), lambda: told.append("a"))
    inbox.put(report(), lambda: told.append("r"))
    batch = inbox.take()
    assert batch is not None and len(batch[1]) == 1 and told == []
    batch[1][0]()
    assert told == ["a"]


def test_it_wakes_when_asked_and_not_before() -> None:
    clock = Clock(10.0)
    inbox = Inbox(clock)
    inbox.wake_at(20.0)
    inbox.wake_at(21.0)
    inbox.put(lost("a"))
    assert [type(event) for event in taken(inbox)] == [ev.NodeLost]
    clock.now = 30.0
    assert taken(inbox) == [ev.Woken(at=30.0)]
    inbox.put(lost("b"))
    assert [type(event) for event in taken(inbox)] == [ev.NodeLost]


def test_questions_are_answered_by_the_taking_thread_without_a_batch() -> None:
    inbox, taker = Inbox(Clock(1.0)), []
    thread = threading.Thread(target=lambda: taker.append(inbox.take()))
    thread.start()
    assert inbox.ask(lambda: threading.current_thread() is thread).result(10)
    inbox.close()
    thread.join(10)
    assert taker == [None]


def test_a_failed_question_is_its_askers_problem() -> None:
    inbox = Inbox(Clock(1.0))
    answer = inbox.ask(lambda: 1 // 0)
    inbox.put(lost("a"))
    taken(inbox)
    with pytest.raises(ZeroDivisionError):
        answer.result(0)


def test_a_closed_inbox_answers_nobody() -> None:
    inbox = Inbox(Clock(1.0))
    early = inbox.ask(lambda: 1)
    inbox.close()
    for answer in (early, inbox.ask(lambda: 1)):
        with pytest.raises(CancelledError):
            answer.result(0)
    assert inbox.take() is None
