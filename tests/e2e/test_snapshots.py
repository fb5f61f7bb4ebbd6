"""A scheduler that is killed after a snapshot goes on from there, on real processes, and nobody can tell it from one that replayed all."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.client import Client
from stager.runtime.past import EVENTS_MIN
from tests.e2e.service_rig import Rig
from tests.testbed.processes import is_alive

# Each brings an event of its input, its end and its final.
PAIRS = EVENTS_MIN // 3 + 60


@pytest.fixture
def rig(short_dir: Path) -> Iterator[Rig]:
    made = Rig(short_dir)
    yield made
    made.end()


def wide(rig: Rig, go: Path) -> tuple[str, Client]:
    """Enough small jobs for a snapshot while one, and what waits for it, goes on for as long as the test wants."""
    names = [f"j{number:03}" for number in range(PAIRS)]
    files = [rig.source(f"{name}.in", f"{name}\n".encode()) for name in names] + [rig.final(f"{name}.out") for name in names]
    jobs = [rig.job(name, f"cat {name}.in > {name}.out", (f"{name}.in",), (f"{name}.out",)) for name in names]
    jobs.append(rig.job("long", f"until test -e {go}; do sleep 0.05; done; echo long > long.out", (), ("long.out",)))
    jobs.append(rig.job("after", "cat long.out > after.out", ("long.out",), ("after.out",)))
    client = rig.client()
    return rig.submit(client, rig.workflow("wide", [*files, rig.final("long.out"), rig.final("after.out")], jobs)), client


def log_of(rig: Rig) -> str:
    return (rig.stager.state_dir / "scheduler.log").read_text()


def snapshot_batch(rig: Rig) -> int:
    """The last batch in the snapshot that lies there; 0: there is none."""
    db = sqlite3.connect(f"file:{rig.stager.state_dir / 'journal.sqlite'}?mode=ro", uri=True)
    row = db.execute("SELECT seq FROM snapshot").fetchone()
    db.close()
    return row[0] if row else 0


def kill_scheduler(rig: Rig) -> None:
    pid = rig.stager.scheduler_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    rig.until(lambda: not is_alive(pid), "the scheduler to be gone")


def assert_all_there(rig: Rig, client: Client, run: str, interrupted_max: int = 0) -> None:
    """`interrupted_max`: so many attempts may have been given up that were being started when the scheduler was killed."""
    assert rig.finished(client, run) == "succeeded"
    assert rig.ran() == Counter([f"j{number:03}" for number in range(PAIRS)] + ["long", "after"])
    for number in range(PAIRS):
        assert (rig.data / f"out/j{number:03}.out").read_text() == f"j{number:03}\n"
    assert (rig.data / "out/after.out").read_text() == "long\n"
    steps = list(client.run(run).follow())
    assert [step.seq for step in steps] == list(range(1, len(steps) + 1))
    kinds = Counter(step.kind for step in steps)
    attempts = PAIRS + 2 + kinds["requeue_job"]
    assert kinds["requeue_job"] <= interrupted_max
    assert (kinds["run_submitted"], kinds["start_attempt"], kinds["attempt_ended"], kinds["finish_run"]) == (1, attempts, attempts, 1)
    summary = client.run(run).summary()
    assert (summary.attempts, summary.finals_durable) == (attempts, PAIRS + 2)


def test_killed_after_a_snapshot_it_goes_on_from_there(rig: Rig) -> None:
    go = rig.data / "go"
    run, client = wide(rig, go)
    rig.until(lambda: snapshot_batch(rig), "a snapshot")
    assert client.run(run).status().info.state == "active"
    kill_scheduler(rig)
    batch = snapshot_batch(rig)
    assert "batches after the snapshot" not in log_of(rig)
    client = rig.client()
    assert f"after the snapshot of batch {batch} in" in log_of(rig)
    go.touch()
    assert_all_there(rig, client, run, interrupted_max=1)


def test_ended_in_order_the_next_one_has_nothing_to_replay(rig: Rig) -> None:
    """What happened since the last snapshot is in one that is taken at the end."""
    (rig.data / "go").touch()
    run, client = wide(rig, rig.data / "go")
    assert rig.finished(client, run) == "succeeded"
    while_it_ran = snapshot_batch(rig)
    rig.stager.run("shutdown")
    rig.until(lambda: rig.stager.scheduler_pid() is None, "the scheduler to end")
    assert 0 < while_it_ran < snapshot_batch(rig)
    client = rig.client()
    assert f"replayed 0 batches after the snapshot of batch {snapshot_batch(rig)} in" in log_of(rig)
    assert_all_there(rig, client, run)
