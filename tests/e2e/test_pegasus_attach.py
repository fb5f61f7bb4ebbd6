"""`stager pegasus attach` beside a workflow of Pegasus: recorded plans, stager-transfer in the loop, a real scheduler, node and sshd.

One rule: what crossed the line is counted by the servers' own logs and files, and the exit codes are those without stager.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.adapters.profiles_store import read_profiles
from stager.client import connect
from stager.client.socket_engines import SocketEngineRun
from stager.readers.pegasus_attached import attached_workflow
from stager.readers.pegasus_planned import read_planned
from stager.service import pegasus_attach
from stager.service.pegasus_attach import Follower
from stager.service.state_dir import StateDir
from tests.e2e.pegasus_rig import CLEANUPS, CONTENT, FOLLOWED_S, PREPARE, STAGE_IN, STAGE_OUT, Bed, bed_with_staging_away, lite, shared_bed
from tests.e2e.serve_rig import Service
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

END = "cleanup_diamond_0_local"


@pytest.fixture
def bed(sshd: Sshd, short_dir: Path) -> Iterator[Bed]:
    yield from shared_bed(sshd, short_dir)


@pytest.fixture
def staging_bed(sshd: Sshd, short_dir: Path) -> Iterator[Bed]:
    yield from bed_with_staging_away(sshd, short_dir)


def test_a_planned_workflow_is_staged_from_first_to_last(bed: Bed) -> None:
    follower = bed.attach()
    bed.prefetched()
    bed.sshd.stop()
    bed.dagman.start()
    assert bed.dagman.transfer(PREPARE).code == 0
    reports = bed.dagman.directory / "multipart"
    reports.mkdir()
    staged = bed.dagman.transfer(STAGE_IN, PEGASUS_MULTIPART_DIR=str(reports))
    assert staged.code == 0, staged.said
    assert (bed.work / "f.a").read_bytes() == CONTENT, "from the cache: the lab is off"
    (report,) = reports.iterdir()
    assert report.read_text().count("src_url") == 1, "and nothing else was tried"
    assert (bed.work / "f.a").stat().st_mode & 0o777 == 0o644
    bed.sshd.start()
    bed.compute()
    sent = bed.dagman.transfer(STAGE_OUT)
    assert sent.code == 0 and "(by stager)" in sent.said, sent.said
    assert (bed.sshd.data / "new" / "out" / "f.d").read_bytes() == (bed.work / "f.d").read_bytes()
    for job in (*CLEANUPS, END):
        assert bed.dagman.transfer(job).code == 0
    bed.dagman.end()
    out, err = follower.communicate(timeout=FOLLOWED_S)
    assert follower.returncode == 0, f"{out}\n{err}\n{bed.stager.log_tail()}"
    with bed.client() as client:
        (run,) = client.runs()
        summary = client.run(run.run).summary()
    assert (run.state, run.jobs_done, summary.fetched_bytes) == ("succeeded", 6, len(CONTENT))
    profiles = read_profiles(StateDir(bed.stager.state_dir).profiles)
    assert set(profiles) == {"preprocess", "findrange", "analyze"}, "of calls no samples are taken"
    wall_s = profiles["preprocess"].wall_s
    assert wall_s is not None and (wall_s.median, wall_s.samples, wall_s.imported) == (0.011, 1, False)


def test_with_staging_elsewhere_jobs_exchange_their_files_here(staging_bed: Bed, tmp_path: Path) -> None:
    """What jobs made is at the staging site as well; that it is read from the cache is seen by taking it away there."""
    bed, lab = staging_bed, staging_bed.sshd.data
    staged = lab / "stg" / "r5" / "00" / "00"
    follower = bed.attach()
    bed.prefetched()
    bed.dagman.start()
    (lab / "f.a").rename(lab / "gone")
    for job in ("create_dir_diamond_0_staging", "stage_in_local_staging_0_0"):
        done = bed.dagman.transfer(job)
        assert done.code == 0 and "WARNING" not in done.said, done.said
    assert (staged / "f.a").read_bytes() == CONTENT

    def run(job: str, reads: str, makes: str) -> None:
        script = lite(reads, makes, f"scp://lab{staged}")
        done = bed.dagman.task(job, script, PLACE=str(tmp_path), PYTHON=sys.executable)
        assert done.code == 0 and "WARNING" not in done.said, done.said
        for name in makes.split():
            assert (staged / name).is_file(), "at the staging site as without stager"
            (staged / name).unlink()

    (staged / "f.a").unlink()
    run("preprocess_pre", "f.a", "f.b1 f.b2")
    run("findrange_fr1", "f.b1", "f.c1")
    run("findrange_fr2", "f.b2", "f.c2")
    run("analyze_an", "f.c1 f.c2", "f.d")
    sent = bed.dagman.transfer("stage_out_local_staging_2_0")
    assert sent.code == 0 and "(by stager)" in sent.said, sent.said
    made = (lab / "out" / "f.d").read_bytes()
    assert made.endswith(b"f.d\n") and made.startswith(CONTENT.upper()) and b"F.B2\n" in made
    bed.dagman.end()
    _, err = follower.communicate(timeout=FOLLOWED_S)
    assert follower.returncode == 0, f"{err}\n{bed.stager.log_tail()}"
    with bed.client() as client:
        (run_info,) = client.runs()
        assert (run_info.state, run_info.jobs_done) == ("succeeded", 6)
        assert client.run(run_info.run).summary().fetched_bytes == len(CONTENT)


def test_killed_anywhere_the_workflow_goes_on_and_the_input_crosses_the_line_once(bed: Bed) -> None:
    """attach dies, and then the scheduler; both come back by the same command, and read the log anew."""
    follower = bed.attach()
    bed.prefetched()
    follower.send_signal(signal.SIGINT)
    assert "go on" in follower.communicate()[1] and follower.returncode == 130
    follower = bed.attach()
    follower.kill()
    follower.communicate()
    bed.dagman.start()
    bed.dagman.transfer(PREPARE)
    assert bed.dagman.transfer(STAGE_IN).code == 0
    with bed.client() as client:
        os.kill(client.health().pid, signal.SIGKILL)
    wait_until(lambda: bed.stager.scheduler_pid() is None, "the scheduler to be gone")
    bed.compute()
    first = bed.run()
    follower = bed.attach()
    with wait_until(lambda: connect(bed.stager.state_dir), "the scheduler to be back") as client:
        wait_until(lambda: client.health().ready, "it to be ready")
        wait_until(lambda: client.run(first).wait(timeout_s=0).state == "active", "the run to go on")
    sent = bed.dagman.transfer(STAGE_OUT)
    assert sent.code == 0 and "(by stager)" in sent.said, sent.said
    bed.dagman.end()
    follower.communicate(timeout=FOLLOWED_S)
    assert follower.returncode == 0
    with bed.client() as client:
        (run,) = client.runs()
        assert (run.run, run.state, run.jobs_done) == (first, "succeeded", 6), "told anew from the log"
        assert client.run(first).summary().fetched_bytes == len(CONTENT)


def test_without_the_scheduler_all_is_done_as_ever_after_one_warning(bed: Bed) -> None:
    bed.attach()
    bed.prefetched()
    bed.stager.run("shutdown", "--now")
    bed.followers[0].kill()
    bed.stager.end()
    for job in (PREPARE, STAGE_IN):
        done = bed.dagman.transfer(job)
        assert done.code == 0, done.said
        assert done.said.count("WARNING") == (job == STAGE_IN), done.said
    assert (bed.work / "f.a").read_bytes() == CONTENT
    bed.compute()
    done = bed.dagman.transfer(STAGE_OUT)
    assert done.code == 0 and done.said.count("WARNING") == 1, done.said
    assert (bed.sshd.data / "new" / "out" / "f.d").read_bytes() == (bed.work / "f.d").read_bytes()


def test_a_service_that_is_restarted_is_waited_for_and_not_replaced(bed: Bed, short_dir: Path) -> None:
    """`stager serve` on the same state directory: attach finds it there, and one that is ended in order comes back by its administrator."""
    service = Service(short_dir / "service", "[tenants.me]\n", env=dict(bed.dagman.environ)).start()
    bed.stager = service.stager
    try:
        follower = bed.attach()
        bed.prefetched()
        bed.dagman.start()
        bed.dagman.transfer(PREPARE)
        assert bed.dagman.transfer(STAGE_IN).code == 0
        service.stop()
        bed.compute()
        assert follower.stderr is not None
        assert any("the service of" in line for line in follower.stderr), "attach waits for it"
        assert bed.stager.scheduler_pid() is None
        service.start()
        sent = bed.dagman.transfer(STAGE_OUT)
        assert sent.code == 0 and "(by stager)" in sent.said, sent.said
        bed.dagman.end()
        _, err = follower.communicate(timeout=FOLLOWED_S)
        assert follower.returncode == 0, f"{err}\n{service.log.read_text()}"
        with bed.client() as client:
            assert [(run.state, run.jobs_done) for run in client.runs()] == [("succeeded", 6)]
    finally:
        service.end()


@pytest.mark.parametrize("wrong", ["open to others", "another workflow", "no JSON", "switched off"])
def test_a_word_that_is_not_attachs_is_not_believed(bed: Bed, wrong: str) -> None:
    """No scheduler lives here: whoever believed it would warn of that instead."""
    bed.dagman.transfer(PREPARE)
    place = bed.dagman.directory / "stager-attached.json"
    uuid = "another" if wrong == "another workflow" else bed.dagman.uuid
    word = {"format": 1, "uuid": uuid, "run": "diamond-1", "socket": str(bed.scratch / "nobody.sock"), "stage_out": []}
    place.write_text("{" if wrong == "no JSON" else json.dumps(word))
    place.chmod(0o666 if wrong == "open to others" else 0o600)
    off = {"STAGER_ATTACHED": ""} if wrong == "switched off" else {}
    done = bed.dagman.transfer(STAGE_IN, **off)
    said = {
        "open to others": "can be written by others",
        "another workflow": "is of another workflow",
        "no JSON": "is not what attach writes",
    }
    assert done.code == 0 and (bed.work / "f.a").read_bytes() == CONTENT
    assert done.said.count("WARNING") == (wrong != "switched off") and said.get(wrong, "") in done.said, done.said


def test_a_job_that_fails_and_a_rescue(bed: Bed) -> None:
    """DAGMan ends with a failure, and goes on where it was when it is started again: the log is rotated by then."""
    follower = bed.attach()
    bed.prefetched()
    bed.dagman.start()
    bed.dagman.transfer(PREPARE)
    assert bed.dagman.transfer(STAGE_IN).code == 0
    assert bed.dagman.task("preprocess_pre", "exit 3").code == 3
    bed.dagman.end(1)
    _, err = follower.communicate(timeout=FOLLOWED_S)
    assert follower.returncode == 1, err
    log = bed.dagman.directory / "jobstate.log"
    log.rename(log.with_name("jobstate.log.000"))
    bed.dagman.start()
    follower = bed.attach()
    bed.compute()
    assert bed.dagman.transfer(STAGE_OUT).code == 0
    bed.dagman.end()
    _, err = follower.communicate(timeout=FOLLOWED_S)
    assert follower.returncode == 0, f"{err}\n{bed.stager.log_tail()}"
    assert (bed.sshd.data / "new" / "out" / "f.d").is_file()
    with bed.client() as client:
        assert [(run.state, run.jobs_done) for run in client.runs()] == [("succeeded", 6)]


def test_what_cannot_be_attached_is_said_before_anything_begins(bed: Bed, short_dir: Path) -> None:
    (bed.sshd.data / "f.a").unlink()
    done = bed.stager.run("pegasus", "attach", bed.dagman.directory, code=2)
    assert "input 'f.a' is missing" in done.stderr
    done = bed.stager.run("pegasus", "attach", short_dir, code=2)
    assert "is no submit directory of Pegasus" in done.stderr
    assert not bed.stager.state_dir.exists() and not (bed.dagman.directory / "stager-attached.json").exists()


def test_what_a_task_that_died_between_its_lists_held_is_given_back(
    staging_bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed, staged = staging_bed, staging_bed.sshd.data / "stg" / "r5" / "00" / "00"
    bed.stager.run("pegasus", "attach", bed.dagman.directory, "--once")
    script = lite("f.a", "f.b1 f.b2", f"scp://lab{staged}").replace("for name in", "exit 3\nfor name in")
    assert bed.dagman.task("preprocess_pre", script, PLACE=str(tmp_path), PYTHON=sys.executable).code == 3
    planned = read_planned(bed.dagman.directory)
    follower = Follower(planned, attached_workflow(planned))
    with bed.client() as client:
        run = SocketEngineRun(client, bed.run())
        follower.poll(run)
        follower.give_back(client, run)
        assert [running.job for running in client.run(bed.run()).status().running] == ["preprocess_pre"], "another try may begin"
        monkeypatch.setattr(pegasus_attach, "LOST_AFTER_S", 0.0)
        follower.give_back(client, run)
        wait_until(lambda: not client.run(bed.run()).status().running, "the call to be given up")


def test_a_task_reads_from_the_staging_site_where_the_scheduler_does_not_answer(staging_bed: Bed, tmp_path: Path) -> None:
    bed, staged = staging_bed, staging_bed.sshd.data / "stg" / "r5" / "00" / "00"
    staged.mkdir(parents=True)
    (staged / "f.a").write_bytes(b"abc")
    word = {"format": 1, "uuid": bed.dagman.uuid, "run": "diamond-1", "socket": str(tmp_path / "nobody.sock"), "stage_out": []}
    (bed.dagman.directory / "stager-attached.json").write_text(json.dumps(word))
    (bed.dagman.directory / "stager-attached.json").chmod(0o600)
    script = lite("f.a", "f.b1 f.b2", f"scp://lab{staged}")
    done = bed.dagman.task("preprocess_pre", script, PLACE=str(tmp_path), PYTHON=sys.executable)
    assert done.code == 0 and done.said.count("WARNING") == 2, done.said
    assert (staged / "f.b2").read_bytes() == b"ABCf.b2\n"
