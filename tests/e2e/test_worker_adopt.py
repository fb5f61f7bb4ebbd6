"""What dies while an attempt is under way, and what is found of it after: the scheduler, the reaper, the node, the line."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.ionode import IoNode as NodeClient
from stager.model.errors import InvalidInput, Refused, StagerError, Transient
from stager.worker import AttemptResult, AttemptSpec, Outcome, Sight
from stager.worker.reaper import is_held
from tests.e2e.worker_rig import Rig, attempt, ended, output
from tests.testbed.ionode import IoNode
from tests.testbed.places import PROJECT
from tests.testbed.processes import is_alive
from tests.testbed.waiting import wait_until

# A scheduler that starts one attempt and is then killed.
SCHEDULER = """
import asyncio, sys
from pathlib import Path
from stager.adapters.ionode import IoNode
from stager.worker import AttemptInput, AttemptOutput, AttemptSpec, Worker
state, socket, token, incarnation, binary, script, file_id, generation = sys.argv[1:]
spec = AttemptSpec(attempt_id="a1", run_id="r1", job_id="job one", argv=("/bin/sh", "-c", script),
                   reserve_bytes=1 << 20, env={"TOKEN": "hush-hush"},
                   inputs=(AttemptInput(file_id, generation, "in"),), outputs=(AttemptOutput("o-made", "a1", "made"),))
