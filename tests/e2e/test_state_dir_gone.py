"""The state directory is removed under a run: its scheduler, its I/O node and its jobs notice and end, and who follows the run is told."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.client import connect
from stager.model.errors import Refused, Transient
from tests.testbed.letters import Letters
from tests.testbed.processes import is_alive
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


@pytest.mark.parametrize("how", ["removed", "replaced", "emptied"])
def test_all_of_a_removed_state_directory_ends_and_its_client_says_so(stager: Stager, letters: Letters, how: str) -> None:
    letters.hold("digest")
    following = stager.start("submit", letters.workflow)
    try:
        wait_until(lambda: len(stager.reaper_pids()) == 2, "both slots to have a job")
        client = connect(stager.state_dir)
        assert client is not None
        pids = {"scheduler": stager.scheduler_pid(), "node": stager.node_pid(), **dict(enumerate(stager.reaper_pids()))}
        assert all(pids.values())
        if how == "emptied":
            # As `rm -r` does it: what is still written to meanwhile keeps the directories that hold it.
            shutil.rmtree(stager.state_dir, ignore_errors=True)
            stager.state_dir.mkdir(mode=0o700, exist_ok=True)
        else:
            stager.state_dir.rename(stager.state_dir.with_name("gone"))
        if how == "removed":
            shutil.rmtree(stager.state_dir.with_name("gone"), ignore_errors=True)
        elif how == "replaced":
            stager.state_dir.mkdir(mode=0o700)
        wait_until(lambda: not any(is_alive(pid) for pid in pids.values() if pid), f"{pids} to end")
        out, err = following.communicate(timeout=120)
    finally:
        following.kill()
        following.wait()
    assert following.returncode == 3, (out, err)
    assert f"the state directory {stager.state_dir} was removed or replaced" in err and "submit the workflow again" in err, err
    with client, pytest.raises(Refused, match="was removed or replaced"):
        client.runs()
    if how != "emptied":
        assert not (stager.state_dir / "node").exists(), "nothing was made anew in its place"


def test_a_client_of_a_scheduler_that_ended_in_order_is_not_told_of_a_directory(stager: Stager, letters: Letters) -> None:
    """It can be resumed."""
    stager.run("submit", letters.workflow)
    client = connect(stager.state_dir)
    assert client is not None
    stager.run("shutdown")
    wait_until(lambda: stager.scheduler_pid() is None, "the scheduler to end")
    with client, pytest.raises(Transient):
        client.runs()
