"""The worker's side of the reaper: start, wait, lock, fence, end; with the real program."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stager.worker import AttemptSpec, Outcome, Place, reaper
from stager.worker.attempt import fault_of, measures_of
from stager.worker.place import read_json
from stager.worker.reaper import Reaper
from tests.testbed.places import PROJECT, ionode_binary
from tests.testbed.processes import is_alive
from tests.testbed.waiting import wait_until


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place.of(tmp_path, "a1")
    made.make()
    os.mkdir(made.sandbox)
    return made


def orders(place: Place, script: str, **fields: object) -> dict[str, object]:
    spec = AttemptSpec(attempt_id="a1", run_id="r", job_id="j", argv=("/bin/sh", "-c", script))
    env = {"PATH": "/usr/bin:/bin"}
    logs = (f"{place.directory}/out", f"{place.directory}/err")
    asked = reaper.reaper_spec(spec, place, env, [], logs, 1)
    assert "unprivileged" not in asked
    assert reaper.reaper_spec(replace(spec, unprivileged=True), place, env, [], logs, 1) == asked | {"unprivileged": True}
    assert not {"isolate", "scratch_dir", "origins", "watch", "memory_limit_bytes"} & asked.keys()
    held = replace(spec, isolate=True, origins=("/data/../data",), watch=True, memory_limit_bytes=5)
    more = {"isolate": True, "scratch_dir": f"{place.sandbox}/.tmp", "origins": ["/data"], "watch": True, "memory_limit_bytes": 5}
    assert reaper.reaper_spec(held, place, env, [], logs, 1) == asked | more
    return asked | fields


def start(place: Place, script: str, **fields: object) -> Reaper:
    return Reaper(str(ionode_binary()), orders(place, script, **fields), f"{place.directory}/err")


def test_the_golden_messages_are_ours(place: Place) -> None:
    golden = PROJECT / "tests" / "conformance" / "wire"
    ours, theirs = orders(place, "true"), read_json(f"{golden}/reaper_spec.json") or {}
    assert ours.keys() == theirs.keys() | {"sandbox_dir"}
    result = read_json(f"{golden}/reaper_result.json") or {}
    assert fault_of(result, "j", "") == (Outcome.OK, None)
    seen = measures_of(result, None)
    assert (seen.wall_s, seen.memory_peak_bytes, seen.chars_read, seen.processes) == (12.25, 52428800, 2097152, 3)


def started(place: Place) -> bool:
    return os.path.exists(f"{place.sandbox}/ready")


def test_the_result_is_there_when_the_reaper_has_ended(place: Place) -> None:
    async def timeline() -> int:
        return await start(place, "exit 3").wait()

    assert asyncio.run(timeline()) == 0
    result = read_json(place.result)
    assert result is not None and (result["outcome"], result["exit_code"]) == ("exited", 3)
    assert not reaper.is_held(place.lock)


def test_the_reaper_is_no_child_of_our_session_and_says_what_it_cannot_do(place: Place) -> None:
    async def timeline() -> int:
        child = start(place, "true", argv=[])
        assert os.getsid(child.pid) == child.pid
        return await child.wait()

    assert asyncio.run(timeline()) == reaper.EXIT_USAGE
    assert "argv names no program" in Path(f"{place.directory}/err").read_text()
    assert read_json(place.result) is None


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EMFILE])
def test_waiting_does_not_need_a_pidfd(place: Place, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Kernels before 5.3; and what is running must not be told of as not started for want of a descriptor."""

    def unknown(pid: int, flags: int = 0) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", unknown)

    async def timeline() -> int:
        child = start(place, "echo > ready; sleep 1000")
        await asyncio.to_thread(wait_until, lambda: started(place), "the job")
        assert await reaper.terminate_holder(place.lock)
        return await child.wait()

    assert asyncio.run(timeline()) == 0
    assert (read_json(place.result) or {})["outcome"] == "killed"


def test_only_the_holder_of_the_lock_is_ended(place: Place) -> None:
    """A pid in a lock that nobody holds may be anybody's by now."""
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        Path(place.lock).write_text(f"{bystander.pid}\n")
        assert asyncio.run(reaper.terminate_holder(place.lock)) is False
        assert not reaper.signal_holder(place.lock, bystander.pid)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    assert asyncio.run(reaper.terminate_holder(f"{place.directory}/no-lock")) is False


