"""`stager pegasus attach` to a workflow that began without it, is over, or is not the one that stager knows by that name.

One rule: what Pegasus has done already is not done again, and no job is given a file of another workflow.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.readers.pegasus_planned import read_planned
from tests.e2e.pegasus_rig import CONTENT, FOLLOWED_S, PREPARE, STAGE_IN, STAGE_OUT, Bed, bed_with_staging_away, lite, shared_bed
from tests.testbed.planned import UUID
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until


@pytest.fixture
def bed(sshd: Sshd, short_dir: Path) -> Iterator[Bed]:
    yield from shared_bed(sshd, short_dir)


@pytest.fixture
def staging_bed(sshd: Sshd, short_dir: Path) -> Iterator[Bed]:
    yield from bed_with_staging_away(sshd, short_dir)


def fetched_bytes(bed: Bed) -> int:
    with bed.client() as client:
        return client.run(bed.run()).status().fetched_bytes


def test_inputs_that_were_staged_in_before_are_not_fetched(bed: Bed) -> None:
    """And need not be there any more."""
    bed.dagman.start()
    for job in (PREPARE, STAGE_IN):
        assert bed.dagman.transfer(job).code == 0
    bed.compute()
    (bed.sshd.data / "f.a").unlink()
    follower = bed.attach()
    wait_until((bed.dagman.directory / "stager-attached.json").exists, "the workflow to be registered")
    sent = bed.dagman.transfer(STAGE_OUT)
    assert sent.code == 0 and "(by stager)" in sent.said, sent.said
    bed.dagman.end()
    _, err = follower.communicate(timeout=FOLLOWED_S)
    assert follower.returncode == 0, err
    assert "0 inputs to fetch" in err and fetched_bytes(bed) == 0
    with bed.client() as client:
        assert [(run.state, run.jobs_done) for run in client.runs()] == [("succeeded", 6)]


def test_what_jobs_made_before_is_read_where_it_is(staging_bed: Bed, tmp_path: Path) -> None:
    """At the staging site: nobody gives it to stager any more, and nobody waits for it."""
    bed, lab = staging_bed, staging_bed.sshd.data
    staged = lab / "stg" / "r5" / "00" / "00"

    def run(job: str, reads: str, makes: str) -> None:
        done = bed.dagman.task(job, lite(reads, makes, f"scp://lab{staged}"), PLACE=str(tmp_path), PYTHON=sys.executable)
        assert done.code == 0 and "WARNING" not in done.said, done.said

    bed.dagman.start()
    staged.mkdir(parents=True)
    (staged / "f.a").write_bytes(CONTENT)
    for job in ("create_dir_diamond_0_staging", "stage_in_local_staging_0_0"):
        bed.dagman.begins(job)
        bed.dagman.ends(job)
    run("preprocess_pre", "f.a", "f.b1 f.b2")
    follower = bed.attach()
    wait_until((bed.dagman.directory / "stager-attached.json").exists, "the workflow to be registered")
    run("findrange_fr1", "f.b1", "f.c1")
    run("findrange_fr2", "f.b2", "f.c2")
    (staged / "f.c1").unlink()
    run("analyze_an", "f.c1 f.c2", "f.d")
    sent = bed.dagman.transfer("stage_out_local_staging_2_0")
    assert sent.code == 0 and "(by stager)" in sent.said, sent.said
    bed.dagman.end()
    _, err = follower.communicate(timeout=FOLLOWED_S)
    assert follower.returncode == 0, err
    assert fetched_bytes(bed) == 0


def test_an_output_that_was_made_before_goes_home_without_a_warning(staging_bed: Bed) -> None:
    bed, lab = staging_bed, staging_bed.sshd.data
    staged = lab / "stg" / "r5" / "00" / "00"
    staged.mkdir(parents=True)
    (staged / "f.d").write_bytes(b"made")
    bed.dagman.start()
    for job in ("stage_in_local_staging_0_0", "preprocess_pre", "findrange_fr1", "analyze_an"):
        bed.dagman.begins(job)
        bed.dagman.ends(job)
    bed.stager.run("pegasus", "attach", bed.dagman.directory, "--once")
    sent = bed.dagman.transfer("stage_out_local_staging_2_0", PEGASUS_TRANSFER_FALLBACK="/bin/true")
    assert sent.code == 0 and "WARNING" not in sent.said and "are left to /bin/true" in sent.said, sent.said


@pytest.mark.parametrize("code", [0, 1])
def test_a_workflow_that_is_over_is_left_alone(bed: Bed, code: int) -> None:
    bed.dagman.start()
    bed.dagman.transfer(PREPARE)
    bed.dagman.end(code)
    for more in ([], ["--once"]):
        done = bed.stager.run("pegasus", "attach", bed.dagman.directory, *more, code=code)
        assert f"is over: DAGMan ended with {code}" in done.stderr, done.stderr
    assert not (bed.dagman.directory / "stager-attached.json").exists() and not bed.stager.state_dir.exists()


def test_a_run_of_that_name_in_another_state_is_not_this_workflow(bed: Bed, short_dir: Path) -> None:
    """Runs are numbered in each state directory. A state that was removed must not make this the run of another workflow."""
    other = short_dir / "other"
    shutil.copytree(bed.dagman.directory, other)
    place = other / "braindump.yml"
    place.write_text(place.read_text().replace(UUID["sharedfs"][:8], "00000000"))
    out = other / "00" / "00" / f"{STAGE_OUT}.in"
    out.write_text(out.read_text().replace("/out/", "/elsewhere/"))
    bed.stager.run("pegasus", "attach", bed.dagman.directory, "--once")
    fresh = Stager(short_dir / "t", short_dir / "home", bed.dagman.environ)
    try:
        fresh.run("pegasus", "attach", other, "--once")
        assert json.loads((other / "stager-attached.json").read_text())["run"] == bed.run() == "diamond-1"
        fresh.run("pegasus", "attach", bed.dagman.directory, "--once")
        assert bed.run() == "diamond-2"
    finally:
        fresh.end()


def test_a_job_does_not_believe_in_a_run_that_only_has_the_name(bed: Bed) -> None:
    """The state was removed and another workflow attached, while this one runs on."""
    bed.stager.run("pegasus", "attach", bed.dagman.directory, "--once")
    word = bed.dagman.directory / "stager-attached.json"
    said = json.loads(word.read_text())
    word.write_text(json.dumps(said | {"submitted_at": said["submitted_at"] - 1.0}))
    bed.dagman.transfer(PREPARE)
    done = bed.dagman.transfer(STAGE_IN)
    assert done.code == 0 and done.said.count("WARNING") == 1 and "another run of that name" in done.said, done.said
    assert (bed.work / "f.a").read_bytes() == CONTENT


def test_a_word_of_another_user_is_called_so(bed: Bed) -> None:
    bed.stager.run("pegasus", "attach", bed.dagman.directory, "--once")
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(bed.dagman.directory / "stager-attached.json", 1234, 1234)
    bed.dagman.transfer(PREPARE)
    done = bed.dagman.transfer(STAGE_IN)
    assert done.code == 0 and done.said.count("WARNING") == 1 and "belongs to another user" in done.said, done.said


def test_a_run_that_a_person_cancelled_is_called_so(bed: Bed) -> None:
    bed.stager.run("pegasus", "attach", bed.dagman.directory, "--once")
    bed.stager.run("cancel", bed.run(), "--yes")
    done = bed.stager.run("pegasus", "attach", bed.dagman.directory, "--once")
    assert "is cancelled" in done.stderr and f"stager resume {bed.run()}" in done.stderr, done.stderr


def test_a_list_that_is_missing_is_named(bed: Bed) -> None:
    """What the planner says of the job tells that it has one."""
    (bed.dagman.directory / "00" / "00" / f"{STAGE_IN}.in").unlink()
    done = bed.stager.run("pegasus", "attach", bed.dagman.directory, code=2)
    assert f"{STAGE_IN}.in is missing" in done.stderr, done.stderr
    assert not bed.stager.state_dir.exists()


def test_sub_workflows_are_named(bed: Bed) -> None:
    """Each has a submit directory of its own."""
    place = bed.dagman.directory / "diamond-0.dag"
    jobs = list(read_planned(bed.dagman.directory).jobs.values())
    lines = [f"JOB {job.id} {job.path.relative_to(bed.dagman.directory)}.sub" for job in jobs]
    lines += [f"PARENT {parent} CHILD {job.id}" for job in jobs for parent in job.parents]
    place.write_text("\n".join([*lines, "SUBDAG EXTERNAL subdag_inner inner-1.dag DIR 00/00/inner"]))
    done = bed.stager.run("pegasus", "attach", bed.dagman.directory, "--once")
    assert "subdag_inner" in done.stderr and str(bed.dagman.directory / "00/00/inner") in done.stderr, done.stderr
