"""Commands about runs as a user types them: on runs that are over, for programs, and where capacity is short."""

from __future__ import annotations

import json
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
    story = stager.json("explain", "w-1", "--file", "x.txt")
    assert story["subject"] == "x.txt" and story["lines"]


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
    assert "stager shutdown" in said and "STAGER_CAPACITY" in said and "stager resume w-1" in said