node = IoNode(Path(socket), Path(token).read_text().strip(), epoch=1, incarnation=incarnation)
asyncio.run(Worker(Path(state), node, binary=binary, inherited={}, epoch=1).run(spec))
"""
MADE = output("made")


@pytest.fixture
def rig(ionode: Callable[..., IoNode], short_dir: Path) -> Iterator[Rig]:
    made = Rig(ionode(), short_dir / "state", short_dir / "home")
    os.mkfifo(made.state_dir / "go")
    yield made
    lock = made.attempt_dir("a1") / "lock"
    if lock.exists() and asyncio.run(made.worker(made.client()).kill("a1")):
        wait_until(lambda: made.worker(made.client()).sight_of("a1") is not Sight.LIVING, "the end of what the test left")


def orphaned(rig: Rig) -> None:
    """An attempt whose scheduler was killed by -9 while its job waited for `go`; what the job makes shows how often it ran."""
    given = rig.stored(b"given\n", "in")
    script = f"echo ran >> {rig.state_dir}/runs; echo > ready; read x < {rig.state_dir}/go; cat in > made"
    place = rig.node.rendezvous
    words = [str(rig.state_dir), place["socket"], place["token_file"], place["incarnation"], rig.worker(rig.client()).binary, script]
    env = os.environ | {"PYTHONPATH": str(PROJECT)}
    scheduler = subprocess.Popen([sys.executable, "-c", SCHEDULER, *words, given.file_id, given.generation], env=env)
    try:
        wait_until(lambda: scheduler.poll() is not None or (rig.attempt_dir("a1") / "sandbox" / "ready").exists(), "the job")
    finally:
        scheduler.kill()
        scheduler.wait()


def runs(rig: Rig) -> int:
    return len((rig.state_dir / "runs").read_text().splitlines()) if (rig.state_dir / "runs").exists() else 0


def go(rig: Rig) -> None:
    (rig.state_dir / "go").write_text("x\n")


def reaper_pid(rig: Rig) -> int:
    return int((rig.attempt_dir("a1") / "lock").read_text())


def adopt(rig: Rig) -> AttemptResult:
    async def timeline() -> AttemptResult:
        return await ended(rig.worker(rig.client()).adopt("a1"))

    return asyncio.run(timeline())


def assert_done_once(rig: Rig, result: AttemptResult) -> None:
    assert (result.outcome, result.fault) == (Outcome.OK, None)
    assert rig.content(MADE) == b"given\n" and runs(rig) == 1
    assert rig.leases() == [] and rig.node.get("/v1/state")["reservations"] == []
    assert not (rig.attempt_dir("a1") / "sandbox").exists()


def test_a_living_attempt_is_taken_up(rig: Rig) -> None:
    orphaned(rig)

    async def timeline() -> AttemptResult:
        worker = rig.worker(rig.client())
        assert worker.sight_of("a1") is Sight.LIVING
        adopting = asyncio.create_task(worker.adopt("a1"))
        await asyncio.to_thread(go, rig)
        return await ended(adopting)  # type: ignore[arg-type]

    assert_done_once(rig, asyncio.run(timeline()))
    assert rig.worker(rig.client()).sight_of("a1") is Sight.FINISHED


def test_an_attempt_that_ended_meanwhile_is_finished(rig: Rig) -> None:
    orphaned(rig)
    go(rig)
    wait_until(lambda: rig.worker(rig.client()).sight_of("a1") is Sight.FINISHED, "the job's end")
    assert not rig.is_stored(MADE)
    result = adopt(rig)
    assert_done_once(rig, result)
    assert adopt(rig) == result


def secrets_on_disk(rig: Rig) -> list[Path]:
    return [path for path in rig.state_dir.rglob("*") if path.is_file() and b"hush-hush" in path.read_bytes()]


def test_an_attempt_whose_reaper_died_too_is_lost(rig: Rig) -> None:
    orphaned(rig)
    assert not secrets_on_disk(rig), "while the job runs"
    os.kill(reaper_pid(rig), signal.SIGKILL)
    wait_until(lambda: rig.worker(rig.client()).sight_of("a1") is Sight.GONE, "the reaper's end")
    result = adopt(rig)
    assert result.outcome is Outcome.LOST and result.fault is not None and result.fault.code == "attempt_lost"
    assert rig.leases() == [] and not (rig.attempt_dir("a1") / "sandbox").exists() and not rig.is_stored(MADE)
    assert not secrets_on_disk(rig)


def test_an_adopted_attempt_can_be_ended(rig: Rig) -> None:
    orphaned(rig)

    async def timeline() -> AttemptResult:
        worker = rig.worker(rig.client())
        adopting = asyncio.create_task(worker.adopt("a1"))
        assert await worker.kill("a1") is True
        result = await ended(adopting)  # type: ignore[arg-type]
        assert await worker.kill("a1") is False
        return result

    pid = reaper_pid(rig)
    assert asyncio.run(timeline()).outcome is Outcome.KILLED
    # Its result is its last word, its end comes a moment after.
    wait_until(lambda: not is_alive(pid), "the reaper's end")
    assert rig.leases() == [] and not rig.is_stored(MADE)


def test_our_own_attempt_can_be_ended(rig: Rig) -> None:
    async def timeline() -> AttemptResult:
        worker = rig.worker(rig.client())
        running = asyncio.create_task(worker.run(attempt("echo > ready; sleep 1000")))
        await asyncio.to_thread(wait_until, lambda: (rig.attempt_dir("a1") / "sandbox" / "ready").exists(), "the job")
        with pytest.raises(Refused):
            await worker.run(attempt("true"))
        with pytest.raises(Refused):
            await worker.abandon("a1")
        assert await worker.kill("a1")
        return await ended(running)  # type: ignore[arg-type]

    result = asyncio.run(timeline())
    assert result.outcome is Outcome.KILLED and result.fault is not None and result.fault.code == "killed" and rig.leases() == []


def test_an_attempt_that_another_runs_already_is_waited_for(rig: Rig) -> None:
    """Whoever it is holds the lock; our reaper steps back, and the other's result is taken."""
    place = rig.attempt_dir("a1")
    place.mkdir(parents=True)
    script = f"flock {place}/lock sh -c 'read x < {rig.state_dir}/go; echo \"$1\" > {place}/result.json' sh"
    other = subprocess.Popen(["sh", "-c", f'{script} "$1"', "sh", '{"outcome": "exited", "exit_code": 0}'])

    async def timeline() -> AttemptResult:
        await asyncio.to_thread(wait_until, lambda: is_held(str(place / "lock")), "the other")
        running = asyncio.create_task(rig.worker(rig.client()).run(attempt("echo ours > made", outputs=())))
        log = rig.stderr_log()
        await asyncio.to_thread(wait_until, lambda: log.exists() and "is running already" in log.read_text(), "our reaper's end")
        await asyncio.to_thread(go, rig)
        return await ended(running)  # type: ignore[arg-type]

    result = asyncio.run(timeline())
    assert other.wait() == 0
    assert result.outcome is Outcome.OK and rig.stderr_log().read_text().count("is running already") == 1


def test_an_attempt_nobody_began_is_lost(rig: Rig) -> None:
    assert adopt(rig).outcome is Outcome.LOST
    assert rig.worker(rig.client()).sight_of("a1") is Sight.GONE
    with pytest.raises(InvalidInput):
        asyncio.run(rig.worker(rig.client()).commit("a1", 0))


