"""The live world with several nodes: each gets its own commands, and one that cannot be asked keeps none from another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from stager.model.workflow import Job, Workflow
from stager.runtime.inbox import Inbox
from stager.runtime.live_world import LiveWorld
from stager.runtime.outstanding import Outstanding
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev


class ScriptedLink:
    """Notes what it is asked to do."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.asked: list[str] = []
        self.begun: list[str] = []

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass

    def go_up(self) -> None:
        self.asked.append("up")

    def carry_out(self, command: Any) -> None:
        self.asked.append(command.id)

    def job_begins(self, run: str, job: str) -> None:
        self.begun.append(job)


class ScriptedAttempts:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def start(self, command: cmd.StartAttempt) -> None:
        self.asked.append(f"start {command.attempt}")

    def grant(self, command: cmd.GrantSpace) -> None:
        self.asked.append(f"grant {command.attempt}")

    def kill(self, command: cmd.KillAttempt) -> None:
        self.asked.append(f"kill {command.attempt}")


class Written:
    """A journal that keeps nothing but the number of batches."""

    def __init__(self) -> None:
        self.count = 0

    def append(self, events: Sequence[Any], commands: Sequence[Any]) -> int:
        self.count += 1
        return self.count


class World:
    """A live world with a link for each of these nodes; on its event loop."""

    def __init__(self, *nodes: str) -> None:
        self.inbox, self.outstanding, self.attempts = Inbox(lambda: 1.0), Outstanding(), ScriptedAttempts()
        self.outstanding.workflows["r"] = Workflow("w", {}, {"j": Job("j", "t", shell="x")})
        self.links = {node: ScriptedLink(node) for node in nodes}
        self.carried_out = threading.Event()
        journal: Any = Written()
        self.live = LiveWorld(journal, self.inbox, self.outstanding, asyncio.get_running_loop(), lambda events: self.carried_out.set())
        links: Any = self.links.values()
        self.live.open(links, self.attempts)

    async def perform(self, *commands: cmd.Command, events: Sequence[ev.Event] = ()) -> None:
        self.carried_out.clear()
        self.live.perform(events, commands)
        await asyncio.sleep(0)
        assert self.carried_out.is_set(), "the batch was not carried out to its end"

    def told(self) -> list[ev.Event]:
        return [event for event, _ in self.inbox.items]


def delete(number: int, node: str) -> cmd.DeleteReplica:
    return cmd.DeleteReplica(id=f"c{number}", at=0.0, cause="e", node=node, file="f", generation=f"g{number}", size_bytes=1, why="evicted")


def start(number: int, node: str) -> cmd.StartAttempt:
    return cmd.StartAttempt(
        id=f"c{number}", at=0.0, cause="e", node=node, run="r", job="j", attempt=f"a{number}", number=1, reserve_bytes=1, inputs=()
    )


def kill(number: int, attempt: str) -> cmd.KillAttempt:
    return cmd.KillAttempt(id=f"c{number}", at=0.0, cause="e", node="io2", run="r", job="j", attempt=attempt)


def test_a_command_to_an_unknown_node_keeps_none_of_its_batch_from_being_done() -> None:
    """It was a KeyError, and what came after it in the batch was never done."""

    async def main() -> None:
        world = World("io0", "io2")
        await world.perform(delete(1, "io0"), delete(2, "io1"), start(3, "io1"), delete(4, "io2"), start(5, "io2"), kill(6, "a5"))
        assert [world.links["io0"].asked, world.links["io2"].asked] == [["c1"], ["c4"]]
        assert world.attempts.asked == ["start a5", "kill a5"] and world.links["io2"].begun == ["j"]
        assert world.told() == [ev.NodeLost(at=0.0, cause="c2", node="io1")], "the Machine hears once that it is not there"
        assert "a3" in world.outstanding.attempts, "it waits for its node"
        await world.live.close()

    asyncio.run(main())


def test_each_node_goes_up_by_its_own_report() -> None:
    async def main() -> None:
        world = World("io0", "io1")
        reports = [
            ev.NodeReported(at=0.0, node=node, incarnation="i", capacity_bytes=1, can_link=True, replicas=(), transfers=())
            for node in ("io1", "io7")
        ]
        await world.perform(events=reports)
        assert [world.links["io0"].asked, world.links["io1"].asked] == [[], ["up"]]
        await world.live.close()

    asyncio.run(main())


def test_a_batch_that_cannot_be_carried_out_ends_the_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    """The rest of it was dropped: jobs were never killed, transfers never asked for. The next scheduler has it all."""

    async def main() -> None:
        world = World("io0")

        def full(command: cmd.StartAttempt) -> None:
            raise OSError(24, "Too many open files")

        world.attempts.start = full  # type: ignore[method-assign]
        world.live.perform([], [start(1, "io0"), delete(2, "io0")])
        await asyncio.sleep(0)
        assert isinstance(world.live.failure, OSError) and world.inbox.take() is None
        await world.live.close()

    asyncio.run(main())
    assert "Too many open files" in caplog.text
