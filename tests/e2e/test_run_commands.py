"""Commands about runs as a user types them: on runs that are over, for programs, and where capacity is short."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from stager.cli.main import stager as program
from tests.testbed.stager import Stager

HEAD = "stager: 1\nname: w\norigins:\n  o: file:data\njobs:\n"


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    made = Stager(short_dir / "s", short_dir / "home")
    yield made
    made.end()


def quick(place: Path, job: str = "{run: 'echo x > x.txt', outputs: {x.txt: 'o:x.txt'}}") -> Path:
    (place / "data").mkdir(exist_ok=True)
    workflow = place / "w.yml"
    workflow.write_text(f"{HEAD}  a: {job}\n")
    return workflow


def test_a_run_that_is_over_says_so_and_nothing_else_happens(stager: Stager, short_dir: Path) -> None:
    stager.run("submit", quick(short_dir))
    refused = stager.run("cancel", "w-1", code=3)
    assert "has ended already: it is succeeded" in refused.stderr and "cancel run" not in refused.stderr
    done = stager.run("resume", "w-1")
    assert "has succeeded: there is nothing to do" in done.stdout and "resumed" not in done.stderr
    stager.run("wait", "w-1", "--durable", "x.txt")
    missing = stager.run("wait", "w-1", "--durable", "nosuch", code=2)
    assert "'nosuch' is no final" in missing.stderr


def test_programs_read_ids_states_and_stories_as_json(stager: Stager, short_dir: Path) -> None:
    detached = json.loads(stager.run("submit", quick(short_dir), "--detach", "--json").stdout)
    assert detached["run"] == "w-1"
    waited = stager.json("wait", "w-1")
    assert (waited["run"], waited["finished"], waited["state"]) == ("w-1", True, "succeeded")
    assert stager.json("wait", "w-1", "--durable", "x.txt")["durable"] is True
    whole = json.loads(stager.run("submit", quick(short_dir), "--json").stdout)
    assert (whole["run"], whole["outcome"], whole["finals_durable"]) == ("w-2", "succeeded", 1)
    timeline = stager.json("explain", "w-1", "--file", "x.txt")
    assert timeline["subject"] == "x.txt" and timeline["lines"]


def test_ids_of_runs_are_completed_without_a_scheduler(stager: Stager, short_dir: Path) -> None:
    stager.run("submit", quick(short_dir))
    stager.run("shutdown")
    complete = BashComplete(program, {}, "stager", "_STAGER_COMPLETE")
    before = ["--state-dir", str(stager.state_dir)]
    for name in ("status", "wait", "jobs", "logs", "explain", "ledger", "resume", "cancel"):
        assert [item.value for item in complete.get_completions([name, *before], "w")] == ["w-1"], name
    assert complete.get_completions(["status", *before], "other") == []
    assert complete.get_completions(["status", "--state-dir", str(short_dir / "nowhere")], "w") == []


def test_a_living_scheduler_keeps_its_capacity_and_the_client_says_so(stager: Stager, short_dir: Path) -> None:
    stager.idle_exit_s = 60.0
    stager.run("submit", quick(short_dir), "--capacity", "1 GB")
    assert "stager shutdown" not in stager.run("submit", quick(short_dir), "--capacity", "1 GB").stderr
    said = stager.run("submit", quick(short_dir), "--capacity", "3 GB").stderr
    assert "has 1 GB of capacity" in said and "stager shutdown" in said


def test_a_run_for_which_space_was_short_says_how_to_give_more(stager: Stager, short_dir: Path) -> None:
    workflow = quick(short_dir, "{run: 'head -c 5000000 /dev/zero > x.txt', outputs: {x.txt: {to: 'o:x.txt', size: 1 KB}}, retries: 0}")
    said = stager.run("submit", workflow, "--capacity", "2 MB", code=None).stderr
    assert "stager resume w-1 --capacity SIZE" in said
    done = stager.run("resume", "w-1", "--capacity", "1 GB")
    assert "succeeded" in done.stdout and (short_dir / "data" / "x.txt").stat().st_size == 5_000_000


def test_capacity_is_not_changed_under_a_scheduler_that_is_needed(stager: Stager, short_dir: Path) -> None:
    gate = short_dir / "gate"
    stager.run("submit", quick(short_dir, held(gate)), "--capacity", "1 GB", "--detach")
    refused = stager.run("resume", "w-1", "--capacity", "3 GB", code=3).stderr
    assert "has 1 GB of capacity, not 3 GB" in refused and "w-1" in refused
    stager.run("resume", "w-1", "--server", "http://127.0.0.1:1", "--capacity", "3 GB", code=2)
    gate.touch()
    stager.run("wait", "w-1")


def held(gate: Path) -> str:
    return f"{{run: 'until test -e {gate}; do sleep 0.05; done; echo x > x.txt', outputs: {{x.txt: 'o:x.txt'}}}}"


def test_several_runs_are_cancelled_at_once_and_none_where_one_is_over(stager: Stager, short_dir: Path) -> None:
    stager.run("submit", quick(short_dir))
    names = ["w-1"]
    for place in ("p", "q"):
        (short_dir / place).mkdir()
        names.append(stager.run("submit", quick(short_dir / place, held(short_dir / "gate")), "--detach").stdout.strip())
    refused = stager.run("cancel", *names, "--yes", code=3)
    assert "w-1 has ended already" in refused.stderr
    assert {run["run"]: run["state"] for run in stager.json("runs")} == {"w-1": "succeeded", "w-2": "active", "w-3": "active"}
    done = stager.run("cancel", "w-2", "w-3", "w-2", "--yes")
    assert done.stdout.splitlines() == ["run w-2: cancelled", "run w-3: cancelled"]


def test_a_directory_for_finals_is_made_and_a_disk_that_is_not_mounted_is_not(stager: Stager, short_dir: Path) -> None:
    workflow = short_dir / "w.yml"
    workflow.write_text(f"{HEAD.replace('file:data', 'file:new/deep')}  a: {{run: 'echo x > x', outputs: {{x: 'o:out/x'}}}}\n")
    assert "submit` makes it" in stager.run("check", workflow).stdout and not (short_dir / "new").exists()
    stager.run("submit", workflow)
    assert (short_dir / "new" / "deep" / "out" / "x").read_text() == "x\n"
    workflow.write_text(f"{HEAD.replace('file:data', 'file:/mnt/no-such-disk')}  a: {{run: 'echo x > x', outputs: {{x: 'o:x'}}}}\n")
    refused = stager.run("submit", workflow, code=3)
    assert "is not mounted" in refused.stderr and not Path("/mnt/no-such-disk").exists()


def test_a_state_of_a_ledger_that_is_no_promise_is_explained(stager: Stager, short_dir: Path) -> None:
    workflow = quick(
        short_dir, "{run: 'echo x > mid', outputs: [mid]}\n  b: {run: 'cp mid x.txt', inputs: [mid], outputs: {x.txt: 'o:x.txt'}}"
    )
    stager.run("submit", workflow)
    assert {entry["lfn"]: entry["state"] for entry in stager.json("ledger", "w-1")} == {"mid": "kept", "x.txt": "durable"}
    assert "kept results: 2 B, evictable: " in stager.run("ledger", "w-1").stdout
    stager.run("submit", quick(short_dir, "{run: 'echo x > y.txt', outputs: {y.txt: 'o:y.txt'}}"))
    assert [entry["state"] for entry in stager.json("ledger", "w-2")] == ["durable"]
    assert "kept results: " not in stager.run("ledger", "w-2").stdout


def test_jobs_tell_when_their_newest_try_began_how_long_it_took_and_what_memory_it_had(stager: Stager, short_dir: Path) -> None:
    big = f"{sys.executable} -c 'import time; x = bytearray(60_000_000); time.sleep(0.3)'"
    before = time.time()
    stager.run(
        "submit", quick(short_dir, f'{{run: "{big} && echo x > x.txt", outputs: {{x.txt: "o:x.txt"}}}}\n  b: {{run: "exit 3"}}'), code=1
    )
    first, second = stager.json("jobs", "w-1")
    assert before <= first["started_at"] <= time.time() and 0.3 <= first["duration_s"] < 60
    assert 60_000_000 < first["memory_peak_bytes"] < 200_000_000
    assert second["started_at"] >= before and second["exit_code"] == 3
    head, *rows = stager.run("jobs", "w-1").stdout.splitlines()
    assert {"started", "took", "memory"} <= set(head.split()) and " MB " in rows[0]


def test_logs_are_followed_as_they_are_written_until_the_job_needs_no_more_tries(stager: Stager, short_dir: Path) -> None:
    gate = short_dir / "gate"
    shell = f"echo one; printf caf; until test -e {gate}; do sleep 0.05; done; echo é; echo told >&2; test $STAGER_JOB = b"
    stager.run("submit", quick(short_dir, f"{{run: '{shell}', retries: 1}}"), "--detach")
    following = stager.start("logs", "w-1", "a", "--follow")
    assert following.stdout is not None
    assert [following.stdout.readline() for _ in range(2)] == ["==> 1 stdout\n", "one\n"]
    gate.touch()
    out = following.stdout.read()
    assert following.wait(120) == 0
    assert out.splitlines() == ["café", "==> 1 stderr", "told", "==> 2 stdout", "one", "café", "==> 2 stderr", "told"]
    stager.run("logs", "w-1", "a", "--follow", "--json", code=2)
