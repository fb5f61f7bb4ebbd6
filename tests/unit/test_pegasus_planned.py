"""Submit directories of Pegasus read: plans, what becomes of their files, and the log of a workflow under way.

One rule: recordings that are beside the clone are the planner's own, and read the same as what the testbed writes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.errors import InvalidInput
from stager.model.workflow import Workflow
from stager.readers.pegasus_attached import attached_workflow
from stager.readers.pegasus_jobstate import JobstateLog, Try, TryState
from stager.readers.pegasus_planned import Planned, PlannedKind, read_planned
from tests.testbed.places import case_id, shared_files
from tests.testbed.planned import UUID, submit_directory

AWAY = {"file:///scratch/": "sftp://me@lab.example.org/scratch/"}
STAGE_IN = "stage_in_remote_local_0_0"


def edges(workflow: Workflow) -> dict[str, set[str]]:
    return {job.id: set(job.after) for job in workflow.jobs.values()}


RECORDED = [place.parent for place in shared_files("pegasus/planned/*/braindump.yml")]


def told_by(planned: Planned) -> dict[str, object]:
    """All that was read of a submit directory, which tells each apart by where it is and by its identity only."""
    jobs = {
        job.id: (job.path.relative_to(planned.directory), job.kind, job.transfers, job.transformation, set(job.inputs), set(job.outputs))
        for job in planned.jobs.values()
    }
    parents = {job.id: set(job.parents) for job in planned.jobs.values()}
    return {"jobs": jobs, "parents": parents, "staged": planned.staged, "replicas": planned.replicas, "label": planned.label}


if RECORDED:

    @pytest.mark.parametrize("recorded", RECORDED, ids=case_id)
    def test_what_the_planner_wrote_reads_as_what_these_tests_write(tmp_path: Path, recorded: Path) -> None:
        real, made = (read_planned(submit_directory(kind, tmp_path / str(n), {})) for n, kind in enumerate((recorded, recorded.name)))
        assert told_by(real) == told_by(made)
        for place in sorted((made.directory / "00" / "00").glob("*.in")):
            assert place.read_text() == (real.directory / "00" / "00" / place.name).read_text()


@pytest.mark.parametrize("kind", [*UUID, *RECORDED], ids=case_id)
def test_a_plan(tmp_path: Path, kind: str | Path) -> None:
    """One has a DAG file, the other, for a shell script, only what monitord is told."""
    planned = read_planned(submit_directory(kind, tmp_path / "r", {}))
    assert (planned.label, len(planned.jobs)) == ("diamond", 15) and planned.uuid == UUID.get(str(kind), planned.uuid) != ""
    kinds = [job.kind for job in planned.jobs.values()]
    assert [kinds.count(each) for each in PlannedKind] == [1, 1, 4, 9]
    analyze = planned.jobs["analyze_an"]
    assert (analyze.transformation, set(analyze.inputs), analyze.outputs) == ("analyze", {"f.c1", "f.c2"}, ("f.d",))
    assert set(analyze.parents) == {"findrange_fr1", "findrange_fr2"}
    assert set(planned.staged) == {"f.a", "f.b1", "f.b2", "f.c1", "f.c2", "f.d"}
    assert [source.url for source in planned.replicas["f.a"]] == ["file:///scratch/f.a"]


def test_names_with_other_separators_than_the_lists_have_are_read_whole(tmp_path: Path) -> None:
    strange = "f\u2028a\x85\u00a0b\u3000"
    directory = submit_directory("sharedfs", tmp_path / "r", {})
    for place in directory.rglob("*"):
        if place.is_file():
            place.write_bytes(place.read_bytes().replace(b"f.b1", strange.encode()))
    planned = read_planned(directory)
    assert planned.jobs["preprocess_pre"].outputs == (strange, "f.b2") and strange in planned.staged
    assert planned.jobs["findrange_fr1"].inputs == (strange,) and planned.staged[strange].endswith(strange)


def test_with_a_shared_file_system_only_what_crosses_the_line_is_stagers(tmp_path: Path) -> None:
    moved = {"file:///scratch/f.a": "sftp://me@lab.example.org/data/f.a", "file:///scratch/w/out": "scp://me@lab.example.org/out"}
    workflow = attached_workflow(read_planned(submit_directory("sharedfs", tmp_path / "r", moved)))
    assert workflow.engine == "pegasus" and set(workflow.files) == {"f.a", "f.d"}
    assert [entry.lfn for entry in workflow.jobs[STAGE_IN].inputs] == ["f.a"]
    assert [entry.lfn for entry in workflow.jobs["stage_out_local_local_2_0"].outputs] == ["f.d"]
    assert not workflow.jobs["preprocess_pre"].inputs and workflow.jobs["preprocess_pre"].job_type == "preprocess"
    final = workflow.files["f.d"].destination
    assert final is not None and workflow.origins[final.location.origin].url.startswith("sftp://me@lab.example.org")
    assert edges(workflow)["findrange_fr1"] == {"preprocess_pre"} and edges(workflow)[STAGE_IN] == set()


def test_with_staging_on_another_machine_jobs_exchange_their_files_here(tmp_path: Path) -> None:
    """Its staging site is a web server."""
    workflow = attached_workflow(read_planned(submit_directory("nonsharedfs", tmp_path / "r", AWAY)))
    assert set(workflow.files) == {"f.a", "f.b1", "f.b2", "f.c1", "f.c2", "f.d"}
    for job, reads, makes in (
        ("preprocess_pre", {"f.a"}, {"f.b1", "f.b2"}),
        ("analyze_an", {"f.c1", "f.c2"}, {"f.d"}),
        ("stage_out_local_staging_2_0", {"f.d"}, set()),
    ):
        found = workflow.jobs[job]
        assert ({entry.lfn for entry in found.inputs}, {entry.lfn for entry in found.outputs}) == (reads, makes)
    assert [lfn for lfn, file in workflow.files.items() if file.is_external] == ["f.a"]
    assert [lfn for lfn, file in workflow.files.items() if file.is_final] == ["f.d"]


def test_an_input_that_no_list_stages_in_comes_from_the_replica_catalog(tmp_path: Path) -> None:
    """bypass.input.staging: the script around the task fetches it. Without such a script nobody would take it from the cache."""
    directory = submit_directory("sharedfs", tmp_path / "r", {"file:///scratch/f.a": "sftp://lab.example.org/f.a"})
    for job in ("stage_in_remote_local_0_0",):
        (directory / "00" / "00" / f"{job}.in").write_text("[]")
    with pytest.raises(InvalidInput, match="nothing to do"):
        attached_workflow(read_planned(directory))
    (directory / "00" / "00" / "preprocess_pre.sh").write_text("#!/bin/bash\n")
    workflow = attached_workflow(read_planned(directory))
    assert [entry.lfn for entry in workflow.jobs["preprocess_pre"].inputs] == ["f.a"]
    assert [source.location.path for source in workflow.files["f.a"].sources] == ["f.a"]


def test_where_nothing_crosses_a_line_there_is_nothing_to_do(tmp_path: Path) -> None:
    planned = read_planned(submit_directory("sharedfs", tmp_path / "r", {}))
    with pytest.raises(InvalidInput, match="nothing to do.*inputs are on this machine"):
        attached_workflow(planned)


def test_what_is_not_served_is_left_to_pegasus_and_said(tmp_path: Path) -> None:
    moved = {"file:///scratch/f.a": "gsiftp://lab.example.org/f.a", "file:///scratch/w/out": "sftp://lab.example.org/out"}
    workflow = attached_workflow(read_planned(submit_directory("sharedfs", tmp_path / "r", moved)))
    assert set(workflow.files) == {"f.d"} and any("gsiftp:// is not served" in note for note in workflow.notes)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("braindump.yml", "a: [", "is no YAML"),
        ("braindump.yml", "timestamp: 2024-13-45", "is no YAML"),
        ("braindump.yml", "wf_uuid: ''", "has no wf_uuid"),
        ("diamond-0.dag", "# nothing", "names no jobs"),
        ("diamond-0.dag", "JOB a a.sub\nPARENT a CHILD b\n", "a -> b names a job"),
        ("diamond-0.dag", "JOB a a.sub\nJOB b b.sub\nPARENT a CHILD b\nPARENT b CHILD a\n", "cycle"),
        ("00/00/stage_in_local_staging_0_0.in", '[{"type": "transfer"}]', "no list of transfers"),
        ("00/00/stage_in_local_staging_0_0.in", "[{", "no list of transfers"),
        ("00/00/stage_in_local_staging_0_0.in", "[" * 100_000, "no list of transfers"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    directory = submit_directory("nonsharedfs", tmp_path / "r", AWAY)
    (directory / name).write_text(text)
    with pytest.raises(InvalidInput, match=said):
        attached_workflow(read_planned(directory))


def test_a_url_with_a_password_is_not_repeated(tmp_path: Path) -> None:
    moved = {"file:///scratch/f.a": "sftp://me:hidden@lab.example.org/f.a"}
    with pytest.raises(InvalidInput) as caught:
        attached_workflow(read_planned(submit_directory("sharedfs", tmp_path / "r", moved)))
    assert "hidden" not in str(caught.value)


def test_the_log_says_how_far_each_job_is(tmp_path: Path) -> None:
    log = JobstateLog(tmp_path / "jobstate.log")
    assert log.read_new() == [] and log.progress.exit_code is None
    with log.path.open("w") as file:
        file.write("INTERNAL *** SHELL_SCRIPT_STARTED ***\n1 a SUBMIT 1.0 local - 1\n1 a EXECUTE 1.0 local - 1\n1 b SUB")
    assert log.read_new() == ["a"] and log.progress.tries["a"] == Try(1, TryState.RUNNING)
    with log.path.open("a") as file:
        file.write("MIT 2.0 local - 1\n2 a JOB_SUCCESS 0 local - 1\n2 a POST_SCRIPT_FAILURE 1 local - 1\n3 a SUBMIT 3.0 local - 2\n")
    assert log.read_new() == ["b", "a"] and log.progress.tries == {"a": Try(2, TryState.SUBMITTED), "b": Try(1, TryState.SUBMITTED)}
    with log.path.open("a") as file:
        file.write("9 INTERNAL *** DAGMAN_FINISHED 1 ***\n")
    assert log.read_new() == [] and log.progress.exit_code == 1


def test_a_log_that_is_rotated_is_read_to_its_end_and_a_workflow_started_again_is_not_over(tmp_path: Path) -> None:
    log = JobstateLog(tmp_path / "jobstate.log")
    log.path.write_text("1 INTERNAL *** DAGMAN_STARTED 1.0 ***\n1 a EXECUTE 1.0 local - 1\n")
    log.read_new()
    with log.path.open("a") as file:
        file.write("2 a JOB_FAILURE 1 local - 1\n2 INTERNAL *** DAGMAN_FINISHED 1 ***\n")
    log.path.rename(tmp_path / "jobstate.log.000")
    log.path.write_text("5 INTERNAL *** DAGMAN_STARTED 2.0 ***\n5 a EXECUTE 2.0 local - 2\n")
    assert log.read_new() == ["a"] and log.progress.tries["a"] == Try(2, TryState.RUNNING) and log.progress.exit_code is None
    fresh = JobstateLog(log.path)
    fresh.read_new()
    assert fresh.progress == log.progress
