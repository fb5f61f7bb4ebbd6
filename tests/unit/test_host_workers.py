"""What a scheduler makes of what hosts answer, and what it gives to whom. A script plays the pool; real ones are in
tests/conformance/test_executors.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.attempt_tickets import AttemptTickets
from stager.adapters.dask_pool import Heard
from stager.adapters.host_words import Asked, Call, HostFacts, told
from stager.adapters.host_workers import HostPlaces, HostWorkers
from stager.model.errors import Transient
from stager.scheduler import commands as cmd
from stager.tasks import Tasks
from stager.worker import AttemptResult, AttemptSpec, Outcome
from stager.worker.attempt import Measures

HOUR_S = 3600.0
START = cmd.StartAttempt(
    id="c1", at=0.0, cause="e1", node="node0", run="r", job="j", attempt="a-1", number=1, reserve_bytes=10, inputs=(), host="h1"
)
SPEC = AttemptSpec(attempt_id="a-1", run_id="r", job_id="j", argv=("true",))
H1 = HostFacts(host="h1", node="node0", cores=1, scratch="disk-1")


class Pool:
    """`answers`: of a host, to each call in turn."""

    address = "tcp://127.0.0.1:1"
    problem = ""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers, self.calls = list(answers), list[Call]()
        self.heard = Heard(lambda event, on_durable=None: None)
        self.tasks: Any = None
        self.is_away, self.asked = False, list[Any]()

    async def ask(self, host: str, what: Asked, *args: Any) -> None:
        if self.is_away:
            raise Transient("it is away", code="connection_lost")
        self.asked.append((host, what, args))

    async def call(self, key: str, make: Callable[[], Awaitable[Call]], host: str, cores: int) -> dict[str, Any]:
        self.calls.append(await make())
        return self.answers.pop(0)


def workers_with(pool: Pool, place: Path) -> HostWorkers:
    tickets = AttemptTickets(lambda node: None, place, 1)  # type: ignore[arg-type, return-value]
    workers = HostWorkers(pool, None, HostPlaces(place / "given", place / "logs"), tickets, epoch=1)  # type: ignore[arg-type]
    workers.commands["a-1"] = START
    return workers


def ended(outcome: Outcome = Outcome.OK, **more: Any) -> dict[str, Any]:
    return told(AttemptResult(attempt_id="a-1", outcome=outcome, **more))


@pytest.mark.parametrize("off_s", [-2 * HOUR_S, 0.0, 2 * HOUR_S])
def test_when_a_job_ended_is_told_by_our_clock_however_far_its_hosts_is_off(tmp_path: Path, off_s: float) -> None:
    """What was changed since then at its place is newer, and is not written over: a product of now seemed older than it all."""
    now = time.time()
    answer = ended(started_at_s=now + off_s - 30.0, measures=Measures(wall_s=10.0)) | {"now_s": now + off_s}
    workers = workers_with(Pool(answer), tmp_path)
    workers.facts["h1"] = H1
    said = asyncio.run(workers.run(SPEC))
    assert isinstance(said, AttemptResult) and said.started_at_s is not None
    assert abs(said.started_at_s - (now - 30.0)) < 5.0


def test_what_a_restart_finds_given_to_nobody_waits_for_its_host_and_is_not_lost(tmp_path: Path) -> None:
    """The scheduler was killed behind its journal and before its note. A host that must not run a job twice has not begun it."""
    pool = Pool(ended())
    workers = workers_with(pool, tmp_path)

    async def timeline() -> None:
        running = asyncio.create_task(workers.run(SPEC))
        await asyncio.wait([running], timeout=0.1)
        assert not workers.was_given("a-1") and not pool.calls and not workers.was_ticketed(START)
        workers.facts["h1"] = H1
        await running
        assert [call.scratch for call in pool.calls] == ["disk-1"] and workers.was_given("a-1")

    asyncio.run(timeline())


def test_a_host_that_was_away_is_told_what_is_over_when_it_is_there_again(tmp_path: Path) -> None:
    """Also what still runs there: the word of what is not over leaves that alone, since it may be newer."""
    pool = Pool()
    pool.is_away = True
    workers = workers_with(pool, tmp_path)
    workers.outstanding = lambda host: ["a-2"]

    async def timeline() -> None:
        pool.tasks = Tasks()
        await workers.forget(["a-1"])
        pool.is_away = False
        for _ in range(2):
            pool.heard.on_host(H1)
            await asyncio.sleep(0.05)
        assert pool.asked == [("h1", Asked.FORGET, (["a-1"], 1)), *[("h1", Asked.SWEEP, (["a-2"], 1))] * 2]
        pool.asked.clear()
        await workers.kill("a-1")
        assert pool.asked == [], "it is over"
        workers.commands["a-1"] = START
        await workers.kill("a-1")
        assert pool.asked == [("h1", Asked.KILL, ("a-1", 1))], "with its epoch: its host obeys the newest"

    asyncio.run(timeline())


def test_where_there_is_no_room_for_a_note_or_an_output_an_attempt_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Prints(Pool):
        async def ask(self, host: str, what: Asked, *args: Any) -> Any:
            return 3, b"abc"

    workers = workers_with(Prints(), tmp_path)
    workers.facts["h1"] = H1
    for name in ("given", "logs"):
        (tmp_path / name).write_text("a file, where a directory cannot be made")
    with pytest.raises(OSError):
        workers.given_to(START)
    asyncio.run(workers.bring_logs("a-1"))
    assert "the output of attempt a-1 does not come" in caplog.text
    workers.places.given.unlink()
    assert not workers.was_ticketed(START) and not workers.places.given.exists(), "it was given to nobody, so nothing is noted of it"
