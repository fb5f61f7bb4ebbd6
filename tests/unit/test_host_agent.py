"""The agent of a compute host: two calls for one attempt join, and what another disk was given does not begin here. A script plays the
worker; tests/conformance/test_executors.py has the real one.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stager.adapters import host_agent
from stager.adapters.briefs import Briefs, brief_from
from stager.adapters.host_agent import HostAgent, identity_of, set_free
from stager.adapters.host_words import Call, HostFacts, Step, ending_of, plain
from stager.model.errors import ErrorClass, StagerError, Transient
from stager.worker import AttemptInput, AttemptOutput, AttemptResult, AttemptSpec, Outcome, Place
from stager.worker.place import log_paths, write_json

SPEC = AttemptSpec(
    attempt_id="a-1",
    run_id="r",
    job_id="j",
    argv=("sh", "-c", "x"),
    env={"TOKEN": "hush-hush"},
    inputs=(AttemptInput("f", "g", "in"),),
    outputs=(AttemptOutput("o", "a-1", "out"),),
    reserve_bytes=10,
    timeout_s=3.0,
    unprivileged=True,
)


class Agent(HostAgent):
    """Beside no node."""

    def __init__(self, scratch: Path) -> None:
        facts = HostFacts(host="h1", node="node0", cores=1, scratch=identity_of(scratch))
        super().__init__(facts, scratch, {}, "/none")
        self.begun: list[AttemptSpec] = []
        self.go = asyncio.Event()
        self.nodes.meet = lambda *args: None  # type: ignore[method-assign]
        self.worker.run = self._run  # type: ignore[method-assign]

    async def _run(self, spec: AttemptSpec) -> AttemptResult:
        self.begun.append(spec)
        await self.go.wait()
        return AttemptResult(attempt_id=spec.attempt_id, outcome=Outcome.OK)


def call(agent: Agent, step: Step = Step.RUN, **more: Any) -> dict[str, Any]:
    given = {"attempt": "a-1", "step": step, "node": "node0", "epoch": 2, "scratch": agent.facts.scratch} | more
    return plain(Call(**given))


def played(tmp_path: Path, play: Any) -> Any:
    async def main() -> Any:
        agent, briefs = Agent(tmp_path), Briefs(tmp_path / "briefs.sock")
        await briefs.open()
        briefs.specs["a-1"] = SPEC
        try:
            return await play(agent, str(briefs.path))
        finally:
            await briefs.close()

    return asyncio.run(main())


def test_what_a_scheduler_asks_that_another_came_after_is_not_done(tmp_path: Path) -> None:
    """It came back from a long pause, and takes what the new one started for over."""

    async def play(agent: Agent, brief: str) -> tuple[bool, set[str], Any]:
        running = asyncio.create_task(agent.carry_out(call(agent, brief=brief, epoch=3)))
        while not agent.begun:
            await asyncio.sleep(0.01)
        place = Path(Place.of(tmp_path, "a-1").attempt)
        place.parent.mkdir(parents=True)
        write_json(place, SPEC.to_json())
        await agent.kill("a-1", 2)
        await agent.forget(["a-1"], 2)
        agent.under_way.clear()
        await agent.sweep([], 2)
        kept, called_off = place.exists() and not running.done(), set(agent.called_off)
        await agent.sweep(["a-1"], 4)
        stale = await agent.carry_out(call(agent, brief=brief, epoch=3))
        agent.go.set()
        await running
        return kept, called_off, stale

    kept, called_off, stale = played(tmp_path, play)
    assert kept
    assert not called_off
    assert stale["unasked"]["code"] == "stale_epoch", "the sweep of a new one is heard at once"


def test_two_calls_for_an_attempt_join_and_one_that_is_cancelled_leaves_it_alone(tmp_path: Path) -> None:
    async def play(agent: Agent, brief: str) -> None:
        asked = [asyncio.create_task(agent.carry_out(call(agent, brief=brief))) for _ in range(3)]
        while not agent.begun:
            await asyncio.sleep(0.01)
        asked[0].cancel()
        await asyncio.sleep(0)
        agent.go.set()
        answers = await asyncio.gather(*asked[1:])
        assert [ending_of("a-1", answer).attempt_id for answer in answers] == ["a-1", "a-1"]
        assert agent.begun == [SPEC], "the brief came as it was given, once"

    played(tmp_path, play)


def test_what_another_disk_was_given_is_lost_and_does_not_begin(tmp_path: Path) -> None:
    async def play(agent: Agent, brief: str) -> None:
        ending = ending_of("a-1", await agent.carry_out(call(agent, brief=brief, scratch="another")))
        assert isinstance(ending, AttemptResult) and ending.outcome is Outcome.LOST and not agent.begun

    played(tmp_path, play)


@pytest.mark.parametrize("by_call", [True, False])
def test_what_was_called_off_never_begins(tmp_path: Path, by_call: bool) -> None:
    async def play(agent: Agent, brief: str) -> None:
        if not by_call:
            await agent.kill("a-1", 2)
        ending = ending_of("a-1", await agent.carry_out(call(agent, brief=brief, called_off=by_call)))
        assert isinstance(ending, AttemptResult) and ending.outcome is Outcome.KILLED and not agent.begun

    played(tmp_path, play)


def test_an_older_scheduler_is_refused(tmp_path: Path) -> None:
    async def play(agent: Agent, brief: str) -> None:
        agent.worker.epoch = 3
        with pytest.raises(StagerError) as refused:
            ending_of("a-1", await agent.carry_out(call(agent, brief=brief)))
        assert refused.value.error_class is ErrorClass.REFUSED and refused.value.code == "stale_epoch"
        assert not agent.begun

    played(tmp_path, play)


def test_without_its_brief_an_attempt_does_not_begin(tmp_path: Path) -> None:
    async def play(agent: Agent, brief: str) -> None:
        for where, attempt in ((brief, "a-2"), (f"{brief}.gone", "a-1")):
            with pytest.raises(StagerError) as unasked:
                ending_of("a-1", await agent.carry_out(call(agent, brief=where, attempt=attempt)))
            assert unasked.value.code == "connection_lost"
        assert not agent.begun

    played(tmp_path, play)


def test_the_socket_of_briefs_is_its_users_alone(tmp_path: Path) -> None:
    async def play(agent: Agent, brief: str) -> None:
        assert Path(brief).stat().st_mode & 0o777 == 0o600
        assert await brief_from(brief, "a-1") == SPEC

    played(tmp_path, play)


def test_a_host_that_was_away_clears_away_what_is_over_and_nothing_else(tmp_path: Path) -> None:
    async def play(agent: Agent, brief: str) -> None:
        for attempt in ("a-1", "a-2"):
            Place.of(tmp_path, attempt).make()
            write_json(Place.of(tmp_path, attempt).attempt, SPEC.to_json())
        await agent.sweep(["a-1"], 2)
        assert [path.name for path in (tmp_path / "attempts").iterdir()] == ["a-1"]

    played(tmp_path, play)


def test_an_attempt_that_is_over_leaves_no_log_and_others_keep_theirs(tmp_path: Path) -> None:
    """They came to the scheduler. Two files of each attempt stayed on its host for ever."""

    async def play(agent: Agent, brief: str) -> None:
        others = replace(SPEC, attempt_id="a-2", number=2)
        for spec in (SPEC, others):
            place = Place.of(tmp_path, spec.attempt_id)
            place.make()
            write_json(place.attempt, spec.to_json())
            for path in map(Path, log_paths(tmp_path, spec)):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("said")
        await agent.forget(["a-1"], 2)
        assert sorted(path.name for path in tmp_path.glob("logs/*/*")) == ["j.2.err", "j.2.out"]
        set_free(tmp_path)
        await agent.sweep([], 2)
        assert list(tmp_path.glob("logs/*/*")) == [] and len(list(tmp_path.glob("logs/*"))) == 1
        set_free(tmp_path)
        assert list(tmp_path.glob("logs/*")) == []

    played(tmp_path, play)


@pytest.mark.parametrize("begun", [False, True])
def test_a_full_disk_fails_what_has_not_begun_and_says_nothing_of_what_has(tmp_path: Path, begun: bool) -> None:
    """It was asked for again twice a second, for as long as the disk was full, and nobody was told why."""

    async def play(agent: Agent, brief: str) -> None:
        async def full(spec: Any) -> AttemptResult:
            raise OSError(errno.ENOSPC, "No space left on device", "/scratch/h1")

        agent.worker.run = agent.worker.adopt = full  # type: ignore[method-assign]
        if begun:
            Place.of(tmp_path, "a-1").make()
            write_json(Place.of(tmp_path, "a-1").attempt, SPEC.to_json())
        answer = await agent.carry_out(call(agent, brief=brief))
        if begun:
            with pytest.raises(Transient, match="No space left on device"):
                ending_of("a-1", answer)
            return
        ending = ending_of("a-1", answer)
        assert isinstance(ending, AttemptResult) and ending.outcome is Outcome.FAILED and ending.fault is not None
        assert ending.fault.code == "start_failed" and "/scratch/h1 on host h1: No space left on device" in ending.fault.message

    played(tmp_path, play)


def test_what_is_over_and_still_runs_is_ended_before_it_goes(tmp_path: Path) -> None:
    """Its host was given up while it could not be asked, and its worker went on."""

    async def play(agent: Agent, brief: str) -> None:
        killed: list[str] = []

        async def kill(attempt: str) -> bool:
            killed.append(attempt)
            return True

        agent.worker.kill = kill  # type: ignore[method-assign]
        Place.of(tmp_path, "a-1").make()
        asked = asyncio.create_task(agent.carry_out(call(agent, brief=brief)))
        while not agent.begun:
            await asyncio.sleep(0.01)
        await agent.sweep([], 2)
        assert not killed, "it may be newer than the word of what is over"
        await agent.forget(["a-1"], 2)
        assert killed == ["a-1"] and (tmp_path / "attempts" / "a-1").exists()
        agent.go.set()
        await asked
        await gone(tmp_path / "attempts" / "a-1")
        assert not agent.called_off

    played(tmp_path, play)


async def gone(path: Path) -> None:
    async with asyncio.timeout(10):
        while path.exists():
            await asyncio.sleep(0.01)


HOLDS = """
import fcntl, os, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write(str(os.getpid()))
lock.flush()
print("held", flush=True)
time.sleep(60)
"""


def test_what_a_host_runs_that_is_over_is_ended_and_goes_at_the_first_word(tmp_path: Path) -> None:
    """It was killed, and its sandbox stayed until the host was met once more."""

    async def play(agent: Agent, brief: str) -> None:
        place = Place.of(tmp_path, "a-1")
        place.make()
        with subprocess.Popen([sys.executable, "-c", HOLDS, place.lock], stdout=subprocess.PIPE) as reaper:
            assert reaper.stdout is not None and await asyncio.to_thread(reaper.stdout.readline) == b"held\n"
            await agent.sweep([], 2)
            await gone(tmp_path / "attempts" / "a-1")
            assert await asyncio.to_thread(reaper.wait, 10) == -signal.SIGTERM

    played(tmp_path, play)


def test_a_host_has_one_scheduler_until_its_worker_is_started_anew_with_no_attempt_left(tmp_path: Path) -> None:
    async def play(agent: Agent, brief: str) -> None:
        assert agent.look("one") == plain(agent.facts) == agent.look("one")
        assert "works for another scheduler" in agent.look("other")["refused"]
        Place.of(tmp_path, "a-1").make()
        set_free(tmp_path)
        assert "refused" in agent.look("other") and agent.look("one") == plain(agent.facts)
        await agent.forget(["a-1"], 2)
        set_free(tmp_path)
        assert agent.look("other") == plain(agent.facts) and "refused" in agent.look("one")
        assert agent.look("") == plain(agent.facts), "a gateway speaks for the one service that its pool knows"

    played(tmp_path, play)


def test_a_log_is_read_in_pieces_from_any_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_agent, "LOG_PIECE_BYTES_MAX", 3)
    log = tmp_path / "logs" / "r" / "j.1.out"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"abcdef")

    async def play(agent: Agent, brief: str) -> None:
        assert await agent.read_log("r", "j", 1, "out", 2) == (6, b"cde")
        assert await agent.read_log("r", "j", 1, "err", 0) == (0, b"")

    played(tmp_path, play)


def test_neither_a_scheduler_without_a_pool_nor_a_command_imports_distributed() -> None:
    modules = "stager.service.app, stager.service.process, stager.cli.submit, stager.cli.pool, stager.cli.worker"
    code = f"import sys, {modules}; sys.exit('distributed' in sys.modules or 'dask' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
