"""`stager shell` of what is not there, or not any more: it says so by name."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stager.model.errors import InvalidInput, Refused
from stager.model.workflow import Job, Workflow
from stager.scheduler.states import JobState
from stager.service.sandboxes import Furnishing, Sandboxes
from stager.worker import AttemptResult, AttemptSpec, KeptSandboxes, Outcome, Place
from stager.worker.place import publish_json, write_json


def sandboxes(tmp_path: Path, *jobs: str) -> Sandboxes:
    """Of a run `r` with these jobs, whose job `b` left its sandbox."""
    place = Place.of(tmp_path, "b-1")
    Path(place.sandbox).mkdir(parents=True)
    spec = AttemptSpec(attempt_id="b-1", run_id="r", job_id="b", number=1, argv=("x",), keep_failed_sandbox=True)
    write_json(place.attempt, spec.to_json())
    publish_json(place.outcome, AttemptResult(attempt_id="b-1", outcome=Outcome.FAILED).to_json())
    kept_sandboxes = KeptSandboxes(tmp_path, 1 << 40)
    assert kept_sandboxes.take("b-1")
    entry = SimpleNamespace(
        workflow=Workflow("w", {}, {name: Job(name, name, argv=("x",)) for name in jobs}, {}),
        jobs={name: SimpleNamespace(state=JobState.FAILED) for name in jobs},
    )

    async def ask(question: Callable[[], Any]) -> Any:
        return question()

    inquiry: Any = SimpleNamespace(ask=ask)
    runs: Any = SimpleNamespace(known=lambda run: entry, state=SimpleNamespace(files={}))
    return Sandboxes(inquiry, runs, kept_sandboxes, Furnishing({}, 1), "", lambda run: False)


def test_a_job_that_a_resume_dropped_is_no_job_of_the_run(tmp_path: Path) -> None:
    """It ended in a KeyError: its sandbox was still kept."""
    with pytest.raises(InvalidInput, match="run r has no job 'b'"):
        asyncio.run(sandboxes(tmp_path, "renamed").of("r", "b"))


def test_a_sandbox_that_goes_meanwhile_is_not_kept(tmp_path: Path) -> None:
    known = sandboxes(tmp_path, "b")
    shutil.rmtree(known.kept_sandboxes.kept["r", "b"].place.directory)
    with pytest.raises(Refused, match="no sandbox of job 'b' of run r is kept"):
        asyncio.run(known.of("r", "b"))
