"""Processor time of each test, with all processes that it started: `pytest -p tests.testbed.processor_time`, or `make test-cpu`.

May know: control groups of Linux. One rule: processor time is what the kernel charged, so it says the same on a busy machine. A server
that tests share is charged to those during which it worked.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

# With a clock of processor time: of the first version, and of the second. Root may make groups there.
MOUNTS = ((Path("/sys/fs/cgroup/cpuacct"), "cpuacct.usage"), (Path("/sys/fs/cgroup"), "cpu.stat"))
WORST = 20
COLLECTED = "collecting the tests"


class Group:
    """A control group that this process moves into: whatever it starts is born there, and detached daemons stay."""

    def __init__(self, mount: Path, clock: str) -> None:
        self.above, self.place = mount, mount / f"stager-tests-{os.getpid()}"
        self.place.mkdir()
        self.clock = self.place / clock
        (self.place / "cgroup.procs").write_text(str(os.getpid()))

    def spent_s(self) -> float:
        words = self.clock.read_text().split()
        # One number of nanoseconds, or lines with a name, of which the first is `usage_usec`.
        return int(words[0]) / 1e9 if len(words) == 1 else int(words[1]) / 1e6

    def end(self) -> None:
        for pid in (self.place / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self.above / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            self.place.rmdir()


class Own:
    """Where no group can be made: this process and the processes that were waited for."""

    def spent_s(self) -> float:
        used = os.times()
        return used.user + used.system + used.children_user + used.children_system

    def end(self) -> None:
        """Nothing was made."""


def meter() -> Group | Own:
    for mount, clock in MOUNTS:
        if (mount / clock).is_file() or (mount / "cgroup.controllers").is_file():
            with contextlib.suppress(OSError):
                return Group(mount, clock)
    return Own()


def worst_first(spent: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(spent.items(), key=lambda each: -each[1])


class ProcessorTime:
    def __init__(self) -> None:
        self.meter = meter()
        self.begun_s = self.meter.spent_s()
        self.spent: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        before = self.meter.spent_s()
        result = yield
        self.spent[item.nodeid] += self.meter.spent_s() - before
        return result

    def pytest_collection_finish(self) -> None:
        self.spent[COLLECTED] += self.meter.spent_s() - self.begun_s

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.meter.end()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["processor_time"] = dict(self.spent)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist says what it has counted. One that died has not."""
        for name, spent_s in getattr(node, "workeroutput", {}).get("processor_time", {}).items():
            self.spent[name] += spent_s

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        files: dict[str, float] = defaultdict(float)
        for name, spent_s in self.spent.items():
            files[name.partition("::")[0]] += spent_s
        terminalreporter.section("processor time, with that of all processes that were started")
        for name, spent_s in worst_first(files):
            terminalreporter.write_line(f"{spent_s:8.2f} s  {name}")
        terminalreporter.write_line(f"{sum(files.values()):8.2f} s  together; the {WORST} worst tests:")
        for name, spent_s in worst_first(self.spent)[:WORST]:
            terminalreporter.write_line(f"{spent_s:8.2f} s  {name}")
        if isinstance(self.meter, Own):
            terminalreporter.write_line("without what detached itself: no control group could be made")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProcessorTime(), "stager-processor-time")
