"""A planned workflow of Pegasus in its submit directory, its places moved to this test's, and the jobs of it run as DAGMan would.

May know: the planner's files, jobstate.log. One rule: the planner's files are changed in nothing but places.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.testbed.pegasus import PLUGIN, Done, call, surroundings
from tests.testbed.places import ionode_binary
from tests.testbed.planner import KINDS, write_plan

UUID = {name: kind.uuid for name, kind in KINDS.items()}


def submit_directory(kind: str | Path, place: Path, moved: Mapping[str, str]) -> Path:
    """Of that kind, or a copy of a recorded one, with each text of `moved` in its lists replaced by the other, in the order given."""
    if isinstance(kind, Path):
        shutil.copytree(kind, place)
    else:
        write_plan(kind, place)
    (place / "jobstate.log").unlink(missing_ok=True)
    for path in place.rglob("*"):
        if path.is_file() and path.suffix in (".in", ".cache", ".store"):
            text = path.read_text()
            for old, new in moved.items():
                text = text.replace(old, new)
            path.write_text(text)
    return place


@dataclass
class DagMan:
    """What DAGMan, its jobs and monitord do to a submit directory."""

    directory: Path
    uuid: str
    environ: Mapping[str, str] = field(default_factory=dict)
    lists: str = "00/00"

    def log(self, *lines: str) -> None:
        with (self.directory / "jobstate.log").open("a") as file:
            file.writelines(f"{int(time.time())} {line}\n" for line in lines)

    def start(self) -> None:
        self.log("INTERNAL *** MONITORD_STARTED ***", "INTERNAL *** DAGMAN_STARTED 4.0 ***")

    def end(self, code: int = 0) -> None:
        self.log(f"INTERNAL *** DAGMAN_FINISHED {code} ***", f"INTERNAL *** MONITORD_FINISHED {code} ***")

    def begins(self, job: str) -> None:
        self.log(f"{job} SUBMIT 7.0 local - 1", f"{job} EXECUTE 7.0 local - 1")

    def ends(self, job: str, code: int = 0) -> None:
        word = "SUCCESS" if code == 0 else "FAILURE"
        self.log(f"{job} JOB_TERMINATED 7.0 local - 1", f"{job} JOB_{word} {code} local - 1")
        self.log(f"{job} POST_SCRIPT_STARTED 7.0 local - 1", f"{job} POST_SCRIPT_{word} {code} local - 1")

    def environment(self, job: str) -> dict[str, str]:
        about = {"PEGASUS_WF_UUID": self.uuid, "PEGASUS_DAG_JOB_ID": job, "_PEGASUS_WF_SUBMIT_DIR": str(self.directory)}
        ours = {"PEGASUS_TRANSFER_FALLBACK": "", "PYTHONPATH": str(PLUGIN), "STAGER_IONODE": str(ionode_binary())}
        marks = {name: value for name, value in os.environ.items() if name.startswith("STAGER_TEST")}
        return surroundings(**marks, **ours, **about, **self.environ)

    def list_of(self, job: str) -> Path:
        return self.directory / self.lists / f"{job}.in"

    def transfer(self, job: str, *options: str, **environ: str) -> Done:
        """A job that is nothing but a list: as kickstart calls it, as a process of its own each time."""
        self.begins(job)
        argv = ["bash", "-c", f'"$0" -m pegasus_stager -m 1 {" ".join(options)} < "$1"; exit $?', sys.executable, self.list_of(job)]
        done = call(argv, b"", self.directory, self.environment(job) | environ)
        self.ends(job, done.code)
        return done

    def task(self, job: str, script: str, **environ: str) -> Done:
        """A compute job."""
        self.begins(job)
        done = subprocess.run(
            ["bash", "-ec", script], env=self.environment(job) | environ, cwd=self.directory, capture_output=True, timeout=240, check=False
        )
        self.ends(job, done.returncode)
        return Done(done.returncode, (done.stdout + done.stderr).decode(errors="replace"))
