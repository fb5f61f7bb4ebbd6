"""From a journal to a Machine as it was when the scheduler died.

May know: the journal port, the Machine. One rule: what was recorded wins. The same version must decide the same again, which is checked;
another version's batches are applied and nothing is decided anew.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stager.ports import Journal
from stager.runtime.past import Past, Watch, from_snapshot
from stager.scheduler.commands import Command
from stager.scheduler.machine import Machine

log = logging.getLogger(__name__)


class Diverged(Exception):
    """This version decides differently from what it recorded: a defect, or code that changed under the same version."""

    def __init__(self, batch: int, recorded: Sequence[Command], decided: Sequence[Command]) -> None:
        super().__init__(f"batch {batch}: recorded {summary(recorded)}, decided {summary(decided)}")


def recover(journal: Journal, version: str, make: Callable[[], Machine], start_watch: Callable[[], Watch]) -> Past:
    """From the newest snapshot on, else from the first batch. The last watch that was started is the one in the past."""
    with no_collections():
        begun = from_snapshot(journal, start_watch)
        past, number = begun or (Past(make(), start_watch()), 0)
        try:
            return replayed(journal, version, past, number)
        except Diverged as problem:
            # Whatever is wrong may be in the snapshot too: no short cut now.
            log.error("the journal and this version disagree: %s; the recorded decisions are taken", problem)
            return replayed(journal, "", Past(make(), start_watch()), 0)


def replayed(journal: Journal, version: str, past: Past, after: int) -> Past:
    """Decides anew, and compares, for batches of this version; applies those of others."""
    started, count, machine = time.monotonic(), 0, past.machine
    for batch in journal.batches(after):
        if batch.version == version:
            decided: list[Command] = []
            for event in batch.events:
                decided.extend(machine.step(event))
            if decided != batch.commands:
                raise Diverged(batch.number, batch.commands, decided)
        else:
            machine.replay(batch.events, batch.commands)
        past.saw(batch)
        count += 1
    where = f"after the snapshot of batch {after}" if after else "from the first on"
    log.info("replayed %d batches %s in %.2f s", count, where, time.monotonic() - started)
    return past


@contextmanager
def no_collections() -> Iterator[None]:
    """A replay makes much and throws little away: looking for garbage among it again and again takes longer than all the rest."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def summary(commands: Sequence[Command]) -> str:
    shown = ", ".join(f"{type(command).__name__} {command.id}" for command in commands[:5])
    return f"[{shown}{', …' if len(commands) > 5 else ''}]"
