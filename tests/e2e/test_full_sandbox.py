"""A job that fills the disk of its sandbox: a real small file system, a real node, a real job."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stager.model.errors import SANDBOX_FULL_CODE
from stager.worker import AttemptResult, Outcome, Place
from stager.worker.environment_tree import digest_of_tree
from stager.worker.place import write_json
from tests.e2e.worker_rig import Rig, attempt, ended, output
from tests.testbed.ionode import IoNode
from tests.testbed.waiting import wait_until

DISK_BYTES = 40 << 20


@pytest.fixture
def rig(ionode: Callable[..., IoNode], short_dir: Path) -> Iterator[Rig]:
    """Its attempts lie on a disk of their own."""
    state = short_dir / "state"
    state.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", state], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield Rig(ionode(), state, short_dir / "home")
    finally:
        # The reaper of an attempt may be there for a moment after it has told of its end.
        wait_until(lambda: subprocess.run(["umount", state], check=False).returncode == 0, "the file system to be left by all")


def run(rig: Rig, script: str, name: str = "a1") -> AttemptResult:
    async def timeline() -> AttemptResult:
        spec = attempt(script, name, outputs=(output("made"),), reserve_bytes=1 << 16)
        return await ended(rig.worker(rig.client(), {"PATH": os.environ["PATH"]}).run(spec))

    return asyncio.run(timeline())


def test_a_job_that_filled_the_disk_says_how_much_it_had_written(rig: Rig) -> None:
    result = run(rig, f"head -c {2 * DISK_BYTES} /dev/zero > made")
    # Lost: there was no space either for the reaper to say how it ended.
    assert result.outcome is Outcome.LOST and result.fault is not None and result.fault.code == SANDBOX_FULL_CODE
    assert "nothing is known" in result.fault.message and "give space back there" in result.fault.message
    assert DISK_BYTES * 0.9 < (result.fitted_bytes or 0) <= DISK_BYTES
    assert AttemptResult.from_json(result.to_json()) == result
    assert not (rig.attempt_dir("a1") / "sandbox").exists()


def test_a_job_that_had_spoken_before_it_filled_the_disk_says_so_too(rig: Rig) -> None:
    """Its log has a page that is not full, in which the reaper finds space to say that it has none."""
    result = run(rig, f"echo begun >&2; head -c {2 * DISK_BYTES} /dev/zero > made")
    assert result.fault is not None and result.fault.code == SANDBOX_FULL_CODE and "give space back there" in result.fault.message
    assert DISK_BYTES * 0.9 < (result.fitted_bytes or 0) <= DISK_BYTES
    assert not (rig.attempt_dir("a1") / "sandbox").exists()


def test_a_job_that_met_a_full_disk_and_left_a_little_says_so_too(rig: Rig) -> None:
    result = run(rig, f"head -c {DISK_BYTES - (8 << 20)} /dev/zero > made; exit 3")
    assert result.outcome is Outcome.FAILED and result.fault is not None and result.fault.code == SANDBOX_FULL_CODE
    assert "ended with exit code 3" in result.fault.message and result.exit_code == 3


def test_a_full_disk_takes_what_is_kept_for_later_jobs_and_is_not_used(rig: Rig) -> None:
    """The image of a sandbox that somebody may look into stays, and all others while there is room."""
    kinds = {"images": ("a", "b"), "environments": ("c",)}
    made = {name: rig.state_dir / kind / name for kind, names in kinds.items() for name in names}
    for place in made.values():
        place.mkdir(parents=True)
        (place / "file").write_bytes(bytes(1 << 20))
        write_json(str(place / ("environment.json" if place.name == "c" else "image.json")), {"digest": digest_of_tree(place)})
    kept = rig.state_dir / "failed" / "r" / "j.1"
    kept.mkdir(parents=True)
    write_json(Place(str(kept)).container, {"root_dir": str(made["a"] / "root"), "env": {}})
    run(rig, "exit 3")
    assert all(place.exists() for place in made.values())
    result = run(rig, f"head -c {2 * DISK_BYTES} /dev/zero > made", "a2")
    assert result.fault is not None and result.fault.code == SANDBOX_FULL_CODE
    assert [name for name, place in made.items() if place.exists()] == ["a"]


def test_a_job_that_failed_with_space_left_failed_by_itself(rig: Rig) -> None:
    result = run(rig, f"head -c {DISK_BYTES // 4} /dev/zero > made; exit 3")
    assert result.fault is not None and result.fault.code == "job_failed" and result.fitted_bytes is None
