"""What a restart takes up, and when: of each node as soon as it has reported, whatever other nodes do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Any

from stager.runtime.inbox import Inbox
from stager.runtime.outstanding import Outstanding
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.continuation import Continuation
from stager.service.inquiry import Pulse
from stager.service.lifetime import Lifetime
from stager.tasks import Tasks


class ScriptedExecutors:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.started: set[str] = set()

    def is_started(self, attempt: str) -> bool:
        return attempt in self.started

    def start(self, command: cmd.StartAttempt) -> None:
        self.started.add(command.attempt)
        self.asked.append(f"start {command.attempt}")

    def grant(self, command: cmd.GrantSpace) -> None:
        self.asked.append(f"grant {command.attempt}")

    def kill(self, command: cmd.KillAttempt) -> None:
        self.asked.append(f"kill {command.attempt}")

    def node_is_there(self, node: str) -> None:
        assert node in ("io0", "io1")

    def unpark(self, run: str) -> None:
        self.asked.append(f"unpark {run}")

    async def sweep(self, outstanding: Container[str]) -> None:
        self.asked.append(f"sweep all but {[name for name in ('a0', 'a1', 'b0', 'old') if name in outstanding]}")


def start(attempt: str, node: str) -> cmd.StartAttempt:
    return cmd.StartAttempt(
        id=f"s-{attempt}", at=0.0, cause="e", node=node, run="r", job="j", attempt=attempt, number=1, reserve_bytes=1, inputs=()
    )


def reported(node: str) -> ev.NodeReported:
    return ev.NodeReported(at=0.0, node=node, incarnation="i", capacity_bytes=1, can_link=True, replicas=(), transfers=())


class Bed:
    """Attempts a0 and a1 were under way on io0, b0 on io1."""

    def __init__(self, *awaited: str) -> None:
        self.executors, self.lifetime, self.tasks = ScriptedExecutors(), Lifetime(0.0), Tasks()
        self.inbox, outstanding = Inbox(lambda: 1.0), Outstanding()
        grant = cmd.GrantSpace(id="g", at=0.0, cause="e", node="io1", attempt="b0", reserve_bytes=2)
        kill = cmd.KillAttempt(id="k", at=0.0, cause="e", node="io0", run="r", job="j", attempt="a1")
        begun = [start("a0", "io0"), start("a1", "io0"), start("b0", "io1")]
        outstanding.gave([*begun, grant, kill, cmd.WakeAt(id="w", at=0.0, cause="e", wake_at=9.0)])
        executors: Any = self.executors
        self.continuation = Continuation(outstanding, executors, self.inbox, self.tasks, self.lifetime, Pulse(), awaited)

    async def asked_by(self, steps: Callable[[], None]) -> list[str]:
        before = len(self.executors.asked)
        steps()
        await asyncio.sleep(0)
        return self.executors.asked[before:]


SWEPT = "sweep all but ['a0', 'a1', 'b0']"


def test_attempts_are_taken_up_by_their_own_nodes_report_alone() -> None:
    async def main() -> None:
        bed = Bed("io0")
        assert await bed.asked_by(bed.continuation.begin) == [] and not bed.lifetime.ready.is_set()
        asked = await bed.asked_by(lambda: bed.continuation.carried_out([reported("io0")]))
        assert asked == ["start a0", "start a1", "kill a1", SWEPT]
        assert bed.lifetime.ready.is_set() and bed.inbox.wakes == [9.0], "the node that is away keeps nothing from going on"
        asked = await bed.asked_by(lambda: bed.continuation.carried_out([reported("io1"), reported("io0")]))
        assert asked == ["start b0", "grant b0"] and bed.inbox.wakes == [9.0]

    asyncio.run(main())


def test_what_was_started_meanwhile_is_not_started_again() -> None:
    async def main() -> None:
        bed = Bed("io0")
        bed.executors.started.add("a0")
        asked = await bed.asked_by(lambda: bed.continuation.carried_out([reported("io0")]))
        assert asked == ["start a1", "kill a1", SWEPT]

    asyncio.run(main())


def test_a_node_that_is_not_awaited_is_taken_up_before_the_one_that_is() -> None:
    async def main() -> None:
        bed = Bed("io0")
        asked = await bed.asked_by(lambda: bed.continuation.carried_out([reported("io1")]))
        assert asked == ["start b0", "grant b0"] and not bed.lifetime.ready.is_set() and not bed.inbox.wakes

    asyncio.run(main())


def test_a_scheduler_that_awaits_no_node_is_ready_when_its_journal_is_replayed() -> None:
    async def main() -> None:
        bed = Bed()
        assert await bed.asked_by(bed.continuation.begin) == [SWEPT]
        assert bed.lifetime.ready.is_set() and bed.inbox.wakes == [9.0]
        asked = await bed.asked_by(lambda: bed.continuation.carried_out([reported("io0"), reported("io1")]))
        assert asked == ["start a0", "start a1", "kill a1", "start b0", "grant b0"]

    asyncio.run(main())
