"""A process that waits to become the scheduler: it touches nothing before it is told, and outlives nobody who needs none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.adapters.private_socket import listen
from stager.client.socket import start_detached
from stager.client.warm_start import TAKEN, TOLD, WarmStart, is_listened_on

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


def test_a_process_that_is_stopped_holds_no_command_and_becomes_no_scheduler_later(warm: WarmStart, state_dir: Path) -> None:
    process = warm.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    warm.line.settimeout(0.2)
    with open(os.devnull, "wb") as log:
        assert warm.tell(log.fileno()) is None
    assert process.wait(END_S) == -signal.SIGKILL
    assert not state_dir.exists()


@pytest.mark.parametrize("is_current", [True, False])
def test_a_process_whose_code_was_replaced_meanwhile_is_no_scheduler(is_current: bool, tmp_path: Path) -> None:
    waiting = "import sys; from stager.client.warm_start import wait_until_told as told; sys.exit(3 if told(lambda: IS) else 4)"
    line, theirs = socket.socketpair()
    with line, theirs, open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-c", waiting.replace("IS", str(is_current))], stdin=theirs.fileno())
        theirs.close()
        socket.send_fds(line, [TOLD], [log.fileno()])
        assert line.recv(1) == (TAKEN if is_current else b"")
    assert process.wait(END_S) == (3 if is_current else 4)


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
        ("stager.cli.runs", ["yaml", "stager.readers", "stager.sim", "stager.scheduler", "stager.best_plan"]),
        ("stager.cli.status", ["yaml", "stager.readers", "stager.sim", "stager.scheduler", "stager.best_plan"]),
    ],
)
def test_what_a_start_waits_for_leaves_the_rest_until_it_is_needed(module: str, heavy: list[str]) -> None:
    told = subprocess.run([sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"], capture_output=True, text=True, check=True)
    assert not set(heavy) & set(told.stdout.split())
