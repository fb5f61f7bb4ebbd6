"""Where jobs with images and environments of packages are tried: one state directory for many tests, since making one takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stager.worker.environment_tree import DIRECTORY
from tests.testbed.places import PROJECT
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

# A job that has written `begun` goes on until somebody writes `go`.
GATE = "echo x > begun; until test -e go; do sleep 0.05; done"


class MadeBed:
    """`kind`: what the directory of those that were made is called."""

    def __init__(self, place: Path, kind: str, environ: Mapping[str, str] | None = None) -> None:
        self.place = place
        self.stager = Stager(place / "s", place / "home", dict(environ or {}))
        self.directory = self.stager.state_dir / kind

    def submitted(self, name: str, text: str, *words: str, code: int = 0) -> str:
        (self.place / f"{name}.yml").write_text(f"stager: 1\nname: {name}\non_exists: replace\n{text}")
        done = self.stager.run("submit", f"{name}.yml", *words, cwd=self.place, code=code)
        return done.stdout + done.stderr

    def out(self, name: str) -> str:
        return (self.place / "out" / name).read_text()

    def made(self) -> list[Path]:
        found = self.directory.iterdir() if self.directory.is_dir() else ()
        return sorted(path for path in found if not path.name.startswith(".") and path.name != "pulled")

    def made_at_rest(self) -> list[Path]:
        """Once nothing is left of attempts that have ended. Those at a gate go on."""
        attempts = self.stager.state_dir / "attempts"
        wait_until(lambda: all((each / "sandbox" / "begun").exists() for each in attempts.iterdir()), "attempts to be over")
        return self.made()

    def begun(self) -> Path:
        """The sandbox of the one job that is at its gate."""
        [going] = wait_until(lambda: list(self.stager.state_dir.glob("attempts/*/sandbox/begun")), "a job to begin")
        return going.parent


class PackagesBed(MadeBed):
    """`lock_kind`: as make_environment calls it. `pip`: what is set where environments are made."""

    def __init__(self, place: Path, lock_kind: str, pip: Mapping[str, str] | None = None) -> None:
        super().__init__(place, DIRECTORY, pip)
        self.lock_kind, self.pip = lock_kind, dict(pip or {})
        self.stager.state_dir.mkdir(mode=0o700)
        self.directory.mkdir(mode=0o700)

    def lock(self, name: str, text: str) -> Path:
        (self.place / name).write_text(text)
        return self.place / name

    def maker(self, lock: Path, **more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "stager.worker.make_environment", self.lock_kind, str(lock), str(self.directory)]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.place / "home"), "PYTHONPATH": str(PROJECT), **self.pip, **more}
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)

    def said(self, lock: Path, **more: str) -> Any:
        """Of the environment that is made of it."""
        return json.loads(self.maker(lock, **more).communicate()[0])