def test_the_holder_is_not_ended_under_another_pid(place: Place) -> None:
    async def timeline() -> None:
        child = start(place, "echo > ready; read line < ../go")
        await asyncio.to_thread(wait_until, lambda: started(place), "the job")
        bystander = subprocess.Popen(["sleep", "1000"])
        try:
            assert not reaper.signal_holder(place.lock, bystander.pid)
            assert bystander.poll() is None
        finally:
            bystander.kill()
            bystander.wait()
        child.terminate()
        await child.wait()

    os.mkfifo(f"{place.directory}/go")
    asyncio.run(timeline())


def test_a_living_reaper_is_waited_for_by_its_lock(place: Place) -> None:
    os.mkfifo(f"{place.directory}/go")

    async def timeline() -> list[str]:
        order: list[str] = []
        child = start(place, "echo > ready; read line < ../go")
        await asyncio.to_thread(wait_until, lambda: started(place), "the job")
        assert reaper.is_held(place.lock) and reaper.fence(place) is None

        async def adopted() -> None:
            await reaper.wait_until_free(place.lock)
            order.append("free")

        waiting = asyncio.create_task(adopted())
        await asyncio.to_thread(wait_until, lambda: any(t.name == "stager-wait" for t in threading.enumerate()), "the thread")
        order.append("go")
        Path(f"{place.directory}/go").write_text("x\n")
        await waiting
        await child.wait()
        return order

    assert asyncio.run(timeline()) == ["go", "free"]
    assert read_json(place.result) is not None


def test_a_fenced_attempt_never_starts(place: Place) -> None:
    """The scheduler died between the spawn and the reaper's first step; the one that came after it gave the attempt up."""
    assert (reaper.fence(place) or {})["code"] == "not_begun"

    async def timeline() -> int:
        return await start(place, "echo > ready").wait()

    assert asyncio.run(timeline()) == reaper.EXIT_TAKEN
    assert not started(place)
    assert (reaper.fence(place) or {})["code"] == "not_begun"


def test_of_a_reaper_that_took_its_lock_and_is_gone_nobody_knows_what_its_job_did(place: Place) -> None:
    Path(place.lock).write_text("4242\n")
    assert (reaper.fence(place) or {})["code"] == "fenced"


def test_fencing_keeps_a_result_that_is_there(place: Place) -> None:
    Path(place.result).write_text(json.dumps({"outcome": "exited", "exit_code": 0}))
    assert reaper.fence(place) == {"outcome": "exited", "exit_code": 0}


def test_cancelling_the_wait_leaves_the_job_alone(place: Place) -> None:
    os.mkfifo(f"{place.directory}/go")

    async def timeline() -> int:
        child = start(place, "echo > ready; read line < ../go; exit 4")
        waiting = asyncio.create_task(child.wait())
        await asyncio.to_thread(wait_until, lambda: started(place), "the job")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return child.pid

    pid = asyncio.run(timeline())
    assert is_alive(pid) and reaper.is_held(place.lock)
    Path(f"{place.directory}/go").write_text("x\n")
    os.waitpid(pid, 0)
    assert (read_json(place.result) or {})["exit_code"] == 4


def test_a_named_control_group_reaches_the_reaper(place: Place) -> None:
    tops = [top for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if os.path.exists(f"{top}/cgroup.controllers")]
    if os.geteuid() != 0 or not tops:
        pytest.skip("only root makes control groups, and cgroup v2 has to be mounted")
    group = Path(tops[0], f"stager-test-{os.getpid()}")
    group.mkdir()
    try:
        asked = orders(place, "grep ^0:: /proc/self/cgroup", memory_limit_bytes=10**9)

        async def timeline() -> int:
            return await Reaper(str(ionode_binary()), asked, f"{place.directory}/err", str(group)).wait()

        assert asyncio.run(timeline()) == 0
        assert f"/{group.name}/stager-" in Path(f"{place.directory}/out").read_text()
    finally:
        group.rmdir()
