"""From a journal to a Machine as it was when the scheduler died.

May know: the journal port, the Machine. One rule: what was recorded wins. The same version must decide the same again, which is checked;
another
version's batches are applied and nothing is decided anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from stager.ports import Journal
from stager.runtime.outstanding import Outstanding
from stager.scheduler.machine import Machine

log = logging.getLogger(__name__)
Watch = Callable[[Sequence[Any], Sequence[Any]], None]


class Diverged(Exception):
    """This version decides differently from what it recorded: a defect, or code that changed under the same version."""

    def __init__(self, batch: int, recorded: Sequence[Any], decided: Sequence[Any]) -> None:
        super().__init__(f"batch {batch}: recorded {summary(recorded)}, decided {summary(decided)}")


def recover(journal: Journal, version: str, make: Callable[[], Machine], start_watch: Callable[[], Watch]) -> tuple[Machine, Outstanding]:
    """The last watch that was started sees every batch, once."""
    try:
        return replayed(journal, version, make(), start_watch())
    except Diverged as problem:
        log.error("the journal and this version disagree: %s; the recorded decisions are taken", problem)
        return replayed(journal, "", make(), start_watch())


def replayed(journal: Journal, version: str, machine: Machine, watch: Watch) -> tuple[Machine, Outstanding]:
    """Decides anew, and compares, for batches of this version; applies those of others."""
    outstanding = Outstanding()
    for number, (written_by, events, commands) in enumerate(journal.batches(), 1):
        if written_by == version:
            decided: list[Any] = []
            for event in events:
                decided.extend(machine.step(event))
            if decided != commands:
                raise Diverged(number, commands, decided)
        else:
            machine.replay(events, commands)
        outstanding.saw(events)
        outstanding.gave(commands)
        watch(events, commands)
    return machine, outstanding


def summary(commands: Sequence[Any]) -> str:
    shown = ", ".join(f"{type(command).__name__} {command.id}" for command in commands[:5])
    return f"[{shown}{', …' if len(commands) > 5 else ''}]"
