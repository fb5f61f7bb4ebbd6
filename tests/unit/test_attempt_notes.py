"""Notes on attempts: reads that a job does not declare, and hosts that isolate nothing."""

from __future__ import annotations

from pathlib import Path

from stager.adapters.attempt_notes import NOT_ISOLATED, Watches, directories_of, notes_of
from stager.model.files import Destination, File, FileKind, Location, Source
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.worker import AttemptResult, Outcome


def workflow_at(base: Path) -> Workflow:
    files = {
        "in": File("in", sources=(Source(Location("lab", "raw/in.csv"), 1, "t"),), size_bytes=1),
        "tree": File("tree", sources=(Source(Location("lab", "tree"), 1, "t"),), size_bytes=1, kind=FileKind.DIRECTORY),
        "out": File("out", destination=Destination(Location("lab", "out/final"))),
        "other": File("other", sources=(Source(Location("lab", "raw/other.csv"), 1, "t"),), size_bytes=1),
    }
    job = Job("a", "a", argv=("true",), inputs=(JobInput("in", "in"), JobInput("tree", "tree")), outputs=(JobOutput("out", "out"),))
    origins = {
        "lab": Origin("lab", OriginKind.FILE, f"file://{base}/lab"),
        "deep": Origin("deep", OriginKind.FILE, f"file://{base}/lab/deep%20er"),
        "far": Origin("far", OriginKind.SFTP, "sftp://host/lab"),
    }
    return Workflow("w", files, {"a": job}, origins)


def notes(workflow: Workflow, *opened: str, count: int | None = None, isolation: str = "mounts") -> tuple[str, ...]:
    ended = AttemptResult(attempt_id="x", outcome=Outcome.OK, isolation=isolation, opened=opened, opened_count=count or len(opened))
    return notes_of(ended, workflow.jobs["a"], workflow)


def test_what_a_job_declares_may_be_read_and_all_else_is_told_by_its_origin(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "lab").symlink_to("real")
    workflow, real = workflow_at(tmp_path), tmp_path / "real"
    assert directories_of(workflow) == {"lab": f"{tmp_path}/lab", "deep": f"{tmp_path}/lab/deep er"}
    assert notes(workflow, f"{real}/raw/in.csv", f"{real}/tree/b/c", f"{real}/out/final", "/etc/passwd") == ()
    [note] = notes(workflow, f"{real}/raw/other.csv", f"{real}/treetop", f"{real}/deep er/x", f"{real}/raw/in.csv")
    assert "lab:raw/other.csv, lab:treetop, deep:x" in note and "in.csv" not in note


def test_many_are_counted(tmp_path: Path) -> None:
    [note] = notes(workflow_at(tmp_path), *[f"{tmp_path}/lab/f{n}" for n in range(7)], count=60)
    assert note.endswith("lab:f4 and 55 more")


def test_the_first_attempt_of_each_type_of_a_run_is_watched() -> None:
    watches = Watches()
    asked = [("r1", "a"), ("r1", "a"), ("r1", "b"), ("r2", "a"), ("r1", "b")]
    assert [watches.begins(*each) for each in asked] == [True, False, True, True, False]


def test_a_host_that_isolates_nothing_is_told(tmp_path: Path) -> None:
    assert notes(workflow_at(tmp_path), isolation="none") == (NOT_ISOLATED,)
    assert notes(workflow_at(tmp_path), isolation="") == notes(workflow_at(tmp_path), isolation="landlock") == ()
