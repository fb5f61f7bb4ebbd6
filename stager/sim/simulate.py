"""Drives a Machine through a virtual world to the end, over the scheduler's deaths. One rule: after a death only the journal is left of the
Machine.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from stager.driver import drive
from stager.scheduler.machine import Machine
from stager.sim.world import SimWorld, Violation

Watch = Callable[[Machine, Sequence[Any], Sequence[Any]], None]


def simulate(world: SimWorld, watch: Watch | None = None) -> Machine:
    """The Machine as it is at the end. `watch` sees it after every batch. A world whose scheduler may die must keep its journal."""
    machine = Machine(world.policy, world.limits)
    with rare_collections():
        drive(machine, world, watching(machine, watch))
        while world.crashed:
            machine = rebuilt(world)
            world.revive()
            drive(machine, world, watching(machine, watch))
    for checker in world.checkers:
        checker.at_end(world)
    return machine


def watching(machine: Machine, watch: Watch | None) -> Callable[[Sequence[Any], Sequence[Any]], None] | None:
    return (lambda events, commands: watch(machine, events, commands)) if watch is not None else None


# The usual thresholds, once for each simulation or plan that is being made: they may overlap, in threads of one process.
inside: list[tuple[int, int, int]] = []
lock = Lock()


@contextmanager
def rare_collections() -> Iterator[None]:
    """A simulation, or a plan, makes few cycles and holds much. To look through all of it for garbage every few thousand objects costs a
    fifth of the time. The garbage that it leaves is old, and is not looked through at once either.
    """
    with lock:
        inside.append(inside[0] if inside else gc.get_threshold())
        gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        with lock:
            usual = inside.pop()
            if not inside:
                gc.set_threshold(*usual)


def rebuilt(world: SimWorld) -> Machine:
    """A new Machine from the journal. The same version must decide the same again."""
    machine = Machine(world.policy, world.limits)
    for events, commands in world.journal:
        again = [command for event in events for command in machine.step(event)]
        if again != list(commands):
            first = next((pair for pair in zip(again, commands, strict=False) if pair[0] != pair[1]), (len(again), len(commands)))
            raise Violation(f"replay decided otherwise: {first[0]} instead of {first[1]}")
    return machine
