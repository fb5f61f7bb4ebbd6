"""A process that waits to become the scheduler: it touches nothing before it is told, and outlives nobody who needs none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.client.socket import start_detached
from stager.client.warm_start import WarmStart, is_listened_on
from stager.service.process import listen

END_S = 30.0
BAD_CAPACITY = ["--capacity", "much"]


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def warm(state_dir: Path) -> Iterator[WarmStart]:
    with WarmStart(state_dir, []) as found:
        yield found


def ended(warm: WarmStart) -> int:
    assert warm.process is not None
    return warm.process.wait(END_S)


def test_a_process_that_nobody_tells_ends_with_the_command_and_touches_nothing(warm: WarmStart, state_dir: Path) -> None:
    warm.line.close()
    assert ended(warm) == 0
    assert not state_dir.exists()


def test_a_command_that_needs_no_scheduler_leaves_no_process_behind(warm: WarmStart, state_dir: Path) -> None:
    process = warm.process
    warm.close()
    assert process is not None
    assert process.poll() == -signal.SIGKILL
    assert not state_dir.exists()


def test_a_process_that_died_before_it_was_told_is_no_scheduler(warm: WarmStart, state_dir: Path) -> None:
    assert warm.process is not None
    warm.process.kill()
    warm.process.wait(END_S)
    with open(os.devnull, "wb") as log:
        assert warm.tell(log.fileno()) is None


def test_where_a_warm_process_fails_the_next_one_says_why_in_the_log(state_dir: Path) -> None:
    with WarmStart(state_dir, BAD_CAPACITY) as warm:
        process = start_detached(state_dir, BAD_CAPACITY, warm)
    assert process.wait(END_S) == 2
    assert "--capacity" in (state_dir / "scheduler.log").read_text()


def test_a_socket_that_nobody_listens_on_is_none(tmp_path: Path) -> None:
    place = tmp_path / "scheduler.sock"
    assert not is_listened_on(place)
    listening = listen(place)
    assert is_listened_on(place)
    listening.close()
    assert not is_listened_on(place)
    assert not is_listened_on(tmp_path / "nowhere" / "scheduler.sock")


@pytest.mark.parametrize(
    "module, heavy",
    [
        ("stager.cli.submit", ["pydantic", "stager.readers", "stager.best_plan"]),
        ("stager.service.command_line", ["yaml", "stager.readers"]),
    ],
)
def test_what_a_start_waits_for_leaves_the_rest_until_it_is_needed(module: str, heavy: list[str]) -> None:
    told = subprocess.run([sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"], capture_output=True, text=True, check=True)
    assert not set(heavy) & set(told.stdout.split())
