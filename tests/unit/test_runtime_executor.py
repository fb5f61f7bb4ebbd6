"""The local executor: one end for each attempt, whatever happens between. A script plays the worker; the real one has its own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.executor_local import LocalExecutor, attempt_spec
from stager.model.errors import SANDBOX_FULL_CODE, ErrorClass, Fault, InvalidInput, Refused, Transient
from stager.model.files import File
from stager.model.ids import produced_file_id
from stager.model.workflow import Job, JobInput, JobOutput, Workflow
from stager.planning.plan import Access
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.worker import AttemptResult, AttemptSpec, AttemptWaiting, DirectInput, KeptSandboxes, Outcome, Place, Sight
from stager.worker.place import write_json

JOB = Job(
    "j",
    "t",
    argv=("sort",),
    inputs=(JobInput("in", "in"),),
    outputs=(JobOutput("out", "o"),),
    env=(("A", "own"),),
    env_pass=("A", "B"),
    stdout="o",
)
WORKFLOW = Workflow("w", {"in": File("in"), "out": File("out")}, {"j": JOB, "plain": Job("plain", "t", shell="x")})
LOST_LINE = Transient("no answer", code="connection_lost")


def start(job: str = "j") -> cmd.StartAttempt:
    staged = (cmd.StagedInput("in", "f", "g", "in", Access.COPY),) if job == "j" else ()
    return cmd.StartAttempt(
        id="c1", at=0.0, cause="e1", node="node0", run="r", job=job, attempt="a-1", number=1, reserve_bytes=10, inputs=staged
    )


def ok() -> AttemptResult:
    made = {
        "file_id": produced_file_id("r", "out"),
        "generation": "a-1",
        "size_bytes": 3,
        "blake3": "b",
        "sha256": None,
        "executable": False,
    }
    return AttemptResult(attempt_id="a-1", outcome=Outcome.OK, exit_code=0, outputs=(made,))


class ScriptedWorker:
    """Answers from a list, and tells what it was asked."""

    def __init__(self, state_dir: Path, answers: list[Any]) -> None:
        self.state_dir, self.answers = state_dir, answers
        self.asked: list[str] = []
        self.specs: list[AttemptSpec] = []

    async def _next(self, what: str) -> Any:
        self.asked.append(what)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run(self, spec: AttemptSpec) -> Any:
        self.specs.append(spec)
        return await self._next("run")

    async def adopt(self, attempt: str) -> Any:
        return await self._next("adopt")

    async def commit(self, attempt: str, reserve_bytes: int) -> Any:
        return await self._next(f"commit {reserve_bytes}")

    async def abandon(self, attempt: str) -> Any:
        return await self._next("abandon")

    async def kill(self, attempt: str) -> bool:
        self.asked.append("kill")
        return True

    def forget(self, attempt: str) -> None:
        self.asked.append("forget")


class World:
    def __init__(self, env: Mapping[str, str] | None) -> None:
        self.variables = env
        self.events: list[Any] = []
        self.told: list[Callable[[], None]] = []
        self.mount: Any = None
        self.then: Any = None
        self.mounts: list[str] = []
        self.tenants = self.is_gone = False

    def is_a_tenants(self, run: str) -> bool:
        return self.tenants

    def workflow(self, run: str) -> Workflow:
        return WORKFLOW

    def env(self, run: str) -> Mapping[str, str] | None:
        return self.variables

    async def reachable(self, node: str) -> bool:
        return not self.is_gone

    async def owed_bytes(self) -> int:
        return 0

    async def mounted(self, node: str, run: str, origin: str, path: str) -> str:
        self.mounts.append(f"{origin}:{path}")
        if isinstance(self.mount, Exception):
            problem, self.mount = self.mount, self.then
            raise problem
        if isinstance(self.mount, asyncio.Event):
            await self.mount.wait()
        return "o1"

    def at(self, wall: float) -> float:
        return wall

    def put(self, event: Any, on_durable: Callable[[], None] | None = None) -> None:
        self.events.append(event)
        if on_durable is not None:
            self.told.append(on_durable)


def played(
    tmp_path: Path,
    answers: list[Any],
    play: Callable[[LocalExecutor], Awaitable[None]],
    env: Mapping[str, str] | None = None,
    mount: Any = None,
) -> tuple[World, ScriptedWorker]:
    worker, world = ScriptedWorker(tmp_path, answers), World({} if env is None else env)
    world.mount = mount

    async def whole() -> None:
        executor = LocalExecutor(worker, world.put, world)  # type: ignore[arg-type]
        await play(executor)
        await settled(executor)
        for told in world.told:
            told()
        await executor.close()

    asyncio.run(whole())
    return world, worker


async def settled(executor: LocalExecutor) -> None:
    while executor.tasks.under_way:
        await asyncio.wait(executor.tasks.under_way, timeout=10)


def test_an_attempt_ends_once_and_is_forgotten_when_the_journal_has_it(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start())

    world, worker = played(tmp_path, [ok()], play)
    [ended] = world.events
    assert (ended.outcome, ended.cause, ended.outputs) == ("ok", "c1", (ev.OutputMade("out", produced_file_id("r", "out"), "a-1", 3, "b"),))
    assert worker.asked == ["run", "forget"]


def test_a_disk_that_keeps_what_an_attempt_left_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        worker, world = ScriptedWorker(tmp_path, [ok()]), World({})
        monkeypatch.setattr(worker, "forget", refused)
        executor = LocalExecutor(worker, world.put, world)  # type: ignore[arg-type]
        executor.start(start())
        await settled(executor)
        world.told[0]()
        await settled(executor)

    def refused(attempt: str) -> None:
        raise OSError(30, "Read-only file system", attempt)

    asyncio.run(play())
    assert "the removal of what attempts left ended" in caplog.text and "Read-only file system" in caplog.text


@pytest.mark.parametrize("tenants", [True, False])
def test_jobs_of_tenants_get_no_capabilities(tmp_path: Path, tenants: bool) -> None:
    worker, world = ScriptedWorker(tmp_path, [ok()]), World({})
    world.tenants = tenants

    async def whole() -> None:
        executor = LocalExecutor(worker, world.put, world)  # type: ignore[arg-type]
        executor.start(start())
        await settled(executor)

    asyncio.run(whole())
    assert [spec.unprivileged for spec in worker.specs] == [tenants]


def test_a_lost_node_says_nothing_about_the_attempt(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start())

    world, worker = played(tmp_path, [LOST_LINE, LOST_LINE, ok()], play)
    assert [event.outcome for event in world.events] == ["ok"]
    assert worker.asked[:3] == ["run", "adopt", "adopt"]


def test_an_attempt_whose_node_is_gone_for_good_ends_as_lost(tmp_path: Path) -> None:
    """It would have waited for the node for ever."""

    async def play(executor: LocalExecutor) -> None:
        executor.surroundings.is_gone = True  # type: ignore[attr-defined]
        executor.start(start())

    world, worker = played(tmp_path, [LOST_LINE], play)
    assert [event.outcome for event in world.events] == ["lost"] and worker.asked == ["run", "kill", "forget"]


def test_outputs_that_are_too_large_wait_for_a_grant(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start())
        await settled(executor)
        executor.grant(cmd.GrantSpace(id="c2", at=0.0, cause="e2", node="node0", attempt="a-1", reserve_bytes=50))

    world, worker = played(tmp_path, [AttemptWaiting("a-1", 40), ok()], play)
    assert world.events[0] == ev.AttemptWaits(at=0.0, cause="c1", attempt="a-1", needed_bytes=40)
    assert world.events[1].outcome == "ok" and worker.asked == ["run", "commit 50", "forget"]


def test_a_grant_that_was_journaled_before_a_crash_is_used_after_it(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start())
        executor.grant(cmd.GrantSpace(id="c2", at=0.0, cause="e2", node="node0", attempt="a-1", reserve_bytes=50))

    world, worker = played(tmp_path, [AttemptWaiting("a-1", 40), ok()], play)
    assert [type(event) for event in world.events] == [ev.AttemptEnded] and worker.asked[:2] == ["run", "commit 50"]


def test_a_grant_that_is_too_small_is_no_grant(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start())
        executor.grant(cmd.GrantSpace(id="c2", at=0.0, cause="e2", node="node0", attempt="a-1", reserve_bytes=30))

    world, _ = played(tmp_path, [AttemptWaiting("a-1", 40)], play)
    assert [type(event) for event in world.events] == [ev.AttemptWaits]


def kill() -> cmd.KillAttempt:
    return cmd.KillAttempt(id="c3", at=0.0, cause="e3", node="node0", run="r", job="j", attempt="a-1")


def test_a_waiting_attempt_that_is_ended_is_abandoned(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start())
        await settled(executor)
        executor.kill(kill())

    killed = AttemptResult(attempt_id="a-1", outcome=Outcome.KILLED)
    world, worker = played(tmp_path, [AttemptWaiting("a-1", 40), killed], play)
    assert worker.asked == ["run", "abandon", "forget"] and world.events[1].outcome == "killed"


def test_a_kill_of_an_unknown_attempt_is_nothing(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.kill(kill())

    world, worker = played(tmp_path, [], play)
    assert world.events == [] and worker.asked == []


def test_a_job_waits_for_variables_that_a_restart_forgot(tmp_path: Path) -> None:
    world = World(None)
    worker = ScriptedWorker(tmp_path, [ok()])

    async def whole() -> None:
        executor = LocalExecutor(worker, world.put, world)  # type: ignore[arg-type]
        executor.start(start())
        await settled(executor)
        assert worker.asked == [] and list(executor.parked) == ["a-1"]
        world.variables = {"B": "b"}
        executor.unpark("r")
        await settled(executor)

    asyncio.run(whole())
    assert worker.asked == ["run"] and [event.outcome for event in world.events] == ["ok"]


def test_one_that_was_begun_needs_no_variables_and_one_that_waits_for_them_can_be_ended(tmp_path: Path) -> None:
    begun = World(None)
    place = Place.of(tmp_path, "a-1")
    place.make()
    Path(place.attempt).write_text("{}")

    async def whole(world: World, worker: ScriptedWorker, end: bool) -> None:
        executor = LocalExecutor(worker, world.put, world)  # type: ignore[arg-type]
        executor.start(start())
        if end:
            executor.kill(kill())
        await settled(executor)

    asyncio.run(whole(begun, ScriptedWorker(tmp_path, [ok()]), False))
    assert [event.outcome for event in begun.events] == ["ok"]
    parked, worker = World(None), ScriptedWorker(tmp_path / "elsewhere", [])
    asyncio.run(whole(parked, worker, True))
    assert [event.outcome for event in parked.events] == ["killed"] and worker.asked == []


def test_a_job_that_cannot_be_started_fails(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start())

    world, _ = played(tmp_path, [InvalidInput("no such path", code="bad_request")], play)
    assert (world.events[0].outcome, world.events[0].fault) == ("failed", Fault("invalid_input", "bad_request", "no such path"))  # type: ignore[arg-type]


def test_void_outputs_are_named_for_deletion(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start())

    void = AttemptResult(attempt_id="a-1", outcome=Outcome.FAILED, void_outputs=ok().outputs)
    world, _ = played(tmp_path, [void], play)
    assert world.events[0].outcome == "failed" and [made.lfn for made in world.events[0].outputs] == ["out"]


def test_what_a_job_gets_follows_from_the_workflow_and_its_submitter() -> None:
    spec = attempt_spec(start(), WORKFLOW, {"A": "passed", "B": "b", "C": "never"})
    assert dict(spec.env) == {"A": "own", "B": "b"}
    assert (spec.argv, spec.stdout, spec.reserve_bytes, spec.reservation) == (("sort",), "o", 10, "a-1")
    assert [(entry.file_id, entry.generation, entry.access) for entry in spec.inputs] == [("f", "g", "copy")]
    assert [(entry.file_id, entry.generation, entry.path) for entry in spec.outputs] == [(produced_file_id("r", "out"), "a-1", "o")]


def start_direct() -> cmd.StartAttempt:
    staged = cmd.StagedInput("in", "f", "", "in", Access.DIRECT, "lab", "d/in", 10, "m=1")
    facts = {"node": "node0", "run": "r", "job": "j", "attempt": "a-1", "number": 1, "reserve_bytes": 10}
    return cmd.StartAttempt(id="c1", at=0.0, cause="e1", inputs=(staged,), **facts)


def test_what_is_read_directly_is_mounted_before(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start_direct())

    world, worker = played(tmp_path, [ok()], play)
    assert world.mounts == ["lab:d/in"] and [event.outcome for event in world.events] == ["ok"]
    assert worker.specs[0].direct == (DirectInput("in", "o1", "d/in", 10, "m=1"),) and worker.specs[0].inputs == ()


def test_a_mount_that_cannot_be_had_ends_the_attempt_before_it_began(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start_direct())

    world, worker = played(tmp_path, [], play, mount=Refused("no fuse", code="cannot_mount", subject="lab"))
    [ended] = world.events
    assert (ended.outcome, ended.fault.code, ended.exit_code, ended.measures.wall_s) == ("failed", "cannot_mount", None, None)
    assert "run" not in worker.asked


def test_a_node_that_is_lost_while_it_mounts_is_asked_again(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        executor.start(start_direct())

    world, worker = played(tmp_path, [ok()], play, mount=LOST_LINE)
    assert world.mounts == ["lab:d/in"] * 2 and worker.asked == ["run", "forget"]
    assert [event.outcome for event in world.events] == ["ok"]


def test_an_attempt_that_is_killed_while_it_waits_for_a_mount_never_runs(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor) -> None:
        held = executor.surroundings.mount = asyncio.Event()  # type: ignore[attr-defined]
        executor.start(start_direct())
        await asyncio.sleep(0)
        executor.kill(cmd.KillAttempt(id="c2", at=0.0, cause="e2", node="node0", run="r", job="j", attempt="a-1"))
        held.set()

    world, worker = played(tmp_path, [ok()], play)
    assert [event.outcome for event in world.events] == ["killed"] and "run" not in worker.asked


def test_an_attempt_that_is_killed_while_its_mount_is_lost_never_runs(tmp_path: Path) -> None:
    """A job that never ends was started by the next mount, and a run that had been cancelled waited for it."""

    async def play(executor: LocalExecutor) -> None:
        executor.start(start_direct())
        while not executor.surroundings.mounts:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        executor.kill(cmd.KillAttempt(id="c2", at=0.0, cause="e2", node="node0", run="r", job="j", attempt="a-1"))

    world, worker = played(tmp_path, [ok()], play, mount=LOST_LINE)
    assert [event.outcome for event in world.events] == ["killed"] and "run" not in worker.asked


def test_an_end_is_told_though_what_goes_before_it_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(executor: LocalExecutor) -> None:
        async def full(command: cmd.StartAttempt, ending: AttemptResult) -> None:
            raise OSError(28, "No space left on device")

        executor.before_told = full  # type: ignore[method-assign]
        executor.start(start())

    world, _ = played(tmp_path, [ok()], play)
    assert [event.outcome for event in world.events] == ["ok"] and "No space left on device" in caplog.text


# Sandboxes of jobs that failed.

BAD = AttemptResult(
    attempt_id="a-1", outcome=Outcome.FAILED, exit_code=3, fault=Fault(ErrorClass.TRANSIENT, "job_failed", "it failed", "j")
)


def left(tmp_path: Path, attempt: str = "a-1", number: int = 1) -> None:
    """As a worker leaves what failed."""
    place = Place.of(tmp_path, attempt)
    Path(place.sandbox).mkdir(parents=True)
    spec = AttemptSpec(attempt_id=attempt, run_id="r", job_id="j", number=number, argv=("x",), keep_failed_sandbox=True)
    write_json(place.attempt, spec.to_json())
    write_json(place.outcome, BAD.to_json())


async def ended_as(executor: LocalExecutor, world: World, ending: AttemptResult) -> None:
    executor.worker.answers.append(ending)  # type: ignore[attr-defined]
    executor.start(start())
    await settled(executor)
    world.told.pop()()
    await settled(executor)


def with_kept_sandboxes(tmp_path: Path, play: Callable[[LocalExecutor, World, KeptSandboxes], Awaitable[None]]) -> ScriptedWorker:
    worker, world, kept_sandboxes = ScriptedWorker(tmp_path, []), World({}), KeptSandboxes(tmp_path, 1 << 40)

    async def whole() -> None:
        executor = LocalExecutor(worker, world.put, world, kept_sandboxes)  # type: ignore[arg-type]
        await play(executor, world, kept_sandboxes)
        await executor.close()

    asyncio.run(whole())
    return worker


def test_what_a_job_left_is_kept_once_its_end_is_recorded_and_goes_when_it_succeeds(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor, world: World, kept_sandboxes: KeptSandboxes) -> None:
        executor.worker.answers.append(BAD)  # type: ignore[attr-defined]
        executor.start(start())
        await settled(executor)
        left(tmp_path)
        assert not kept_sandboxes.kept
        world.told.pop()()
        assert list(kept_sandboxes.kept) == [("r", "j")], "before anybody is told"
        await settled(executor)
        await ended_as(executor, world, ok())
        assert not kept_sandboxes.kept and not list(tmp_path.glob("failed/*/*"))

    assert all(spec.keep_failed_sandbox for spec in with_kept_sandboxes(tmp_path, play).specs)


def test_what_is_kept_is_the_first_to_go_where_a_disk_is_full(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor, world: World, kept_sandboxes: KeptSandboxes) -> None:
        left(tmp_path, "older")
        assert kept_sandboxes.take("older")
        told: list[bool] = []
        put = executor.put
        executor.put = lambda *words: (told.append(bool(kept_sandboxes.kept)), put(*words))  # type: ignore[func-returns-value,assignment]
        full = replace(BAD, fault=Fault(ErrorClass.TRANSIENT, SANDBOX_FULL_CODE, "full", "j"))
        await ended_as(executor, world, full)
        assert told == [False] and "full" in kept_sandboxes.gone["r", "j"], "before anybody can try it again"

    with_kept_sandboxes(tmp_path, play)


def test_what_a_scheduler_died_over_is_kept_by_the_next(tmp_path: Path) -> None:
    async def play(executor: LocalExecutor, world: World, kept_sandboxes: KeptSandboxes) -> None:
        left(tmp_path)
        executor.worker.sight_of = lambda attempt: Sight.FINISHED  # type: ignore[method-assign]
        await executor.sweep({"a-1"})
        assert not kept_sandboxes.kept, "its end is not recorded yet"
        await executor.sweep(set())
        assert list(kept_sandboxes.kept) == [("r", "j")]

    with_kept_sandboxes(tmp_path, play)
