"""What processes cost: processor time and memory, read from /proc.

May know: Linux. One rule: processor time is what the kernel charged, so it says the same on a busy machine as on an idle one.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cpu:
    """Of one process; `children_s` of those that ended and were waited for, and of theirs."""

    user_s: float = 0.0
    system_s: float = 0.0
    children_s: float = 0.0

    @property
    def own_s(self) -> float:
        return self.user_s + self.system_s

    def __sub__(self, before: Cpu) -> Cpu:
        return Cpu(self.user_s - before.user_s, self.system_s - before.system_s, self.children_s - before.children_s)


def cpu_of(pid: int | None) -> Cpu:
    """Nothing for a process that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return Cpu()
    user, system, children_user, children_system = (int(fields[at]) * TICK_S for at in (11, 12, 13, 14))
    return Cpu(user, system, children_user + children_system)


def memory_peak_bytes(pid: int | None) -> int:
    """The most that was resident at once so far; 0 for a process that is gone."""
    return next(status_bytes(pid, "VmHWM"), 0)


def status_bytes(pid: int | None, key: str) -> Iterator[int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return
    yield from (int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


class Peaks:
    """The highest memory peak of each named process so far, also of one that has ended since."""

    def __init__(self, pids: Callable[[], Iterable[tuple[str, int | None]]]) -> None:
        self.pids = pids
        self.bytes: dict[str, int] = {}

    def look(self) -> None:
        for name, pid in self.pids():
            self.bytes[name] = max(self.bytes.get(name, 0), memory_peak_bytes(pid))

    @contextmanager
    def watched(self, every_s: float = 0.5) -> Iterator[Peaks]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(every_s):
                self.look()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield self
        finally:
            self.look()
            over.set()
            watcher.join()


def machine() -> str:
    """For the foot of a table of figures."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Linux {platform.release()}, Python {platform.python_version()}"
