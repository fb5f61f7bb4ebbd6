"""Past brought back from a snapshot and the batches after it are those that a replay of all batches makes, and hold what was lived."""

from __future__ import annotations

import logging
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stager.adapters.journal_sqlite import SqliteJournal
from stager.planning.policy import Limits, Policy
from stager.ports import Batch
from stager.runtime import past as past_module
from stager.runtime.outstanding import Outstanding
from stager.runtime.past import Past
from stager.runtime.recovery import recover
from stager.scheduler import commands as cmd
from stager.scheduler.machine import Machine
from stager.scheduler.snapshot import kept_state
from stager.service.counters import Counters
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import KINDS, Case, world_of

CASES = [("runs", 3), ("sizes", 2), ("faults", 17), ("faults", 28), ("interrupts", 6)]


def simulated_world(case: Case) -> SimWorld:
    world = world_of(case)
    simulate(world)
    return world


def make() -> Machine:
    return Machine(Policy(), Limits())


def live(path: Path, world: SimWorld, snapshots_at: tuple[int, ...] = (), version: str = "1") -> Past:
    """All of the world's journal, with snapshots after these batches."""
    journal = SqliteJournal(path, version)
    past = Past(make(), Counters())
    for events, commands in world.journal:
        decided = [command for event in events for command in past.machine.step(event)]
        assert decided == list(commands)
        number = journal.append(events, commands)
        past.saw(Batch(number, version, events, commands))
        if number in snapshots_at:
            past.keep(journal)
    journal.close()
    return past


def recovered(path: Path, version: str = "1") -> Past:
    journal = SqliteJournal(path, version)
    try:
        return recover(journal, version, make, Counters)
    finally:
        journal.close()


def written(past: Past) -> dict[str, Any]:
    encode = msgspec.msgpack.encode
    counters, outstanding = past.watch.kept(), past.outstanding
    return {
        "machine": encode(kept_state(past.machine.state)),
        "outstanding": encode(outstanding.kept()),
        "workflows": outstanding.workflows,
        "tally": encode(counters),
        "submitted": past.submitted,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO):
        yield caplog


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), CASES)
@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
def test_they_come_back_as_they_were(path: Path, said: pytest.LogCaptureFixture, kind: str, seed: int, share: float) -> None:
    world = simulated_world(KINDS[kind](seed))
    cut = max(1, int(len(world.journal) * share))
    simulated = live(path, world, (max(1, cut // 2), cut))
    found = recovered(path)
    assert written(found) == written(simulated)
    assert found.events_since == sum(len(events) for events, _ in world.journal[cut:])
    assert f"replayed {len(world.journal) - cut} batches after the snapshot of batch {cut} in" in said.text


def test_what_is_outstanding_has_a_twin_that_shares_nothing() -> None:
    """The driving thread has one, for snapshots, the loop's thread another, to act by."""
    world = simulated_world(KINDS["faults"](17))
    outstanding = Outstanding()
    for events, commands in world.journal:
        outstanding.saw(events)
        outstanding.gave(commands)
        if outstanding.attempts and outstanding.transfers and outstanding.wakes:
            break
    else:
        raise AssertionError("nothing was outstanding: this proves nothing")
    twin = outstanding.twin()
    before = vars(twin).copy()
    assert before == vars(outstanding)
    assert all(value is not vars(outstanding)[name] for name, value in before.items() if isinstance(value, (dict, set)))


def test_another_version_replays_all_batches(path: Path, said: pytest.LogCaptureFixture) -> None:
    world = simulated_world(KINDS["runs"](3))
    simulated = live(path, world, (len(world.journal) // 2,))
    found = recovered(path, "2")
    assert f"replayed {len(world.journal)} batches from the first on in" in said.text
    states = [{job.id: job.state for run in past.machine.state.runs.values() for job in run.jobs.values()} for past in (found, simulated)]
    assert states[0] == states[1] and found.watch.kept() == simulated.watch.kept()


def test_a_disagreement_after_a_snapshot_makes_the_snapshot_suspect(path: Path, said: pytest.LogCaptureFixture) -> None:
    world = simulated_world(KINDS["plain"](3))
    starts = [number for number, (_, commands) in enumerate(world.journal) if any(type(each) is cmd.StartAttempt for each in commands)]
    place = starts[-1]
    live(path, world, (place,))
    events, commands = world.journal[place]
    recorded = [replace(each, number=each.number + 5) if type(each) is cmd.StartAttempt else each for each in commands]
    journal = SqliteJournal(path, "1")
    body = journal.codec.encode(events, recorded)
    journal.close()
    with sqlite3.connect(path) as db:
        row = (zlib.crc32(body), body, place + 1)
        assert db.execute("UPDATE batches SET checksum = ?, packed = 0, body = ? WHERE seq = ?", row).rowcount == 1
    db.close()
    found = recovered(path)
    assert "the recorded decisions are taken" in said.text and "batches from the first on" in said.text
    assert max(job.attempts for run in found.machine.state.runs.values() for job in run.jobs.values()) == 6


class Counted:
    """A journal that only counts snapshots."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []

    def snapshot(self, parts: dict[str, Any]) -> None:
        self.parts.append(parts)


def test_one_is_due_when_a_replay_would_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few events are not worth one; where jobs and files are many, a snapshot costs more, and comes after more events."""
    past, journal = Past(make(), Counters()), Counted()

    def taken(events: int, *, at_end: bool = False) -> bool:
        before, past.events_since = len(journal.parts), events
        (past.keep_at_end if at_end else past.keep_if_due)(journal)
        assert past.events_since == (0 if len(journal.parts) > before else events)
        return len(journal.parts) > before

    assert not taken(past_module.EVENTS_MIN - 1) and taken(past_module.EVENTS_MIN)
    assert not taken(0, at_end=True) and taken(1, at_end=True)
    monkeypatch.setattr(Past, "_entries", lambda self: 40_000)
    assert not taken(9_999) and taken(10_000)
    assert not taken(4_000, at_end=True) and taken(4_001, at_end=True)
