"""The one loop: events in, commands out, the same for production and simulation.

May know: the ports. One rule: there is no other place where a Machine meets a World.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from stager.ports import World

if TYPE_CHECKING:
    from stager.scheduler.commands import Command
    from stager.scheduler.events import Event


class Steps(Protocol):
    """The Machine, seen from the loop."""

    def step(self, event: Event) -> list[Command]: ...


def drive(machine: Steps, world: World, watch: Callable[[Sequence[Event], Sequence[Command]], None] | None = None) -> None:
    """Runs until the world has no more events. Each batch of events and all its commands are one fact for the world."""
    for events in world.events():
        commands: list[Command] = []
        for event in events:
            commands.extend(machine.step(event))
        world.perform(events, commands)
        if watch is not None:
            watch(events, commands)
