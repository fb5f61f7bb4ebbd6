"""`stager submit` and its fellows as a user meets them: real scheduler, real I/O node, file origin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.client.warm_start import WHEN_TOLD
from stager.model.units import format_size
from tests.testbed.letters import Letters
from tests.testbed.processes import command_line
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


@pytest.fixture
def letters(short_dir: Path) -> Letters:
    made = Letters(short_dir / "wf", pause_s=0.02)
    made.make(short_dir / "data", f"file:{short_dir / 'data'}")
    return made


def data_of(letters: Letters) -> Path:
    return letters.directory.parent / "data"


def test_submit_runs_a_workflow_and_every_final_is_right_and_durable(stager: Stager, letters: Letters) -> None:
    done = stager.run("submit", letters.workflow)
    letters.check(data_of(letters))
    assert "succeeded" in done.stdout and f"durable  {letters.count + 1} of {letters.count + 1} finals" in done.stdout
    assert set(letters.ended().values()) == {1}
    ledger = stager.json("ledger", "--finals")
    assert {entry["state"] for entry in ledger} == {"durable"} and {entry["verified"] for entry in ledger} <= {
        "readback",
        "origin_checksum",
        "remote_checksum",
    }


def test_finals_have_the_rights_that_the_submitters_umask_gives(stager: Stager, letters: Letters) -> None:
    before = os.umask(0o027)
    try:
        stager.run("submit", letters.workflow)
    finally:
        os.umask(before)
    assert (data_of(letters) / "all.txt").stat().st_mode & 0o777 == 0o640
    assert (data_of(letters) / "out").stat().st_mode & 0o777 == 0o750


def test_a_second_run_takes_inputs_from_the_cache_and_adopts_equal_finals(stager: Stager, letters: Letters) -> None:
    sent = json.loads(stager.run("submit", letters.workflow, "--json", "--quiet").stdout)
    assert sent["uploaded_bytes"] > sent["adopted_bytes"] == 0
    done = stager.run("submit", letters.workflow)
    assert "fetched  0 B" in done.stdout
    assert "there already with the same content" in done.stdout
    again = json.loads(stager.run("submit", letters.workflow, "--json", "--quiet").stdout)
    assert (again["uploaded_bytes"], again["adopted_bytes"]) == (0, sent["uploaded_bytes"])
    assert f"0 B uploaded, {format_size(sent['uploaded_bytes'])} already there" in done.stdout
    status = stager.json("status", again["run"])
    assert (status["uploaded_bytes"], status["upload_bytes_planned"]) == (0, 0)
    letters.check(data_of(letters))


def test_destinations_that_are_there_are_all_named_before_anything_starts(stager: Stager, letters: Letters) -> None:
    data = data_of(letters)
    (data / "out").mkdir()
    for path in ("all.txt", "out/1.txt"):
        (data / path).write_bytes(b"months of work")
    done = stager.run("submit", letters.workflow, code=3)
    assert "2 destinations are there already" in done.stderr and "on_exists: replace" in done.stderr
    assert "data:all.txt" in done.stderr and "data:out/1.txt" in done.stderr and "out/2.txt" not in done.stderr
    assert letters.ended() == {} and stager.scheduler_pid() is None and (data / "all.txt").read_bytes() == b"months of work"
    planned = stager.run("plan", letters.workflow)
    assert "`submit` would refuse this: 2 destinations are there already" in planned.stderr
    for path in ("all.txt", "out/1.txt"):
        (data / path).unlink()
    stager.run("submit", letters.workflow)
    # What a run left stands in nobody's way, whoever submits it again; what somebody wrote over it does.
    stager.run("submit", letters.workflow)
    (data / "out/2.txt").write_bytes(b"notes of somebody")
    done = stager.run("submit", letters.workflow, code=3)
    assert "a destination is there already" in done.stderr and "data:out/2.txt" in done.stderr


def test_a_final_of_an_earlier_run_that_is_made_again_is_told_first(stager: Stager, tmp_path: Path) -> None:
    """After hours of computing the run ends not_durable, where its content is another one."""
    told = "an earlier run left 1 final at its destination, and its job runs again: here:out/a.txt"

    def written(text: str) -> None:
        (tmp_path / "w.yml").write_text(f"stager: 1\njobs: {{a: {{run: echo {text} > a.txt, outputs: {{a.txt: 'here:out/'}}}}}}\n")

    written("one")
    assert told not in stager.run("submit", "w.yml", "--reuse", cwd=tmp_path).stderr
    assert told not in stager.run("submit", "w.yml", "--reuse", cwd=tmp_path).stderr, "its job does not run"
    written("two")
    assert told in stager.run("plan", "w.yml", "--reuse", cwd=tmp_path).stderr
    done = stager.run("submit", "w.yml", "--reuse", cwd=tmp_path, code=4)
    assert done.stderr.index(told) < done.stderr.index("run w-") and "other content is not written there" in done.stderr
    assert (tmp_path / "out" / "a.txt").read_text() == "one\n"
    written("one")
    assert told in stager.run("submit", "w.yml", "--no-reuse", cwd=tmp_path).stderr, "it is adopted"


def test_a_destination_with_other_content_is_not_overwritten(stager: Stager, letters: Letters) -> None:
    """One that was written while the run computed."""
    gate = letters.hold("join")
    process = stager.start("submit", letters.workflow)
    wait_until(lambda: (data_of(letters) / "out").is_dir(), "the run to be under way")
    (data_of(letters) / "all.txt").write_bytes(b"months of work")
    gate.touch()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 4, err
    assert "all.txt" in err and (data_of(letters) / "all.txt").read_bytes() == b"months of work"
    (data_of(letters) / "all.txt").unlink()
    stager.run("resume")
    letters.check(data_of(letters))
    assert set(letters.ended().values()) == {1}, "resume ran a finished job again"


def test_missing_inputs_are_all_named_before_anything_starts(stager: Stager, letters: Letters) -> None:
    for number in (1, 3):
        (data_of(letters) / "in" / f"{number}.txt").unlink()
    done = stager.run("submit", letters.workflow, code=2)
    assert "in/1.txt" in done.stderr and "in/3.txt" in done.stderr
    assert stager.scheduler_pid() is None and not letters.trace.exists()


def test_a_submit_has_the_process_of_its_scheduler_ready_and_ends_one_that_it_does_not_need(stager: Stager, letters: Letters) -> None:
    (data_of(letters) / "in" / "1.txt").rename(data_of(letters) / "away.txt")
    stager.run("submit", letters.workflow, code=2)
    assert not stager.state_dir.exists() and not naming(stager.state_dir)
    (data_of(letters) / "away.txt").rename(data_of(letters) / "in" / "1.txt")
    run = stager.submit(letters.workflow)
    pid = stager.scheduler_pid()
    assert pid is not None and WHEN_TOLD in command_line(pid)
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    assert {os.readlink(f"/proc/{pid}/fd/{stream}") for stream in (1, 2)} == {str(stager.state_dir / "scheduler.log")}
    # Two active runs may not write to one place.
    stager.run("wait", run)
    # A scheduler lives: nobody makes ready for another.
    again = stager.start("submit", letters.workflow)
    again.communicate(timeout=120)
    assert again.returncode == 0 and stager.scheduler_pid() == pid
    assert [each for each in naming(stager.state_dir) if WHEN_TOLD in command_line(each)] == [pid]


def naming(place: Path) -> list[int]:
    """Processes that were started with this path."""
    found = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return [pid for pid in found if str(place) in command_line(pid)]


def test_a_job_that_fails_for_good_is_named_with_its_last_words(stager: Stager, short_dir: Path) -> None:
    workflow = short_dir / "w.yml"
    workflow.write_text(
        f"stager: 1\nname: sad\norigins:\n  o: file:{short_dir}\njobs:\n"
        "  good: {run: 'echo fine > g.txt', outputs: {g.txt: 'o:g.txt'}}\n"
        "  bad: {run: 'echo the detector is cold >&2; exit 3', retries: 1, outputs: {b.txt: 'o:b.txt'}}\n"
        "  after: {run: 'cat b.txt > c.txt', inputs: [b.txt], outputs: {c.txt: 'o:c.txt'}}\n"
    )
    done = stager.run("submit", workflow, code=1)
    assert "bad" in done.stderr and "the detector is cold" in done.stderr and "stager resume" in done.stderr
    assert (short_dir / "g.txt").read_text() == "fine\n", "what does not depend on the failed job must still run"
    status = stager.json("status")
    assert status["jobs"]["done"] == 1 and status["jobs"]["failed"] == 1 and status["jobs"]["skipped"] == 1
    assert [(job["job"], job["attempts"], job["exit_code"]) for job in stager.json("jobs", "--state", "failed")] == [("bad", 2, 3)]
    told = {tuple(line.split()[:2]) for line in stager.run("jobs").stdout.splitlines()[1:]}
    assert told >= {("good", "done"), ("bad", "failed"), ("after", "skipped")}
    logs = stager.run("logs", status["info"]["run"], "bad").stdout
    assert logs.count("the detector is cold") == 2


def test_missing_outputs_fail_the_job_and_are_named(stager: Stager, short_dir: Path) -> None:
    workflow = short_dir / "w.yml"
    workflow.write_text(
        f"stager: 1\nname: w\norigins:\n  o: file:{short_dir}\njobs:\n"
        f"  a: {{run: 'true', outputs: {{x.txt: 'o:x.txt', y.txt: 'o:y.txt'}}}}\n"
    )
    done = stager.run("submit", workflow, code=1)
    assert "x.txt" in done.stderr and "y.txt" in done.stderr and "its sandbox held nothing" in done.stderr
    (short_dir / "in.txt").write_text("in")
    run = "run: 'echo a > x.text; mkdir -p d/e; echo b > d/y.txt; touch $TMPDIR/z', inputs: [o:in.txt], retries: 0"
    workflow.write_text(f"stager: 1\nname: v\norigins:\n  o: file:{short_dir}\njobs:\n  a: {{{run}, outputs: {{x.txt: 'o:x.txt'}}}}\n")
    told = stager.run("submit", workflow, code=1).stderr
    assert "job 'a' did not write x.txt" in told and "beside its inputs its sandbox held 'x.text', 'd/y.txt', 'd/e/'" in told


@pytest.mark.parametrize(
    "end", ["run: 'echo x >> {trace}; exit 3'", "run: 'echo x >> {trace}; kill -9 $$'", "run: 'echo x >> {trace}; sleep 60', timeout: 5"]
)
def test_a_job_that_must_not_run_twice_is_not_tried_again_however_it_ended(stager: Stager, short_dir: Path, end: str) -> None:
    workflow, trace = short_dir / "w.yml", short_dir / "trace"
    workflow.write_text(f"stager: 1\nname: once\njobs:\n  pay: {{{end.format(trace=trace)}, isolate: off, idempotent: false}}\n")
    done = stager.run("submit", workflow, code=1)
    assert trace.read_text() == "x\n" and "idempotent" in done.stderr


def test_an_optional_final_that_was_not_made_is_not_missing(stager: Stager, short_dir: Path) -> None:
    workflow = short_dir / "w.yml"
    outputs = (
        "[{file: made.txt, to: 'o:out/'}, {file: core.dump, optional: true, to: 'o:out/'}, {dir: figures/, optional: true, to: 'o:out/'}]"
    )
    workflow.write_text(
        f"stager: 1\nname: w\norigins:\n  o: file:{short_dir}\njobs:\n  a: {{run: 'echo made > made.txt', outputs: {outputs}}}\n"
    )
    done = stager.run("submit", workflow)
    assert "1 of 1 final," in done.stdout and "missing" not in done.stderr
    status = stager.json("status")
    assert (status["finals_durable"], status["finals_total"]) == (1, 1) and status["uploaded_bytes"] == status["upload_bytes_planned"] == 5
    assert {entry["lfn"]: entry["state"] for entry in stager.json("ledger")} == {
        "made.txt": "durable",
        "core.dump": "not_made",
        "figures": "not_made",
    }


@pytest.mark.parametrize("name", ["a", "job"])
def test_a_failed_job_is_named_even_if_its_name_is_part_of_a_word(stager: Stager, short_dir: Path, name: str) -> None:
    workflow = short_dir / "w.yml"
    workflow.write_text(f"stager: 1\nname: w\njobs:\n  {name}: {{run: 'true', outputs: [x.txt]}}\n")
    said = f"job {name!r} did not write x.txt"
    assert said in stager.run("submit", workflow, code=1).stderr and said in stager.run("status").stdout


def test_a_linked_input_cannot_be_written_even_by_root(stager: Stager, short_dir: Path) -> None:
    (short_dir / "big.bin").write_bytes(b"x" * 3_000_000)
    workflow = short_dir / "w.yml"
    program = "import errno\\ntry: open('big.bin','r+').write('z')\\nexcept OSError as e: print(errno.errorcode[e.errno])"
    workflow.write_text(
        f"stager: 1\nname: w\norigins:\n  o: file:{short_dir}\njobs:\n"
        f"  touch:\n    run: [python3, -c, \"{program}\"]\n    env_pass: [PATH]\n    inputs: ['o:big.bin']\n"
        f"    stdout: said.txt\n    outputs: {{said.txt: 'o:said.txt'}}\n"
    )
    stager.run("submit", workflow)
    assert (short_dir / "said.txt").read_text().strip() in {"EROFS", "EACCES"}
    assert (short_dir / "big.bin").read_bytes() == b"x" * 3_000_000


def test_status_runs_wait_and_json_from_another_terminal(stager: Stager, letters: Letters) -> None:
    run = stager.submit(letters.workflow)
    assert stager.run("wait", run, "--durable", "all.txt").stdout.strip() == "all.txt is durable"
    assert stager.run("wait", run).returncode == 0
    runs = stager.json("runs")
    assert [info["run"] for info in runs] == [run] and runs[0]["state"] == "succeeded"
    assert stager.json("status", run)["finals_durable"] == letters.count + 1
    assert "verified by readback" in stager.run("explain", run, "--file", "all.txt").stdout


def test_ctrl_c_drains_and_resume_goes_on_without_running_anything_twice(stager: Stager, short_dir: Path) -> None:
    letters = Letters(short_dir / "wf", count=6, pause_s=0.02)
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    gate = letters.hold("stamp")
    process = stager.start("submit", letters.workflow)
    wait_until(lambda: any(line.startswith("digest") for line in letters.ended()), "a job to end")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: stager.json("runs")[0]["state"] in ("draining", "interrupted"), "the run to drain")
    gate.touch()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    before = letters.ended()
    assert "stager resume" in err and sum(before.values()) < 2 * letters.count + 1
    stager.run("resume")
    letters.check(short_dir / "data")
    assert set(letters.ended().values()) == {1}


def test_a_scheduler_that_dies_under_its_client_leaves_the_way_to_go_on(stager: Stager, short_dir: Path) -> None:
    letters = Letters(short_dir / "wf", count=2, pause_s=2)
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    submit = stager.start("submit", letters.workflow)
    wait_until(lambda: letters.trace.exists(), "a job to begin")
    pid = stager.scheduler_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _, said = submit.communicate(timeout=120)
    assert submit.returncode == 5 and "go on with: stager resume letters-1" in said
    stager.run("resume", "letters-1")
    letters.check(short_dir / "data")


def test_ctrl_c_twice_stops_at_once_and_can_be_resumed(stager: Stager, short_dir: Path) -> None:
    letters = Letters(short_dir / "wf", count=2, pause_s=0.02)
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    gate = letters.hold("digest")
    process = stager.start("submit", letters.workflow)
    wait_until(lambda: letters.trace.exists(), "a job to begin")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: stager.json("runs")[0]["state"] == "draining", "the run to drain")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert not letters.ended() and not stager.reaper_pids()
    gate.touch()
    stager.run("resume")
    letters.check(short_dir / "data")


def test_cancel_names_what_is_lost_and_leaves_no_process_and_no_bytes(stager: Stager, short_dir: Path) -> None:
    letters = Letters(short_dir / "wf", count=2, pause_s=0.02)
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    letters.hold("stamp")
    run = stager.submit(letters.workflow)
    wait_until(lambda: stager.json("status", run)["jobs"].get("done", 0) >= 1, "an intermediate to be made")
    refused = stager.run("cancel", run, code=None)
    assert "would be lost" in refused.stderr and "mid/" in refused.stderr and refused.returncode != 0
    stager.run("cancel", run, "--yes")
    assert stager.run("wait", run, code=8).stdout.strip().endswith("cancelled")
    assert not stager.reaper_pids()


def test_a_second_active_run_with_the_same_destinations_is_refused_by_name(stager: Stager, short_dir: Path) -> None:
    letters = Letters(short_dir / "wf", count=2, pause_s=0.02)
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    gate = letters.hold("join")
    run = stager.submit(letters.workflow)
    done = stager.run("submit", letters.workflow, code=3)
    assert run in done.stderr and "all.txt" in done.stderr
    gate.touch()
    stager.run("wait", run)


def test_a_plan_is_the_same_bytes_each_time_and_is_refused_when_an_input_changed(stager: Stager, letters: Letters, short_dir: Path) -> None:
    for path in (data_of(letters) / "in").iterdir():
        # A plan over inputs that were written a moment ago says so, and a later one does not.
        os.utime(path, (1_600_000_000, 1_600_000_000))
    plan = short_dir / "plan.json"
    stager.run("plan", letters.workflow, "--output", plan)
    first = plan.read_bytes()
    stager.env = {"PYTHONHASHSEED": "77"}
    stager.run("plan", letters.workflow, "--output", plan)
    assert plan.read_bytes() == first
    (data_of(letters) / "in" / "0.txt").write_bytes(b"other content")
    done = stager.run("submit", letters.workflow, "--plan", plan, code=3)
    assert "in/0.txt" in done.stderr
    (data_of(letters) / "in" / "0.txt").write_bytes(letters.content(0))
    stager.run("plan", letters.workflow, "--output", plan)
    stager.run("submit", letters.workflow, "--plan", plan)
    letters.check(data_of(letters))


def test_a_simulated_plan_starts_nothing_and_counts_what_a_real_run_moves(stager: Stager, letters: Letters) -> None:
    said = stager.run("plan", letters.workflow, "--simulate").stdout
    assert stager.scheduler_pid() is None and not letters.trace.exists()
    assert "simulated: succeeded" in said and "fetched  4 MB" in said
    assert "fetched  4 MB" in stager.run("submit", letters.workflow).stdout


def test_at_the_smallest_capacity_a_run_is_slower_never_stuck_never_over(stager: Stager, short_dir: Path) -> None:
    letters = Letters(short_dir / "wf", count=8, size_bytes=2_000_000, pause_s=0.01)
    letters.make(short_dir / "data", f"file:{short_dir / 'data'}")
    text = letters.workflow.read_text().replace('outputs: ["mid/{n}.txt"]', 'outputs: {"mid/{n}.txt": {size: 2.1 MB}}')
    letters.workflow.write_text(text + "io_hints: {stamp: {output: 2.1 MB}, join: {output: 17 MB}}\n")
    plan = json.loads(stager.run("plan", letters.workflow, "--json").stdout)
    capacity = int(plan["smallest_capacity_bytes"] * 1.1)
    done = stager.run("submit", letters.workflow, "--capacity", str(capacity))
    letters.check(short_dir / "data")
    assert "succeeded" in done.stdout
    measured = json.loads(stager.run("plan", letters.workflow, "--json").stdout)["smallest_capacity_bytes"]
    refused = stager.run("submit", letters.workflow, "--capacity", str(measured - 1), code=3)
    assert str(measured) in refused.stderr


def test_the_scheduler_and_its_node_end_by_themselves(stager: Stager, letters: Letters) -> None:
    stager.idle_exit_s = 3.0  # longer than its client is silent on a busy machine
    stager.run("submit", letters.workflow)
    wait_until(lambda: not stager.living(), "the idle scheduler and its node to end")


def test_gc_removes_finished_runs_and_the_cache(stager: Stager, letters: Letters) -> None:
    stager.run("submit", letters.workflow)
    report = stager.json("gc", "--cache")
    assert report["runs"] == [] and report["logs"] == 1 and report["freed_bytes"] > 0
    run = stager.json("runs")[0]["run"]
    assert stager.json("ledger", run) and stager.json("report", run)
    assert stager.json("gc", run[:-1])["runs"] == [run] and stager.json("runs") == []
    letters.check(data_of(letters))


def test_no_secret_is_in_any_file_of_the_state_directory(stager: Stager, letters: Letters) -> None:
    text = letters.workflow.read_text()
    letters.workflow.write_text(text.replace("env: {TRACE", "env_pass: [LETTER_TOKEN]\n    env: {TRACE", 1))
    stager.env = {"LETTER_TOKEN": "hush-5f1c9e"}
    stager.run("submit", letters.workflow)
    found = subprocess.run(["grep", "-rl", "hush-5f1c9e", str(stager.state_dir)], capture_output=True, text=True, check=False).stdout
    assert found == "", f"the secret is in {found}"
