"""Tasks beside everything else: none is lost, what one fails by is told, and they end in order."""

from __future__ import annotations

import asyncio
import logging

import pytest

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
