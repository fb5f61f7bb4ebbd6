"""Runs a workflow the plainest way: one job after the other, each in a directory with copies of its declared inputs and nothing else.

May know: model. One rule: no cache, no scheduler, no I/O node; so that what stager makes can be compared with what is right.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from stager.model.files import Location
from stager.model.workflow import Job, Workflow, graph_of


def place_of(workflow: Workflow, location: Location) -> Path:
    """Of a file origin."""
    return Path(unquote(urlparse(workflow.origins[location.origin].url).path)) / location.path


def run_serially(workflow: Workflow, directory: Path, environment: Mapping[str, str], to: Path | None = None) -> dict[str, Path]:
    """Gives each file by its lfn. Finals are copied to `to`, never to their destination. AssertionError names what failed."""
    files: dict[str, Path] = {}
    for lfn, file in workflow.files.items():
        if file.is_external:
            files[lfn] = place_of(workflow, file.sources[0].location)
    for number, job_id in enumerate(graph_of(workflow).order):
        sandbox = directory / f"{number:04d}"
        sandbox.mkdir(parents=True)
        files |= run_job(workflow.jobs[job_id], sandbox, files, environment)
    for lfn, file in workflow.files.items():
        if file.is_final and to:
            (to / lfn).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(files[lfn], to / lfn)
    return files


def run_job(job: Job, sandbox: Path, files: Mapping[str, Path], environment: Mapping[str, str]) -> dict[str, Path]:
    for entry in job.inputs:
        target = sandbox / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if files[entry.lfn].is_dir() else shutil.copy)(files[entry.lfn], target)
    argv = list(job.argv) or ["/bin/sh", "-c", job.shell]
    passed = {name: environment[name] for name in job.env_pass if name in environment}
    stdin = (sandbox / job.stdin).read_bytes() if job.stdin else b""
    done = subprocess.run(argv, cwd=sandbox, env=passed | dict(job.env), input=stdin, capture_output=True, timeout=600)
    assert done.returncode == 0, f"{job.id} ended with {done.returncode}:\n{done.stderr.decode(errors='replace')[-2000:]}"
    for stream, content in ((job.stdout, done.stdout), (job.stderr, done.stderr)):
        if stream:
            (sandbox / stream).write_bytes(content)
    missing = [entry.path for entry in job.outputs if not entry.optional and not (sandbox / entry.path).exists()]
    assert not missing, f"{job.id} did not make {', '.join(missing)}"
    return {entry.lfn: sandbox / entry.path for entry in job.outputs if (sandbox / entry.path).exists()}
