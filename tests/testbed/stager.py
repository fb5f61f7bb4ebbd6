"""The `stager` program as a user runs it, with a state directory of its own; and its processes, for those who want to kill them.

May know: the command line's and the state directory's documented faces. One rule: what it started ends with it, however the test ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.testbed.forked import CLI, hear_ctrl_c, started
from tests.testbed.places import PROJECT, ionode_binary
from tests.testbed.processes import HERE, Where, command_line, pid_in, threads_of
from tests.testbed.waiting import wait_until

END_S = 120.0


@dataclass
class Stager:
    """`env` is added to a small environment: nothing of the tester's own home or keys gets in. `where`: the host it runs on."""

    state_dir: Path
    home: Path
    env: Mapping[str, str] = field(default_factory=dict)
    idle_exit_s: float = 30.0
    where: Where = HERE

    def environment(self) -> dict[str, str]:
        self.home.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "STAGER_TEST_TOOLS", "STAGER_TESTBED") if name in os.environ}
        marks = {name: value for name, value in os.environ.items() if name.startswith("STAGER_TEST")}
        own = {
            "HOME": str(self.home),
            "STAGER_STATE_DIR": str(self.state_dir),
            "STAGER_IONODE": str(ionode_binary()),
            "STAGER_IDLE_EXIT": f"{self.idle_exit_s:g}",
            "STAGER_CAPACITY": "2 GB",
            "STAGER_CORES": "2",
            # Most tests want their jobs to run. Those of reuse switch it on in `env`.
            "STAGER_REUSE": "off",
            "PYTHONPATH": str(PROJECT),
        }
        return kept | marks | own | dict(self.env)

    def start(self, *words: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        env, cwd = self.environment(), cwd or self.home
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        if self.where is HERE:
            fork: subprocess.Popen[str] = started(CLI, words, env, cwd, **streams)
            return fork
        command = self.where.command([sys.executable, "-m", CLI, *map(str, words)])
        return subprocess.Popen(command, env=env, cwd=cwd, preexec_fn=hear_ctrl_c, **streams)

    def run(
        self, *words: str | Path, code: int | None = 0, deadline_s: float = 240.0, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Fails with all that was printed unless it exits with `code` (None: any)."""
        process = self.start(*words, cwd=cwd)
        try:
            out, err = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(
                f"stager {' '.join(map(str, words))} did not end in {deadline_s:g} s\n{out}\n{err}\n{self.log_tail()}"
            ) from None
        done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        if code is not None:
            assert done.returncode == code, (
                f"stager {' '.join(map(str, words))}: exit {done.returncode}, not {code}\n{out}\n{err}\n{self.log_tail()}"
            )
        return done

    def json(self, *words: str | Path) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    def submit(self, workflow: Path, *words: str) -> str:
        """Detached. The run's id."""
        return self.run("submit", workflow, "--detach", *words).stdout.strip()

    def scheduler_pid(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return pid_in(lock := self.state_dir / "lock", int(lock.read_text()))
        return None

    def node_pid(self) -> int | None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return pid_in(place := self.state_dir / "node" / "rendezvous.json", int(json.loads(place.read_text())["pid"]))
        return None

    def reaper_pids(self) -> list[int]:
        """Of attempts that live now: each holds a lock with its pid in it."""
        found = []
        for lock in (self.state_dir / "attempts").glob("*/lock"):
            with contextlib.suppress(OSError, ValueError):
                found.append(pid_in(lock, int(lock.read_text())))
        return [pid for pid in found if pid]

    def log_tail(self) -> str:
        parts = []
        for name in ("scheduler.log", "node.log"):
            with contextlib.suppress(OSError):
                parts.append(f"--- {name}\n" + (self.state_dir / name).read_text(errors="replace")[-3000:])
        return "\n".join(parts)

    def end(self) -> None:
        """Ends whatever lives, politely first. Attempts end by their reapers."""
        for pid in filter(None, [self.scheduler_pid(), self.node_pid(), *self.reaper_pids()]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.living(), "stager's processes to end", END_S)
        stubborn = [f"{pid}: {command_line(pid)} ({threads_of(pid)})" for pid in self.living()]
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.living(), "stager's processes to be killed", END_S)
        assert not stubborn, f"{END_S:g} s after SIGTERM there were still {stubborn}\n{self.log_tail()}"

    def living(self) -> list[int]:
        return [pid for pid in (self.scheduler_pid(), self.node_pid(), *self.reaper_pids()) if pid]
