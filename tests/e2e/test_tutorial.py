"""docs/tutorial.md, command by command, as a reader copies it: all of it works, and prints what the page shows."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testbed.places import PROJECT, needed_program
from tests.testbed.processes import HERE
from tests.testbed.stager import Stager, hear_ctrl_c
from tests.testbed.waiting import wait_until

PAGE = PROJECT / "docs/tutorial.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
DURATION = r"(?:[\d.]+ h )?(?:[\d.]+ min )?[\d.]+ (?:ms|s)\b"
# Sizes, times and other numbers differ from machine to machine.
VALUES = [(DURATION, "TIME"), (r"[\d.]+ [kMGT]?B\b", "SIZE"), (r"\d+(?:\.\d+)?", "N"), (r"\s+", " ")]
DEADLINE_S = 240.0


@dataclass(frozen=True)
class Step:
    """What a reader copies, and what the page says that it prints."""

    commands: str
    shown: list[str]


def steps_of(page: str) -> list[Step]:
    return [Step(commands, shown.splitlines()) for commands, shown in BLOCK.findall(page)]


def without_values(line: str) -> str:
    for pattern, word in VALUES:
        line = re.sub(pattern, word, line)
    return line.strip()


def missing(shown: list[str], printed: str) -> list[str]:
    """Lines that the page shows and that were not printed, in this order; `...` stands for any lines."""
    left = [without_values(line) for line in printed.splitlines()]
    absent = []
    for line in shown:
        wanted = without_values(line)
        if wanted in left:
            left = left[left.index(wanted) + 1 :]
        elif line != "...":
            absent.append(line)
    return absent


@pytest.fixture
def stager(tmp_path: Path) -> Iterator[Stager]:
    """By its name on PATH, as a reader has it."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "stager").write_text(f'#!/bin/sh\nexec {sys.executable} -m stager.cli "$@"\n')
    (place / "stager").chmod(0o755)
    rig = Stager(tmp_path / "state", tmp_path / "home", {"PATH": f"{place}:{os.environ['PATH']}", "STAGER_REUSE": "on"})
    rig.environment()
    yield rig
    rig.end()
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((rig.home / "stager-tutorial/lab/sshd.pid").read_text()), signal.SIGTERM)


def walked(stager: Stager, steps: list[Step]) -> list[tuple[int, str]]:
    """Of each step: how many of its commands failed, and what they printed; in one shell, as a reader has one."""
    lines = ["set -E", "trap 'failed=$((failed + 1))' ERR"]
    for number, step in enumerate(steps):
        lines += [
            "failed=0",
            f"exec > {stager.home}/step{number}.out 2>&1",
            step.commands,
            f"echo $failed > {stager.home}/step{number}.failed",
        ]
    script = stager.home / "tutorial.sh"
    script.write_text("\n".join(lines))
    subprocess.run(["bash", script], cwd=stager.home, env=stager.environment(), preexec_fn=hear_ctrl_c, timeout=DEADLINE_S, check=False)
    return [
        (int((stager.home / f"step{number}.failed").read_text()), (stager.home / f"step{number}.out").read_text())
        for number in range(len(steps))
    ]


@pytest.mark.slow
def test_the_tutorial_works_as_it_is_written(stager: Stager) -> None:
    for program, package in (("sshd", "openssh-server"), ("ssh", "openssh-client"), ("ssh-keygen", "openssh-client")):
        needed_program(program, package)
    steps = steps_of(PAGE.read_text().replace("2222", str(HERE.free_port())))
    assert len(steps) >= 15 and sum(bool(step.shown) for step in steps) >= 8
    done = walked(stager, steps)
    for step, (failed, printed) in zip(steps, done, strict=True):
        fails = any("failed after" in line for line in step.shown)
        assert failed == (1 if fails else 0), f"{stager.log_tail()}\n{failed} commands failed of\n{step.commands}\n{printed}"
        assert missing(step.shown, printed) == [], f"{step.commands}\n{printed}"
    assert not (stager.home / "stager-tutorial").exists()
    wait_until(lambda: not stager.living(), "what the tutorial started to end")


def test_lines_are_compared_without_their_numbers() -> None:
    shown = ["run a-1: succeeded after 0.48 s", "...", "  jobs     8 of 8 done"]
    assert missing(shown, "note\nrun a-3: succeeded after 1 min 02.5 s\nmore\n  jobs   9 of 9 done\n") == []
    assert missing(shown, "run a-3: failed after 0.48 s\n  jobs     8 of 8 done\n") == shown[:1]
    assert missing(["b", "a"], "a\nb\n") == ["a"]
