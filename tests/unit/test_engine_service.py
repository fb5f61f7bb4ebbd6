"""What an engine may say of its jobs, before a real Machine and a real attempt's directory, without a node: who is asked what, in which
order, and what is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stager import wire
from stager.adapters.run_records import RunRecords
from stager.model.errors import Denied, InvalidInput, Refused, Transient
from stager.model.files import File
from stager.model.ids import produced_file_id
from stager.model.topology import embedded
from stager.model.workflow import Job, JobOutput, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.runtime.credentials import CredentialBook
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.service.commands import Commits
from stager.service.engine_calls import CallStates, StagedCalls
from stager.service.engine_service import EngineService, Rights
from stager.service.known_runs import KnownRuns
from stager.service.lifetime import Lifetime
from stager.service.run_service import RunService
from stager.worker import Called, Place
from stager.worker.place import read_json, write_json

LIMITS = Limits(cores=2)
CAPACITY = 1_000_000
JOBS = ("one", "two")
WORKFLOW = Workflow(
    "w",
    {name: File(name, size_bytes=10) for name in JOBS},
    {name: Job(name, name, outputs=(JobOutput(name, name),)) for name in JOBS},
    engine="airflow",
)


class Small:
    """As much of a scheduler as the service asks for. What it is told is done at once; an attempt is staged when the test says so."""

    def __init__(self, place: Path) -> None:
        self.machine, self.place, self.now, self.brought = Machine(Policy(), LIMITS), place, 0.0, 0
        self.lifetime, self.changed = Lifetime(0.0), asyncio.Event()
        self.ended = self.lifetime.ended
        self.started: dict[str, cmd.StartAttempt] = {}
        called = Called(SimpleNamespace(state_dir=place), lambda: None)  # type: ignore[arg-type]
        self.outstanding: Any = SimpleNamespace(workflows={}, attempts=self.started)
        self.staged_calls = StagedCalls(self.outstanding, called)
        self.book = CredentialBook(lambda run, origin: {}, lambda run, origin: False)
        records = RunRecords(place / "runs.sqlite")
        self.runs = KnownRuns(self.machine, records)
        self.run_service = RunService(self.runs, records, self.book, self.put)
        self.before_asking: Callable[[], None] = lambda: None
        self.lifetime.ready.set()
        self.put(ev.PolicySet(at=0.0, policy=Policy(), limits=LIMITS))
        node = {"node": "node0", "incarnation": "i", "capacity_bytes": CAPACITY, "can_link": True}
        self.put(ev.NodeReported(at=0.0, replicas=(), transfers=(), **node))

    def put(self, event: Any, told: Callable[[], None] = lambda: None) -> None:
        self.now += 1.0
        for command in self.machine.step(msgspec.structs.replace(event, at=self.now)):
            if isinstance(command, cmd.StartAttempt):
                self.started[command.attempt] = command
            elif isinstance(command, cmd.KillAttempt):
                self.end(command.attempt, ev.Outcome.KILLED)
        told()

    def end(self, attempt: str, outcome: ev.Outcome) -> None:
        start = self.started.pop(attempt)
        made = (
            [ev.OutputMade(lfn=start.job, file=produced_file_id(start.run, start.job), generation=attempt, size_bytes=10, blake3="b")]
            if outcome is ev.Outcome.OK
            else []
        )
        self.put(ev.AttemptEnded(at=0.0, run=start.run, job=start.job, attempt=attempt, outcome=outcome, outputs=tuple(made)))

    def engine_service(self, rights: Rights | None = None) -> EngineService:
        asked: Any = self
        commits = Commits(asked, self.lifetime)
        calls = CallStates(self.runs, lambda: self.now)
        return EngineService(asked, asked, self.lifetime, commits, calls, self.staged_calls, self.run_service, self.put, rights)

    async def ask(self, question: Callable[[], Any]) -> Any:
        self.before_asking()
        return question()

    async def happening(self, since: asyncio.Event, timeout_s: float) -> None:
        await asyncio.sleep(0)

    def submit(self, workflow: Workflow = WORKFLOW) -> str:
        plan = make_plan(workflow, embedded(CAPACITY, cores=2), limits=LIMITS)
        run = self.run_service.submit(wire.SubmitRequest(workflow, plan), 0.0, lambda: None)
        self.outstanding.workflows[run] = workflow
        return run

    def stage(self, job: str) -> str:
        (attempt,) = [each.attempt for each in self.started.values() if each.job == job]
        place = Place.of(self.place, attempt)
        place.make()
        write_json(place.staged, {"staged_at_s": 0.0})
        return attempt


def played(place: Path, play: Callable[[Small, str], Coroutine[Any, Any, None]], workflow: Workflow = WORKFLOW) -> None:
    async def whole() -> None:
        small = Small(place)
        await play(small, small.submit(workflow))

    asyncio.run(whole())


def states(small: Small, run: str) -> list[str]:
    return [small.machine.state.runs[run].jobs[job].state.value for job in JOBS]


def test_a_call_is_staged_finished_and_done_and_what_is_said_again_changes_nothing(tmp_path: Path) -> None:
    async def play(small: Small, run: str) -> None:
        engine_service = small.engine_service()
        assert (await engine_service.call(run, "one", "try-1")).state is wire.CallState.WAITING
        with pytest.raises(Refused, match="not staged"):
            await engine_service.finish(run, "one", "try-1", 0.0)
        attempt = small.stage("one")
        seen = small.machine.state.events_seen
        view = await engine_service.call(run, "one", "try-1")
        assert (view.state, view.directory) == (wire.CallState.STAGED, Place.of(tmp_path, attempt).sandbox)
        assert small.machine.state.events_seen == seen
        assert (await engine_service.finish(run, "one", "try-1", 0.0)).state is wire.CallState.PUBLISHING
        small.ended.set()
        with pytest.raises(Transient, match="is ending"):
            await engine_service.finish(run, "one", "try-1", 30.0)
        told = read_json(Place.of(tmp_path, attempt).result)
        assert told is not None and told["exit_code"] == 0, "on disk before it is answered"
        small.end(attempt, ev.Outcome.OK)
        assert (await engine_service.finish(run, "one", "try-1", 0.0)).state is wire.CallState.DONE
        assert (await engine_service.fail(run, "one", "try-1", "too late")).state is wire.CallState.DONE
        assert states(small, run) == ["done", "waiting"]

    played(tmp_path, play)


def test_open_calls_are_told_page_by_page_whether_staged_or_waiting(tmp_path: Path) -> None:
    async def play(small: Small, run: str) -> None:
        engine_service = small.engine_service()
        assert await engine_service.open_calls(run) == []
        await engine_service.call(run, "two", "lost")
        await engine_service.call(run, "one", "try-1")
        attempt = small.stage("one")
        told = [(each.job, each.call, each.state.value) for each in await engine_service.open_calls(run)]
        assert told == [("two", "lost", "waiting"), ("one", "try-1", "staged")]
        (first,) = await engine_service.open_calls(run, (), 1)
        (second,) = await engine_service.open_calls(run, (first.since, first.job), 1)
        assert [first.job, second.job] == ["two", "one"] and first.since < second.since
        assert first.open_s == small.now - first.since, "by the clock of the scheduler, which is far from any other here"
        await engine_service.finish(run, "one", "try-1", 0.0)
        await engine_service.fail(run, "two", "lost", "gone")
        assert [(each.job, each.state.value) for each in await engine_service.open_calls(run)] == [("one", "publishing")]
        small.end(attempt, ev.Outcome.OK)
        assert await engine_service.open_calls(run) == []

    played(tmp_path, play)


def test_a_newer_call_takes_the_place_of_a_lost_one_which_is_told_so(tmp_path: Path) -> None:
    async def play(small: Small, run: str) -> None:
        engine_service = small.engine_service()
        await engine_service.call(run, "one", "try-1")
        small.stage("one")
        await engine_service.call(run, "one", "try-2")
        small.stage("one")
        old = await engine_service.finish(run, "one", "try-1", 0.0)
        assert old.fault is not None and old.fault.code == "call_replaced"
        assert (await engine_service.staged(run, "one", "try-2", 0.0)).state is wire.CallState.STAGED
        failed = await engine_service.fail(run, "one", "try-2", "exit code 7")
        assert failed.fault is not None and "exit code 7" in failed.fault.message and states(small, run)[0] == "waiting"

    played(tmp_path, play)


def test_a_run_takes_no_calls_while_a_person_ends_it_and_each_wrong_word_is_named(tmp_path: Path) -> None:
    async def play(small: Small, run: str) -> None:
        engine_service = small.engine_service()
        for wrong, code in (("", "invalid_input"), ("x" * 201, "invalid_input"), ("a\nb", "invalid_input")):
            with pytest.raises(InvalidInput) as caught:
                await engine_service.call(run, "one", wrong)
            assert caught.value.code == code
        for ask in (
            engine_service.call(run, "nobody", "a"),
            engine_service.staged(run, "one", "never"),
            engine_service.where(run, "nothing"),
            engine_service.call("no", "one", "a"),
        ):
            with pytest.raises(InvalidInput) as caught:
                await ask
            assert caught.value.code == "not_found"
        await engine_service.call(run, "one", "try-1")
        small.run_service.end(run, ev.RunDrained, lambda: None)
        with pytest.raises(Refused, match="is draining and takes no calls"):
            await engine_service.call(run, "two", "try-1")
        assert (await engine_service.call(run, "one", "try-1")).state is not wire.CallState.REFUSED, "it was called before"

    played(tmp_path, play)


def test_what_we_run_ourselves_nobody_calls(tmp_path: Path) -> None:
    ours = Workflow("ours", {"one": File("one", size_bytes=1)}, {"one": Job("one", "one", shell="x", outputs=(JobOutput("one", "one"),))})

    async def play(small: Small, run: str) -> None:
        with pytest.raises(InvalidInput, match="run by stager itself"):
            await small.engine_service().call(run, "one", "try-1")

    played(tmp_path, play, ours)


def test_rights_are_asked_for_again_only_where_a_call_makes_an_ended_run_go_on(tmp_path: Path) -> None:
    asked: list[str] = []

    async def rights(run: str, workflow: Workflow) -> wire.Credentials:
        asked.append(workflow.name)
        if len(asked) == 1:
            raise Denied("no more", code="origin_denied")
        return wire.Credentials({"lab": {"kind": "new"}}, {})

    async def play(small: Small, run: str) -> None:
        engine_service = small.engine_service(rights)
        await engine_service.call(run, "one", "try-1")
        await engine_service.fail(run, "one", "try-1", "exit code 7")
        await engine_service.end_run(run, ev.EngineOutcome.FAILED, "so it says")
        await engine_service.end_run(run, ev.EngineOutcome.FAILED, "so it says")
        assert small.machine.state.runs[run].outcome is cmd.RunOutcome.FAILED and not asked
        with pytest.raises(Refused, match="is failed already"):
            await engine_service.end_run(run, ev.EngineOutcome.SUCCEEDED)
        await engine_service.call(run, "one", "try-1")
        assert not asked, "a call that is known begins nothing"
        with pytest.raises(Denied):
            await engine_service.call(run, "one", "try-2")
        assert small.machine.state.runs[run].outcome is cmd.RunOutcome.FAILED, "nothing has begun"
        await engine_service.call(run, "one", "try-2")
        assert asked == ["w", "w"] and small.book.configs == {(run, "lab"): {"kind": "new"}}
        assert small.machine.state.runs[run].outcome is None and states(small, run) == ["running", "waiting"]

    played(tmp_path, play)


def test_what_comes_while_an_attempt_ends_is_not_taken_for_a_call_that_was_never_staged(tmp_path: Path) -> None:
    async def play(small: Small, run: str) -> None:
        engine_service = small.engine_service()
        await engine_service.call(run, "one", "try-1")
        attempt = small.stage("one")
        looks = iter((lambda: None, lambda: small.end(attempt, ev.Outcome.OK)))

        def forgotten() -> None:
            """Its end is told and its directory gone between the two looks."""
            Place.of(tmp_path, attempt).drop()
            next(looks, lambda: None)()

        small.before_asking = forgotten
        assert (await engine_service.finish(run, "one", "try-1", 0.0)).state is wire.CallState.DONE

    played(tmp_path, play)


def test_a_run_that_ends_between_the_question_and_the_call_is_asked_for_again(tmp_path: Path) -> None:
    async def play(small: Small, run: str) -> None:
        engine_service = small.engine_service()
        questions = iter((lambda: None, lambda: small.put(ev.EngineRunEnded(at=0.0, run=run, outcome=ev.EngineOutcome.FAILED))))
        small.before_asking = lambda: next(questions, lambda: None)()
        with pytest.raises(Transient, match="ended just now"):
            await engine_service.call(run, "one", "try-1")
        assert (await engine_service.call(run, "one", "try-1")).state is wire.CallState.WAITING

    played(tmp_path, play)


def test_a_file_is_told_of_by_its_standing_and_its_nodes(tmp_path: Path) -> None:
    async def play(small: Small, run: str) -> None:
        engine_service = small.engine_service()
        assert (await engine_service.where(run, "one")).standing == "not_made"
        await engine_service.call(run, "one", "try-1")
        small.end(small.stage("one"), ev.Outcome.OK)
        found = await engine_service.where(run, "one")
        assert (found.standing, found.nodes, found.size_bytes) == ("safe", ["node0"], 10)

    played(tmp_path, play)
