"""The executor over hosts: what ends an attempt, and what ends it when its host is gone. A script plays the workers of hosts; real ones are
in tests/conformance/test_executors.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest

from stager import tasks
from stager.adapters import executor_local
from stager.adapters.executor_dask import DaskExecutor
from stager.adapters.host_workers import HostWorkers
from stager.model.errors import ErrorClass, Fault
from stager.model.workflow import Job, Workflow
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.wire.node import ClosedAttempt
from stager.worker import AttemptResult, AttemptSpec, Outcome
from stager.worker.attempt import NOT_BEGUN_CODE

WORKFLOW = Workflow("w", {}, {"j": Job("j", "t", shell="x", cores=3, env_pass=("TOKEN",))})
START = cmd.StartAttempt(
    id="c1", at=0.0, cause="e1", node="node0", run="r", job="j", attempt="a-1", number=1, reserve_bytes=10, inputs=(), host="h1"
)


class Workers:
    """Answers nothing until it is told to."""

    def __init__(self, *, given: bool = False) -> None:
        self.commands: dict[str, cmd.StartAttempt] = {}
        self.asked: list[str] = []
        self.given = given
        self.answer: asyncio.Future[AttemptResult] = asyncio.get_running_loop().create_future()

    def was_given(self, attempt: str) -> bool:
        return self.given

    async def run(self, spec: AttemptSpec) -> AttemptResult:
        self.asked.append("run")
        return await self.answer

    async def adopt(self, attempt: str) -> AttemptResult:
        self.asked.append("adopt")
        return await self.answer

    async def bring_logs(self, attempt: str) -> None:
        self.asked.append("logs")

    async def forget(self, attempts: Sequence[str]) -> None: ...

    def was_ticketed(self, command: cmd.StartAttempt) -> bool:
        return True


class World:
    """`env` None: a restart forgot it. `gone`: attempts whose host is gone."""

    def __init__(self, env: dict[str, str] | None = None, gone: Collection[str] = ()) -> None:
        self.variables, self.gone = env, gone
        self.events: list[Any] = []
        self.closed: list[str] = []
        self.close_answer: ClosedAttempt | None = None

    def put(self, event: Any, on_durable: Callable[[], None] | None = None) -> None:
        self.events.append(event)

    def workflow(self, run: str) -> Workflow:
        return WORKFLOW

    def env(self, run: str) -> dict[str, str] | None:
        return self.variables

    def is_a_tenants(self, run: str) -> bool:
        return False

    def at(self, wall: float) -> float:
        return wall

    def is_host_gone(self, attempt: str) -> bool:
        return attempt in self.gone

    def attempts_on(self, host: str) -> list[str]:
        return []

    async def close_attempt(self, command: cmd.StartAttempt, *, ticketed: bool) -> ClosedAttempt | None:
        assert ticketed
        self.closed.append(command.attempt)
        return self.close_answer


def played(world: World, play: Callable[[DaskExecutor, Workers], Awaitable[None]], *, given: bool = False) -> list[Any]:
    async def main() -> None:
        workers: Any = Workers(given=given)
        executor = DaskExecutor(workers, world.put, world)  # type: ignore[arg-type]
        executor.start(START)
        await asyncio.sleep(0)
        await play(executor, workers)
        for _ in range(10):
            await asyncio.sleep(0)
        await executor.tasks.close()

    asyncio.run(main())
    return [event.outcome for event in world.events if type(event) is ev.AttemptEnded]


def test_an_end_is_told_once_with_its_logs_brought_before() -> None:
    async def play(executor: DaskExecutor, workers: Workers) -> None:
        workers.answer.set_result(AttemptResult(attempt_id="a-1", outcome=Outcome.OK))
        for _ in range(5):
            await asyncio.sleep(0)
        assert workers.asked == ["run", "logs"] and executor._cores_of(START) == 3

    assert played(World({}), play) == [ev.Outcome.OK]


def test_what_had_not_begun_when_its_worker_was_killed_counts_for_nothing() -> None:
    async def play(executor: DaskExecutor, workers: Workers) -> None:
        fault = Fault(ErrorClass.TRANSIENT, NOT_BEGUN_CODE, "not begun", "j")
        workers.answer.set_result(AttemptResult(attempt_id="a-1", outcome=Outcome.FAILED, fault=fault))

    assert played(World({}), play) == [ev.Outcome.KILLED]


def test_attempts_of_a_host_that_is_gone_are_closed_at_their_node_and_lost() -> None:
    async def play(executor: DaskExecutor, workers: Workers) -> None:
        executor.host_gone("h2")
        await asyncio.sleep(0)
        assert not world.closed
        executor.host_gone("h1")

    world = World({})
    assert played(world, play) == [ev.Outcome.LOST] and world.closed == ["a-1"]


def test_one_that_had_committed_when_its_host_was_forgotten_has_ended_well() -> None:
    async def play(executor: DaskExecutor, workers: Workers) -> None:
        executor.host_gone("h1")

    world = World({})
    world.close_answer = ClosedAttempt(state="committed", outputs=[])
    assert played(world, play) == [ev.Outcome.OK] and world.closed == ["a-1"]


def test_one_whose_host_went_before_a_restart_is_lost_and_not_asked_for() -> None:
    async def play(executor: DaskExecutor, workers: Workers) -> None:
        assert workers.asked == []

    world = World({}, gone={"a-1"})
    assert played(world, play, given=True) == [ev.Outcome.LOST] and world.closed == ["a-1"]


def test_without_its_variables_one_that_was_given_away_is_adopted_and_a_new_one_waits() -> None:
    async def adopted(executor: DaskExecutor, workers: Workers) -> None:
        await asyncio.sleep(0)
        assert workers.asked == ["adopt"] and not executor.parked

    async def parked(executor: DaskExecutor, workers: Workers) -> None:
        await asyncio.sleep(0)
        assert workers.asked == [] and list(executor.parked) == ["a-1"]

    assert played(World(None), adopted, given=True) == played(World(None), parked) == []


def test_after_a_defect_an_attempt_is_asked_about_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Else its run would never end."""
    monkeypatch.setattr(executor_local, "AFTER_DEFECT_S", 0.0)

    async def play(executor: DaskExecutor, workers: Workers) -> None:
        workers.answer.set_exception(RuntimeError("Client is closed"))
        workers.answer = asyncio.get_running_loop().create_future()
        workers.answer.set_result(AttemptResult(attempt_id="a-1", outcome=Outcome.OK))

    assert played(World({}), play) == [ev.Outcome.OK]
    assert "attempt a-1: a defect of stager" in caplog.text and "RuntimeError: Client is closed" in caplog.text


def test_workers_of_hosts_do_the_steps_of_attempts() -> None:
    """What the script above plays."""
    assert all(
        hasattr(HostWorkers, name)
        for name in ("was_given", "run", "adopt", "commit", "abandon", "kill", "forget", "bring_logs", "was_ticketed")
    )


def test_the_end_of_what_is_lost_is_tried_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AFTER_DEFECT_S", 0.0)

    class Full(World):
        async def close_attempt(self, command: cmd.StartAttempt, *, ticketed: bool) -> ClosedAttempt | None:
            if not self.closed:
                self.closed.append("failed")
                raise OSError(28, "No space left on device")
            return await super().close_attempt(command, ticketed=ticketed)

    async def play(executor: DaskExecutor, workers: Workers) -> None:
        executor.host_gone("h1")

    world = Full({})
    assert played(world, play) == [ev.Outcome.LOST] and world.closed == ["failed", "a-1"]
