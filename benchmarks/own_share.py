"""How much of the machine others took while something was measured: what the processors did, less what was done for us.

May know: /proc, the cpuacct controller (cgroup 1). The one rule: all that a benchmark starts is counted as its own, also what lives on
apart from it; where the kernel has no such controller nothing is said.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import machine_time

CPUACCT = Path("/sys/fs/cgroup/cpuacct")
GROUP = "stager-bench-"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Others:
    """The share of all processors that others had; None: nobody can tell. Filled when the work ends."""

    share: float | None = None


class Account:
    """Of this process and of all that it starts from now on. Without a group: nothing is counted."""

    def __init__(self, group: Path | None) -> None:
        self.group = group

    @contextlib.contextmanager
    def others(self) -> Iterator[Others]:
        found = Others()
        busy_ticks, own_s, began_s = machine_time()[0], self._own_s(), time.monotonic()
        yield found
        if self.group is not None:
            took_s = time.monotonic() - began_s
            busy_s = (machine_time()[0] - busy_ticks) / TICKS_PER_S
            found.share = max(0.0, busy_s - (self._own_s() - own_s)) / (took_s * (os.cpu_count() or 1))

    def _own_s(self) -> float:
        return int((self.group / "cpuacct.usage").read_text()) / 1e9 if self.group is not None else 0.0


@contextlib.contextmanager
def own_account() -> Iterator[Account]:
    for left in CPUACCT.glob(f"{GROUP}*"):
        # Of one that was killed. A group in which something lives is not removed.
        with contextlib.suppress(OSError):
            left.rmdir()
    group = CPUACCT / f"{GROUP}{os.getpid()}"
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        yield Account(None)
        return
    try:
        yield Account(group)
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (CPUACCT / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            group.rmdir()
