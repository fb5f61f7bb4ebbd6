"""Forks of the program: what they say and how they end is what a program says that is started anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.forked import CLI, SCHEDULER, Forked, started
from tests.testbed.processes import is_alive
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

PIPES: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture
def stager(short_dir: Path) -> Stager:
    return Stager(short_dir / "s", short_dir / "home", env={"STAGER_CAPACITY": "50 MB"})


@pytest.mark.parametrize("words", [["--version"], ["runs"], ["submit", "absent.yml"], ["nonsense"], ["submit", "there.yml"]])
def test_it_says_and_ends_what_one_that_is_started_anew_does(stager: Stager, words: list[str]) -> None:
    env, cwd = stager.environment(), stager.home
    (cwd / "there.yml").write_text("stager: 1\nname: w\norigins: {lab: 'http://[x'}\njobs: {}\n")
    fork = started(CLI, words, env, cwd, **PIPES)
    said = fork.communicate(timeout=120)
    anew = subprocess.run([sys.executable, "-m", CLI, *words], env=env, cwd=cwd, timeout=60, check=False, **PIPES)
    assert isinstance(fork, Forked)
    assert (fork.returncode, *said) == (anew.returncode, anew.stdout, anew.stderr)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_scheduler_is_told_and_is_killed_as_any_other(stager: Stager, sent: signal.Signals, code: int) -> None:
    env = stager.environment()
    try:
        stager.state_dir.mkdir(mode=0o700)
        with (stager.state_dir / "scheduler.log").open("ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            fork = started(SCHEDULER, [], env, stager.home, start_new_session=True, **streams)
        wait_until(lambda: stager.scheduler_pid() == fork.pid and stager.node_pid(), "the scheduler and its node")
        assert os.getsid(fork.pid) == fork.pid and os.readlink(f"/proc/{fork.pid}/cwd") == str(stager.home)
        assert fork.poll() is None
        fork.send_signal(sent)
        assert fork.wait(60) == fork.poll() == code and not is_alive(fork.pid)
    finally:
        stager.end()


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LC_ALL", "LD_PRELOAD"])
def test_what_only_a_new_process_can_obey_starts_one(stager: Stager, name: str) -> None:
    fork = started(CLI, ["--version"], stager.environment() | {name: ""}, stager.home, **PIPES)
    assert not isinstance(fork, Forked) and fork.communicate(timeout=120)[0].startswith("stager")