class BrokenLine:
    """The real node behind a line that breaks at one call, before the node hears it or after it has answered."""

    def __init__(self, client: NodeClient, at: str, *, heard: bool) -> None:
        self.client, self.at, self.heard = client, at, heard

    async def _call(self, name: str, *words: Any) -> Any:
        if name == self.at and not self.heard:
            raise Transient("the line broke", code="connection_lost")
        answer = await getattr(self.client, name)(*words)
        if name == self.at:
            raise Transient("the line broke", code="connection_lost")
        return answer

    async def stage_in(self, attempt_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._call("stage_in", attempt_id, body)

    async def stage_out(self, attempt_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._call("stage_out", attempt_id, body)

    async def release(self, attempt_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._call("release", attempt_id, body)


def copying(rig: Rig) -> AttemptSpec:
    script = f"echo ran >> {rig.state_dir}/runs; cat in > made"
    return attempt(script, inputs=(rig.stored(b"given\n", "in"),), outputs=(MADE,))


@pytest.mark.parametrize("heard", [False, True], ids=["unheard", "heard"])
@pytest.mark.parametrize("at", ["stage_in", "stage_out"])
def test_after_a_broken_line_the_attempt_is_done_once_or_given_up_whole(rig: Rig, at: str, heard: bool) -> None:
    async def timeline() -> AttemptResult:
        client = rig.client()
        with pytest.raises(StagerError) as caught:
            await rig.worker(BrokenLine(client, at, heard=heard)).run(copying(rig))  # type: ignore[arg-type]
        assert caught.value.code == "connection_lost"
        return await ended(rig.worker(client).adopt("a1"))

    result = asyncio.run(timeline())
    if at == "stage_in":
        assert result.fault is not None and (result.outcome, result.fault.code) == (Outcome.FAILED, "attempt_not_begun")
        assert runs(rig) == 0 and not rig.is_stored(MADE)
        assert rig.leases() == [] and rig.node.get("/v1/state")["reservations"] == []
    else:
        assert_done_once(rig, result)


@pytest.mark.parametrize("heard", [False, True], ids=["unheard", "heard"])
def test_after_a_broken_line_at_its_release_a_failed_attempt_has_failed_once(rig: Rig, heard: bool) -> None:
    async def timeline() -> AttemptResult:
        client = rig.client()
        spec = attempt(f"echo ran >> {rig.state_dir}/runs; exit 7", inputs=(rig.stored(b"given\n", "in"),), outputs=(MADE,))
        with pytest.raises(StagerError):
            await rig.worker(BrokenLine(client, "release", heard=heard)).run(spec)  # type: ignore[arg-type]
        return await ended(rig.worker(client).adopt("a1"))

    result = asyncio.run(timeline())
    assert (result.outcome, result.exit_code, runs(rig)) == (Outcome.FAILED, 7, 1)
    assert rig.leases() == [] and rig.node.get("/v1/state")["reservations"] == []
    assert not (rig.attempt_dir("a1") / "sandbox").exists()


def test_a_kill_before_the_start_starts_nothing(rig: Rig) -> None:
    class Slow(BrokenLine):
        async def stage_in(self, attempt_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
            assert await worker.kill(attempt_id)
            return await super().stage_in(attempt_id, body)

    worker = rig.worker(Slow(rig.client(), "", heard=False))  # type: ignore[arg-type]

    async def timeline() -> AttemptResult:
        return await ended(worker.run(copying(rig)))

    assert asyncio.run(timeline()).outcome is Outcome.KILLED
    assert runs(rig) == 0 and rig.leases() == [] and not (rig.attempt_dir("a1") / "sandbox").exists()


def test_a_job_outlives_its_node(rig: Rig) -> None:
    """The node is killed by -9 while the job reads from it by link, and comes back."""

    async def timeline() -> AttemptResult:
        client = rig.client()
        worker = rig.worker(client)
        spec = attempt(
            f"echo ran >> {rig.state_dir}/runs; echo > ready; read x < {rig.state_dir}/go; cat in > made",
            inputs=(rig.stored(b"given\n", "in"),),
            outputs=(MADE,),
        )
        running = asyncio.create_task(worker.run(spec))
        await asyncio.to_thread(wait_until, lambda: (rig.attempt_dir("a1") / "sandbox" / "ready").exists(), "the job")
        await asyncio.to_thread(rig.node.kill)
        await asyncio.to_thread(rig.node.start)
        fresh = rig.client()
        client.meet(fresh.pool.address, fresh.token, fresh.incarnation)
        await client.put_reservation("a1", 1 << 20)
        assert rig.leases() == ["a1"]
        await asyncio.to_thread(go, rig)
        return await ended(running)  # type: ignore[arg-type]

    assert_done_once(rig, asyncio.run(timeline()))
