"""Tasks beside everything else: none is lost, what one fails by is told, and they end in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from stager import tasks as tasks_module
from stager.model.errors import Refused
from stager.tasks import Tasks


async def forever(name: str, ended: list[str], begun: asyncio.Event) -> None:
    try:
        begun.set()
        await asyncio.Event().wait()
    finally:
        ended.append(name)


async def failing(problem: BaseException) -> None:
    raise problem


def test_all_are_kept_and_end_newest_first() -> None:
    async def play() -> list[str]:
        tasks, ended = Tasks(), []
        for name in ("sweep", "watch", "end"):
            begun = asyncio.Event()
            tasks.start(name, forever(name, ended, begun))
            await begun.wait()
        assert [task.get_name() for task in tasks.under_way] == ["sweep", "watch", "end"]
        await tasks.close()
        assert tasks.under_way == []
        return ended

    assert asyncio.run(play()) == ["end", "watch", "sweep"]


def test_what_one_fails_by_is_told_to_the_log_and_to_who_wants_to_know(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> list[BaseException]:
        tasks, told = Tasks(), []
        tasks.start("the sweep", failing(OSError(5, "Input/output error")))
        tasks.start("the watch", failing(Refused("it is gone")), told.append)
        while tasks.under_way:
            await asyncio.sleep(0)
        return told

    with caplog.at_level(logging.WARNING):
        told = asyncio.run(play())
    assert [type(problem) for problem in told] == [Refused]
    assert "the sweep ended by a defect of stager" in caplog.text and "Input/output error" in caplog.text
    assert "the watch ended: it is gone" in caplog.text


def test_one_that_ends_the_others_is_not_waited_for_by_itself() -> None:
    async def play() -> list[str]:
        tasks, ended, begun = Tasks(), [], asyncio.Event()
        tasks.start("other", forever("other", ended, begun))
        await begun.wait()
        await tasks.start("ender", tasks.close())
        return ended

    assert asyncio.run(play()) == ["other"]


def test_one_that_lost_the_wish_is_named_and_asked_again(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "ENDS_WITHIN_S", 0.01)

    async def hard_of_hearing(begun: asyncio.Event) -> None:
        for _ in range(2):
            with contextlib.suppress(asyncio.CancelledError):
                begun.set()
                await asyncio.Event().wait()

    async def play() -> None:
        tasks, begun = Tasks(), asyncio.Event()
        tasks.start("the sweep", hard_of_hearing(begun))
        await begun.wait()
        await tasks.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(play(), 60))
    assert "the sweep takes long to end" in caplog.text and "hard_of_hearing" in caplog.text
