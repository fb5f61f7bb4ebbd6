"""How long a scheduler that was killed takes to know again what it knew: all batches replayed, and from its newest snapshot on.

The journal is that of a simulated run; snapshots are taken as the scheduler takes them, and it dies after nineteen twentieths of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.made_up import made_up_workflow
from stager.adapters.journal_sqlite import SqliteJournal
from stager.model.topology import embedded
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.ports import Batch
from stager.runtime.past import Past
from stager.runtime.recovery import recover
from stager.scheduler.machine import Machine
from stager.service.counters import Counters
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.testbed.own_place import own_place

JOBS = (10_000, 30_000)
SIMULATED = 0.95
VERSION = "bench"


def make() -> Machine:
    return Machine(Policy(), Limits(cores=16))


def simulated(jobs: int) -> list[tuple[Sequence[Any], Sequence[Any]]]:
    workflow = made_up_workflow(jobs)
    topology = embedded(10**15, cores=16)
    world = SimWorld(topology, keep_journal=True)
    world.submit("run", workflow, make_plan(workflow, topology, spill_origin="home"))
    simulate(world)
    return world.journal[: int(len(world.journal) * SIMULATED)]


def live(path: Path, batches: list[tuple[Sequence[Any], Sequence[Any]]], *, snapshots: bool) -> list[float]:
    """The seconds that each snapshot held it up."""
    journal, past, stalls = SqliteJournal(path, VERSION), Past(make(), Counters()), []
    # The disk is not what is measured here.
    journal.db.execute("PRAGMA synchronous=OFF")
    for events, commands in batches:
        for event in events:
            past.machine.step(event)
        past.saw(Batch(journal.append(events, commands), VERSION, events, commands))
        if snapshots:
            waiting, begun = past.events_since, time.thread_time()
            past.keep_if_due(journal)
            if past.events_since < waiting:
                stalls.append(time.thread_time() - begun)
    journal.close()
    return stalls


def recovery_s(path: Path) -> tuple[float, int]:
    """Of processor time, and how many events had to be replayed."""
    journal, begun = SqliteJournal(path, VERSION), time.process_time()
    past = recover(journal, VERSION, make, Counters)
    took_s = time.process_time() - begun
    journal.close()
    return took_s, past.events_since


def main() -> None:
    print(f"{'jobs':>8} {'snapshots':>9} {'stall s':>8} {'replayed':>9} {'recovery s':>10} {'journal MB':>10}")
    for jobs in map(int, sys.argv[1:]) if sys.argv[1:] else JOBS:
        batches = simulated(jobs)
        for snapshots in (False, True):
            with own_place() as place:
                path = place / "journal.sqlite"
                stalls = live(path, batches, snapshots=snapshots)
                took_s, events = recovery_s(path)
                size_mb = path.stat().st_size / 1e6
                print(f"{jobs:>8} {len(stalls):>9} {max(stalls, default=0.0):>8.2f} {events:>9} {took_s:>10.2f} {size_mb:>10.1f}")


if __name__ == "__main__":
    main()
