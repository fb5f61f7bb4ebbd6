"""Finds what tests left behind: processes and mounts.

May know: /proc. One rule: a process belongs to a session of tests if it inherited its mark, or sits or was started in its directories,
so that one which cleared its environment, detached and lost its parents is found too.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.processes import all_pids, command_line, end, is_zombie
from tests.testbed.waiting import wait_until

MARK = "STAGER_TEST_SESSION"


@dataclass(frozen=True)
class Leftover:
    pid: int
    command: str
    test: str

    def __str__(self) -> str:
        return f"process {self.pid}: {self.command} (started in {self.test or 'an unknown test'})"


def environment(pid: int) -> dict[str, str]:
    with contextlib.suppress(OSError):
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return {}


def working_directory(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")
    return ""


def is_below(path: str, roots: Sequence[Path]) -> bool:
    return any(path == str(root) or path.startswith(f"{root}/") for root in roots)


def left_processes(mark: str, roots: Sequence[Path]) -> list[Leftover]:
    """`roots` are the directories of this session of tests; a path below one in a command line counts as well."""
    found = []
    for pid in all_pids():
        if pid == os.getpid() or is_zombie(pid):
            continue
        variables, command = environment(pid), command_line(pid)
        mine = variables.get(MARK) == mark or is_below(working_directory(pid), roots) or any(f"{root}/" in command for root in roots)
        if mine and command and "multiprocessing.resource_tracker" not in command:
            found.append(Leftover(pid, command[:300], variables.get("PYTEST_CURRENT_TEST", "")))
    return found


def left_mounts(roots: Sequence[Path]) -> list[str]:
    """Mount points below `roots`, the innermost first."""
    points = [line.split()[4].replace("\\040", " ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((point for point in points if is_below(point, roots)), reverse=True)


def settle(mark: str, roots: Sequence[Path], deadline_s: float = 120.0) -> list[Leftover]:
    """What is still there after a moment of grace: processes that were told to end may need one."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left_processes(mark, roots), "the last processes to end", deadline_s, pause_s=0.1)
    return left_processes(mark, roots)


def clean(leftovers: Sequence[Leftover], mounts: Sequence[str]) -> None:
    end([leftover.pid for leftover in leftovers])
    for point in mounts:
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
