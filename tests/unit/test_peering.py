"""Who is told which nodes are forgotten, and when again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from stager.model.errors import InvalidInput, StagerError, Transient
from stager.runtime.peering import Peering
from stager.wire.node import ForgottenNode

A, B = (ForgottenNode(node_id=name, key_sha256=name * 64) for name in "ab")


class Told:
    """A node that says what it was told. `refusal`: what it says instead."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.refusal: StagerError | None = None

    async def put_forgotten(self, nodes: Sequence[ForgottenNode]) -> None:
        await asyncio.sleep(0)
        self.lists.append([each.node_id for each in nodes])
        if self.refusal is not None:
            raise self.refusal


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_each_node_is_told_at_its_contact_and_when_another_is_forgotten() -> None:
    async def main() -> None:
        peering, first, second = Peering(), Told(), Told()
        tellers = [peering.teller(name, cast(Any, node)) for name, node in (("n1", first), ("n2", second))]
        peering.met("n1", None)
        await settled()
        assert first.lists == [], "there is no cluster"
        peering.forget([A])
        peering.forget([A, B])
        await settled()
        assert first.lists[-1] == ["a", "b"] and second.lists == [], "it was not met yet"
        peering.met("n2", None)
        peering.met("n1", None)
        await settled()
        assert second.lists == [["a", "b"]] and first.lists[-2:] == [["a", "b"], ["a", "b"]]
        peering.forget([A, B])
        await settled()
        assert len(second.lists) == 1, "that is what it knows"
        peering.forget([])
        await settled()
        assert second.lists[-1] == first.lists[-1] == []
        for teller in tellers:
            await teller.close()

    asyncio.run(main())


def test_a_node_that_did_not_hear_is_told_again_and_an_older_one_is_not() -> None:
    async def main() -> None:
        peering, node = Peering(), Told()
        teller = peering.teller("n1", cast(Any, node))
        node.refusal = Transient("lost", code="connection_lost")
        peering.forget([A])
        peering.met("n1", None)
        await settled()
        node.refusal = InvalidInput("there is no such call", code="not_found")
        peering.met("n1", None)
        await settled()
        assert node.lists == [["a"], ["a"]]
        peering.forget([A])
        await settled()
        assert len(node.lists) == 2
        await teller.close()

    asyncio.run(main())
