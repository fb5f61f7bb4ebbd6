"""A snapshot is the Machine: written down, read back and restored at any moment, it decides all that comes as the one that lived on does.

STAGER_SIM_SEEDS=n runs n seeds of each kind, as in tests/sim/seeds.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from random import Random
from typing import Any

import msgspec
import pytest

from stager.driver import drive
from stager.runtime.past import brings_definition
from stager.scheduler import events as ev
from stager.scheduler.invariants import broken_invariants
from stager.scheduler.machine import Machine
from stager.scheduler.snapshot import KeptState, kept_state, restored
from stager.scheduler.state import HeldAt, State
from stager.scheduler.states import JobState
from stager.sim.simulate import rebuilt
from stager.sim.world import SimWorld, Violation
from tests.sim.cases import KINDS, Case, world_of
from tests.sim.scatter_cases import ScatterWatch
from tests.sim.seeds import parts

SHORT = 100
OFTEN_UNTIL = 300
ENCODER, DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(KeptState)


def written(state: State) -> bytes:
    return ENCODER.encode(kept_state(state))


def read_back(body: bytes, submitted: Mapping[str, ev.RunSubmitted]) -> Machine:
    return Machine.of(restored(DECODER.decode(body), submitted))


@dataclass
class Pair:
    """Steps one Machine from the first event on and another that is, now and then, replaced by what a snapshot of it gives back."""

    random: Random
    runs: Machine
    follows: Machine
    submitted: dict[str, ev.RunSubmitted] = field(default_factory=dict)
    newest: tuple[int, bytes, dict[str, ev.RunSubmitted]] = (0, b"", {})
    met: Counter[str] = field(default_factory=Counter)

    def step(self, event: Any) -> list[Any]:
        decided = self.runs.step(event)
        if brings_definition(event) and self.runs.state.runs[event.run].workflow is event.workflow:
            self.submitted[event.run] = event
        again = self.follows.step(event)
        if again != decided:
            raise Violation(f"after a snapshot {again} were decided instead of {decided}")
        return decided

    def watch(self, events: Sequence[Any], commands: Sequence[Any], number: int) -> None:
        # What is tried again for an hour is much alike.
        if self.random.random() < (0.5 if number < OFTEN_UNTIL else 0.02):
            note(self.met, self.follows.state)
            shared = set(shared_in(kept_state(self.follows.state), {})) - {HeldAt.__name__}
            if shared:
                raise Violation(f"the snapshot holds {shared} more than once")
            body = written(self.follows.state)
            self.newest = (number, body, dict(self.submitted))
            self.follows = read_back(body, self.submitted)
            if written(self.follows.state) != body:
                raise Violation("the restored state is not what was written down")
            broken = broken_invariants(self.follows.state)
            if broken:
                raise Violation("; ".join(broken[:5]))

    def revive(self, world: SimWorld) -> None:
        """Both died: one comes back from the whole journal, the other from the newest snapshot and what came after it."""
        self.runs = rebuilt(world)
        number, body, submitted = self.newest
        self.follows = read_back(body, submitted) if body else Machine(world.policy, world.limits)
        for events, commands in world.journal[number:]:
            again = [command for event in events for command in self.follows.step(event)]
            if again != list(commands):
                raise Violation(f"a replay from the snapshot decided {again} instead of {commands}")


def shared_in(value: Any, seen: dict[int, Any]) -> list[str]:
    """Objects that can change and stand in two places of a value: written down they would become two."""
    if isinstance(value, Mapping):
        return [name for each in value.values() for name in shared_in(each, seen)]
    if isinstance(value, (list, tuple)):
        return [name for each in value for name in shared_in(each, seen)]
    if not is_dataclass(value) or value.__dataclass_params__.frozen:
        return []
    if id(value) in seen:
        return [type(value).__name__]
    seen[id(value)] = value
    return [name for each in fields(value) for name in shared_in(getattr(value, each.name), seen)]


def note(met: Counter[str], state: State) -> None:
    """What is hard to write down and was there."""
    kept = kept_state(state)
    met["snapshots"] += 1
    met["copies that were replaced"] += bool(kept.detached)
    met["pins"] += any(run.pinned for run in kept.runs)
    met["uploads"] += bool(kept.uploads)
    met["profiles"] += any(run.ahead for run in kept.runs)
    met["timers"] += bool(state.timers)
    met["garbage"] += any(node.garbage for node in state.nodes.values())
    met["jobs that failed"] += any(job.state is JobState.FAILED for run in state.runs.values() for job in run.jobs.values())


def simulated_twice(case: Case) -> Counter[str]:
    world = world_of(case)
    machines = [Machine(world.policy, world.limits) for _ in range(2)]
    pair = Pair(Random(f"snapshots/{case.seed}"), *machines)

    scatters = ScatterWatch(world, case)

    def watch(events: Sequence[Any], commands: Sequence[Any]) -> None:
        pair.watch(events, commands, len(world.journal))
        scatters(pair.runs, events, commands)

    drive(pair, world, watch)
    while world.crashed:
        pair.revive(world)
        world.revive()
        drive(pair, world, watch)
    if written(pair.runs.state) != written(pair.follows.state):
        raise Violation("the ends differ")
    return pair.met


def simulated_all(kind: str, seeds: Sequence[int]) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in seeds:
        try:
            met += simulated_twice(KINDS[kind](seed))
        except Exception as error:
            raise AssertionError(f"{kind} {seed}: {error}") from error
    return met


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seeds"), parts(dict.fromkeys(KINDS, SHORT)))
def test_what_is_restored_decides_the_same(kind: str, seeds: range) -> None:
    simulated_all(kind, seeds)


@pytest.mark.slow
def test_the_snapshots_hold_what_is_hard_to_write_down() -> None:
    """Else the test above proves little."""
    met = simulated_all("faults", range(60))
    assert len(met) == 8 and min(met.values()) >= 3, met


def test_a_snapshot_of_a_journal_that_was_applied_goes_on_the_same() -> None:
    """Another version's batches are applied and nothing is decided: the queues hold then what deciding would have emptied."""
    for seed in range(60):
        case = KINDS["sizes"](seed)
        world = world_of(case)
        drive(Machine(world.policy, world.limits), world)
        applied, submitted = Machine(world.policy, world.limits), {}
        cut = Random(f"applied/{seed}").randrange(len(world.journal))
        for events, commands in world.journal[:cut]:
            submitted |= {event.run: event for event in events if isinstance(event, ev.RunSubmitted)}
            applied.replay(events, commands)
        again = read_back(written(applied.state), submitted)
        report = ev.Woken(at=applied.state.now)
        assert again.step(report) == applied.step(report)
        assert written(again.state) == written(applied.state)
