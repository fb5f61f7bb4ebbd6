"""What is asked of a node many times goes many in a call: each is answered for itself, in order, and none is lost with another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from stager.model.errors import Refused, StagerError, Transient
from stager.runtime.together import TOGETHER_MAX, Together

Answer = dict[str, Any] | StagerError


class FakeNode:
    """Answers when it is let; `calls` are the transfers of each call."""

    def __init__(self, refused: Mapping[str, StagerError] | None = None, broken: Exception | None = None) -> None:
        self.calls: list[list[str]] = []
        self.refused, self.broken = dict(refused or {}), broken
        self.gate = asyncio.Event()
        self.gate.set()

    async def answers(self, asked: Sequence[tuple[str, Mapping[str, Any], str]]) -> list[Answer]:
        self.calls.append([name for name, _, _ in asked])
        await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        return [self.refused.get(name, {"of": name, "command": command, **body}) for name, body, command in asked]


async def asked_of(node: FakeNode, names: Sequence[str]) -> list[Any]:
    calls = Together(node.answers)
    return await asyncio.gather(*(calls.ask((name, {"n": name}, f"c-{name}")) for name in names), return_exceptions=True)


def test_those_that_come_together_go_in_one_call_in_their_order() -> None:
    async def main() -> None:
        node = FakeNode()
        names = [f"t{number}" for number in range(TOGETHER_MAX + 3)]
        answers = await asked_of(node, names)
        assert [answer["of"] for answer in answers] == names and answers[7]["command"] == "c-t7" and answers[7]["n"] == "t7"
        assert node.calls == [names[:TOGETHER_MAX], names[TOGETHER_MAX:]]

    asyncio.run(main())


def test_what_comes_while_a_call_is_under_way_goes_with_the_next() -> None:
    async def main() -> None:
        node = FakeNode()
        node.gate.clear()
        calls = Together(node.answers)
        first = asyncio.create_task(calls.ask(("t0", {}, "c")))
        while not node.calls:
            await asyncio.sleep(0)
        others = [asyncio.create_task(calls.ask((f"t{number}", {}, "c"))) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        others[1].cancel()
        await asyncio.sleep(0)
        node.gate.set()
        assert (await first)["of"] == "t0" and (await others[2])["of"] == "t3"
        assert node.calls == [["t0"], ["t1", "t3"]], "nothing is asked for who went away"
        assert (await calls.ask(("t4", {}, "c")))["of"] == "t4", "it begins again after a rest"

    asyncio.run(main())


def test_a_refusal_is_of_one_and_a_lost_call_of_all_that_were_in_it() -> None:
    async def main() -> None:
        full = Refused("full", code="no_space_node")
        answers = await asked_of(FakeNode({"t1": full}), ["t0", "t1", "t2"])
        assert answers[1] is full and [answers[0]["of"], answers[2]["of"]] == ["t0", "t2"]
        for problem in (Transient("gone", code="connection_lost"), ValueError("a defect")):
            for names in (["t0"], ["t0", "t1"]):
                assert await asked_of(FakeNode(broken=problem), names) == [problem] * len(names)

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 2])
def test_nobody_waits_for_a_call_that_was_given_up(count: int) -> None:
    async def main() -> None:
        node = FakeNode()
        node.gate.clear()
        calls = Together(node.answers)
        waiting = [asyncio.create_task(calls.ask((f"t{number}", {}, "c"))) for number in range(count)]
        while not node.calls:
            await asyncio.sleep(0)
        calls.close()
        for task in waiting:
            task.cancel()
        assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*waiting, return_exceptions=True))

    asyncio.run(main())
