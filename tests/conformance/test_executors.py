"""Both executors keep the same promises: jobs here, and jobs on hosts of a pool. Real schedulers, nodes, workers and reapers, which are
killed by -9.

One rule: each test is about both, unless it kills what only one of them has.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stager import wire
from stager.client import Client
from stager.model.files import File
from stager.model.workflow import Workflow
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.state_dir import StateDir
from tests.e2e.nodes_rig import batches_of, given_in
from tests.e2e.service_rig import Rig
from tests.testbed.pool import Pool
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.slow
SECRET = "hush-hush-in-no-message"


class Bed:
    """A scheduler, and where its jobs run: here, or on two hosts of three cores together."""

    def __init__(self, place: Path, *, on_hosts: bool) -> None:
        self.rig = Rig(place)
        self.pool = Pool(place / "pool") if on_hosts else None
        self.store = self.rig.stager.state_dir / "node"

    def client(self) -> Client:
        """Of the living scheduler, or of one that is started now."""
        if self.pool is None:
            return self.rig.client()
        if not self.pool.hosts:
            self.store.mkdir(parents=True, mode=0o700)
            self.pool.start()
            for name, cores in (("h1", 1), ("h2", 2)):
                self.pool.host(name, cores, {"node0": self.store})
        return self.rig.client(STAGER_POOL=self.pool.address)

    def scratches(self) -> list[Path]:
        return [self.rig.stager.state_dir] if self.pool is None else [host.scratch for host in self.pool.hosts.values()]

    def reaper_pids(self) -> list[int]:
        return self.rig.stager.reaper_pids() + [pid for host in self.hosts() for pid in host.reaper_pids()]

    def hosts(self) -> list[Any]:
        return list(self.pool.hosts.values()) if self.pool is not None else []

    def kill_scheduler(self) -> None:
        pid = self.rig.stager.scheduler_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.rig.stager.scheduler_pid() is None, "the scheduler's end")

    def given(self, kind: type[Any]) -> list[Any]:
        return given_in(batches_of(StateDir(self.rig.stager.state_dir)), kind)

    def told(self, kind: type[Any]) -> list[Any]:
        batches = batches_of(StateDir(self.rig.stager.state_dir))
        return [event for batch in batches for event in batch.events if isinstance(event, kind)]

    def until(self, condition: Any, what: str) -> Any:
        try:
            return self.rig.until(condition, what)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.pool.log_text() if self.pool else ''}") from None

    def finished(self, run: str) -> str:
        try:
            return self.rig.finished(self.client(), run)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.pool.log_text() if self.pool else ''}") from None

    def end(self) -> None:
        """Jobs that wait go on, so that their run can end."""
        self.rig.gate.touch()
        try:
            self.rig.end()
        finally:
            if self.pool is not None:
                self.pool.end()


@pytest.fixture(params=["here", "hosts"])
def bed(request: pytest.FixtureRequest, short_dir: Path) -> Iterator[Bed]:
    bed = Bed(short_dir, on_hosts=request.param == "hosts")
    yield bed
    bed.end()


@pytest.fixture
def pooled(short_dir: Path) -> Iterator[Bed]:
    bed = Bed(short_dir, on_hosts=True)
    yield bed
    bed.end()


def one(rig: Rig, shell: str, **more: Any) -> Workflow:
    return rig.workflow("one", [rig.source("in", b"given\n"), rig.final("out")], [rig.job("j", shell, ("in",), ("out",), **more)])


def made(bed: Bed, name: str = "out") -> bytes:
    return (bed.rig.data / "out" / name).read_bytes()


def nothing_left(bed: Bed) -> bool:
    """Logs are in the state directory, wherever the job ran."""
    logs = [path for host in bed.hosts() for path in host.scratch.glob("logs/*/*")]
    return not (bed.reaper_pids() or logs) and not any(
        (scratch / "attempts").is_dir() and os.listdir(scratch / "attempts") for scratch in bed.scratches()
    )


def test_a_job_runs_and_leaves_only_its_outputs_and_its_logs(bed: Bed) -> None:
    client = bed.client()
    run = bed.rig.submit(client, one(bed.rig, "echo said; echo complained >&2; tr a-z A-Z < in > out"))
    assert bed.finished(run) == "succeeded" and made(bed) == b"GIVEN\n"
    assert {log.stream: log.text for log in client.run(run).logs("j").logs} == {"stdout": "said\n", "stderr": "complained\n"}
    bed.until(lambda: nothing_left(bed), "the sandbox to go")


def test_an_exit_code_comes_with_what_the_job_printed(bed: Bed) -> None:
    client = bed.client()
    run = bed.rig.submit(client, one(bed.rig, "echo why; exit 7"))
    assert bed.finished(run) == "failed"
    job = client.run(run).jobs()[0]
    assert job.exit_code == 7 and job.fault is not None and job.fault.code == "job_failed"
    assert "why\n" in [log.text for log in client.run(run).logs("j").logs]


def test_a_cancelled_run_ends_its_jobs(bed: Bed) -> None:
    client = bed.client()
    run = bed.rig.submit(client, bed.rig.three(held=True))
    bed.until(lambda: bed.rig.ran() == {"first": 1, "second": 1}, "both jobs")
    client.run(run).cancel()
    assert bed.finished(run) == "cancelled"
    bed.until(lambda: nothing_left(bed), "the jobs to end")
    assert bed.rig.ran() == {"first": 1, "second": 1}


def test_an_attempt_waits_for_space_and_goes_on_when_it_is_granted(bed: Bed) -> None:
    client = bed.client()
    run = bed.rig.submit(client, one(bed.rig, "head -c 5000000 /dev/zero > out"))
    assert bed.finished(run) == "succeeded" and made(bed) == bytes(5_000_000)
    assert [grant.attempt for grant in bed.given(cmd.GrantSpace)] == [event.attempt for event in bed.told(ev.AttemptWaits)] != []
    assert bed.rig.ran() == {"j": 1}


def test_what_a_running_job_prints_is_read_as_it_comes(bed: Bed) -> None:
    client = bed.client()
    run = bed.rig.submit(client, one(bed.rig, f"echo first; until test -e {bed.rig.gate}; do sleep 0.05; done; echo second; cp in out"))

    def text() -> str:
        return "".join(log.text for log in client.run(run).logs("j").logs)

    bed.until(lambda: text() == "first\n", "its first line")
    bed.rig.gate.touch()
    assert bed.finished(run) == "succeeded" and text() == "first\nsecond\n"


def test_a_killed_scheduler_takes_up_what_runs_and_what_has_ended(bed: Bed) -> None:
    run = bed.rig.submit(bed.client(), bed.rig.three(held=True))
    bed.until(lambda: bed.rig.ran() == {"first": 1, "second": 1}, "both jobs")
    bed.kill_scheduler()
    bed.client()
    bed.kill_scheduler()
    bed.rig.gate.touch()
    bed.until(lambda: not bed.reaper_pids(), "both jobs' ends")
    assert bed.finished(run) == "succeeded" and made(bed, "all") == b"ONE\nTWO\n"
    assert bed.rig.ran() == {"first": 1, "second": 1, "join": 1}


def test_a_restart_that_forgot_the_environment_adopts_all_the_same(bed: Bed) -> None:
    workflow = one(bed.rig, f"until test -e {bed.rig.gate}; do sleep 0.05; done; echo $TOKEN > out", env_pass=("TOKEN",))
    credentials = wire.Credentials(bed.rig.credentials(workflow).origins, {"TOKEN": SECRET})
    run = bed.rig.submit(bed.client(), workflow, credentials)
    bed.until(lambda: bed.rig.ran() == {"j": 1}, "the job")
    bed.kill_scheduler()
    client = bed.client()
    bed.rig.gate.touch()
    bed.until(lambda: not bed.reaper_pids(), "the job's end")
    bed.until(lambda: client.run(run).jobs()[0].state == "done", "its outputs")
    assert bed.rig.ran() == {"j": 1}


def test_two_hundred_jobs_at_once(bed: Bed) -> None:
    rig, names = bed.rig, [f"f{number:03}" for number in range(200)]
    files = [rig.source("in", b"given\n"), *(File(name, size_bytes=10) for name in names), rig.final("all", 10_000)]
    jobs = [rig.job(f"j-{name}", f"echo {name} > {name}", ("in",), (name,)) for name in names]
    run = rig.submit(
        bed.client(), rig.workflow("many", files, [*jobs, rig.job("all", f"cat {' '.join(names)} > all", tuple(names), ("all",))])
    )
    assert bed.finished(run) == "succeeded"
    assert made(bed, "all").decode().split() == names and set(bed.rig.ran().values()) == {1} and len(bed.rig.ran()) == 201


def test_a_job_is_held_to_its_sandbox_and_to_its_memory(bed: Bed) -> None:
    client, hold = bed.client(), "python3 -c 'import time; held = bytearray(80 << 20); time.sleep(60)'"
    strays = f"(echo x > {bed.rig.data}/stray) || true; tr a-z A-Z < in > out"
    held = bed.rig.submit(client, one(bed.rig, strays, isolate=True))
    assert bed.finished(held) == "succeeded" and made(bed) == b"GIVEN\n" and not (bed.rig.data / "stray").exists()
    run = bed.rig.submit(client, bed.rig.workflow("large", [], [bed.rig.job("j", hold, memory_limit_bytes=40_000_000)]))
    assert bed.finished(run) == "failed"
    [fault] = [event.fault for event in bed.told(ev.AttemptEnded) if event.run == run]
    assert fault.code == "memory_exceeded" and "where memory: 40 MB is declared" in fault.message


def test_a_killed_worker_comes_back_and_adopts(pooled: Bed) -> None:
    run = pooled.rig.submit(pooled.client(), pooled.rig.three(held=True))
    pooled.until(lambda: pooled.rig.ran() == {"first": 1, "second": 1}, "both jobs")
    for host in pooled.hosts():
        host.kill_worker()
    pooled.rig.gate.touch()
    assert pooled.finished(run) == "succeeded" and made(pooled, "all") == b"ONE\nTWO\n"
    assert pooled.rig.ran() == {"first": 1, "second": 1, "join": 1}
    assert not pooled.told(ev.HostLost), "it was away for less than 15 s"


def test_a_killed_pool_comes_back_and_is_asked_the_same(pooled: Bed) -> None:
    """Even if it is away for so long that the client of Dask gives it up; the kill matrix has those that come back at once."""
    run = pooled.rig.submit(pooled.client(), pooled.rig.three(held=True))
    pooled.until(lambda: pooled.rig.ran() == {"first": 1, "second": 1}, "both jobs")
    assert pooled.pool is not None
    pooled.pool.kill_scheduler()
    pooled.rig.gate.touch()
    pooled.until(lambda: not pooled.reaper_pids(), "both jobs' ends, while nobody can be asked")
    log = pooled.rig.stager.state_dir / "scheduler.log"
    pooled.until(lambda: "does not answer, and is tried again" in log.read_text(), "the pool to be given up")
    pooled.pool.start()
    assert pooled.finished(run) == "succeeded" and made(pooled, "all") == b"ONE\nTWO\n"
    assert pooled.rig.ran() == {"first": 1, "second": 1, "join": 1}


def test_a_killed_stager_worker_takes_its_process_along_and_its_jobs_not(pooled: Bed) -> None:
    run = pooled.rig.submit(pooled.client(), one(pooled.rig, f"until test -e {pooled.rig.gate}; do sleep 0.05; done; cp in out"))
    pooled.until(lambda: pooled.rig.ran() == {"j": 1}, "the job")
    host = next(each for each in pooled.hosts() if each.reaper_pids())
    worker = host.worker_pid()
    host.server.kill()
    pooled.until(lambda: not Path(f"/proc/{worker}").exists(), "its process to end")
    pooled.rig.gate.touch()
    pooled.until(lambda: not host.reaper_pids(), "the job's end")
    host.server.start()
    assert pooled.finished(run) == "succeeded" and pooled.rig.ran() == {"j": 1}


def test_no_environment_passes_through_dask_or_lies_on_a_disk(pooled: Bed) -> None:
    gate = pooled.rig.gate
    shell = f"test $TOKEN = {SECRET[::-1]} -o -n $TOKEN; until test -e {gate}; do sleep 0.05; done; cp in out"
    workflow = one(pooled.rig, shell, env_pass=("TOKEN",))
    credentials = wire.Credentials(pooled.rig.credentials(workflow).origins, {"TOKEN": SECRET})
    run = pooled.rig.submit(pooled.client(), workflow, credentials)
    pooled.until(lambda: pooled.rig.ran() == {"j": 1}, "the job")
    assert pooled.pool is not None
    seen = asyncio.run(dask_state(pooled.pool.address))
    assert "stager-" in seen and "briefs.sock" in seen, "nothing of the attempt was found in Dask, so this test would find nothing"
    gate.touch()
    assert pooled.finished(run) == "succeeded"
    assert SECRET not in seen
    places = [pooled.pool.place, pooled.rig.stager.state_dir]
    holding = [path for place in places for path in place.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert not holding


async def dask_state(address: str) -> str:
    """All that the Dask scheduler and its workers know, tasks with what they are to run and all."""
    from distributed import Client as Dask

    def tasks(dask_scheduler: Any) -> list[str]:
        return [f"{key} {task.run_spec!r} {getattr(task.run_spec, 'args', '')!r}" for key, task in dask_scheduler.tasks.items()]

    make: Any = Dask
    async with make(address, asynchronous=True, set_as_default=False) as client:
        parts = [await client.run_on_scheduler(tasks), await client.get_scheduler_logs(), await client.get_worker_logs()]
        parts.append(await client.scheduler.get_story(keys_or_stimuli=[key.split(" ")[0] for key in parts[0]]))
        return "\n".join(map(repr, parts))
