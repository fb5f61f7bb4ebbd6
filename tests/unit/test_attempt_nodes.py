"""The worker asks the node of each attempt, and of one that this scheduler has no node for it learns that it has to wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stager.adapters.ionode import is_lost
from stager.model.errors import Transient
from stager.runtime.attempt_nodes import AttemptNodes
from stager.runtime.outstanding import Outstanding
from stager.scheduler import commands as cmd


class ScriptedClient:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def put_reservation(self, reservation_id: str, size_bytes: int) -> None:
        self.asked.append(f"reserve {reservation_id} {size_bytes}")

    async def stage_in(self, attempt_id: str, body: Any) -> None:
        self.asked.append(f"in {attempt_id}")

    async def stage_out(self, attempt_id: str, body: Any) -> None:
        self.asked.append(f"out {attempt_id}")

    async def release(self, attempt_id: str, body: Any) -> None:
        self.asked.append(f"release {attempt_id}")


def start(attempt: str, node: str) -> cmd.StartAttempt:
    return cmd.StartAttempt(
        id=f"s-{attempt}", at=0.0, cause="e", node=node, run="r", job="j", attempt=attempt, number=1, reserve_bytes=1, inputs=()
    )


def test_each_attempt_is_asked_of_at_its_own_node() -> None:
    clients, outstanding = {"io0": ScriptedClient(), "io1": ScriptedClient()}, Outstanding()
    outstanding.gave([start("a0", "io0"), start("a1", "io1"), start("a7", "io7")])
    links: dict[str, Any] = {node: SimpleNamespace(client=client) for node, client in clients.items()}
    port = AttemptNodes(outstanding, links)

    async def main() -> None:
        for attempt in ("a1", "a0"):
            await port.stage_in(attempt, {})
        await port.put_reservation("a1", 5)
        await port.stage_out("a1", {})
        await port.release("a0", {})
        with pytest.raises(Transient, match="attempt a7 is on the I/O node io7, which this scheduler does not have") as told:
            await port.release("a7", {})
        assert is_lost(told.value)

    asyncio.run(main())
    assert clients["io0"].asked == ["in a0", "release a0"]
    assert clients["io1"].asked == ["in a1", "reserve a1 5", "out a1"]
