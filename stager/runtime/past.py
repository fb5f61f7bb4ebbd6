"""The Machine, and all that is fed by the batches it simulates: what a restart has to bring back, by replay or from a snapshot.

May know: the journal port, the Machine. One rule: a snapshot is taken between two batches, of everything at once, on the thread that steps
the Machine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

from stager.ports import Batch, Journal
from stager.runtime.outstanding import KeptOutstanding, Outstanding
from stager.scheduler import events as ev
from stager.scheduler.commands import Command
from stager.scheduler.machine import Machine
from stager.scheduler.snapshot import KeptState, kept_state, restored

log = logging.getLogger(__name__)
# A replay of fewer events is not worth a snapshot.
EVENTS_MIN = 500
# A snapshot costs what the replay of a tenth as many events does as there are jobs and files. One in a quarter as many keeps both small;
# at an end, when nobody waits, it is taken as soon as it pays.
SHARE_LIVE, SHARE_AT_END = 4, 10


class Watch(Protocol):
    """Sums over all batches, live and in replay. The value that it `kept`, of the class KEPT, is written down at once and taken up by a
    new one.
    """

    @property
    def KEPT(self) -> type: ...

    def saw(self, events: Sequence[ev.Event], commands: Sequence[Command]) -> None: ...
    def kept(self) -> Any: ...
    def take_up(self, kept: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Places:
    """The number of the batch that brought each run's definition: a snapshot does not repeat its workflow and plan."""

    submitted: dict[str, int]


@dataclass(slots=True)
class Past:
    """On the driving thread. `submitted` are the numbers of batches, as in Places; `events_since` the newest snapshot, or the beginning."""

    machine: Machine
    watch: Watch
    outstanding: Outstanding = field(default_factory=Outstanding)
    submitted: dict[str, int] = field(default_factory=dict)
    events_since: int = 0

    def saw(self, batch: Batch) -> None:
        self.outstanding.saw(batch.events)
        self.outstanding.gave(batch.commands)
        self.watch.saw(batch.events, batch.commands)
        self.events_since += len(batch.events)
        for event in batch.events:
            if brings_definition(event) and self.machine.state.runs[event.run].workflow is event.workflow:
                self.submitted[event.run] = batch.number

    def keep_if_due(self, journal: Journal) -> None:
        if self.events_since >= EVENTS_MIN and self.events_since >= self._entries() // SHARE_LIVE:
            self.keep(journal)

    def keep_at_end(self, journal: Journal) -> None:
        if self.events_since > self._entries() // SHARE_AT_END:
            self.keep(journal)

    def _entries(self) -> int:
        state = self.machine.state
        return len(state.files) + sum(len(run.jobs) for run in state.runs.values())

    def keep(self, journal: Journal) -> None:
        """The values that are handed over share their parts with those that go on: the journal has written them down when it returns."""
        started, events, self.events_since = time.monotonic(), self.events_since, 0
        parts = {"machine": kept_state(self.machine.state), "outstanding": self.outstanding.kept(), "watch": self.watch.kept()}
        journal.snapshot({**parts, "places": Places(self.submitted)})
        log.info("a snapshot was taken, of %d more events; it held up the scheduler for %.3f s", events, time.monotonic() - started)


def from_snapshot(journal: Journal, start_watch: Callable[[], Watch]) -> tuple[Past, int] | None:
    """The past as it was, and the number of the last batch in it. None: there is no snapshot to begin with."""
    watch = start_watch()
    kinds = {"machine": KeptState, "outstanding": KeptOutstanding, "watch": watch.KEPT, "places": Places}
    snapshot = journal.newest_snapshot(kinds)
    if snapshot is None:
        return None
    machine, outstanding, kept, places = (snapshot.parts[name] for name in kinds)
    assert isinstance(machine, KeptState) and isinstance(outstanding, KeptOutstanding) and isinstance(places, Places)
    submitted = {run: submission(journal.batch(number), run) for run, number in places.submitted.items()}
    past = Past(Machine.of(restored(machine, submitted)), watch, submitted=places.submitted)
    past.outstanding.take_up(outstanding, submitted)
    watch.take_up(kept)
    return past, snapshot.number


def brings_definition(event: ev.Event) -> TypeGuard[ev.RunSubmitted | ev.RunResumed | ev.RunScattered]:
    """A run's workflow and plan: the ones that it begins with, or others that it goes on with."""
    return type(event) is ev.RunSubmitted or (isinstance(event, ev.RunResumed | ev.RunScattered) and event.workflow is not None)


def submission(batch: Batch, run: str) -> ev.RunSubmitted | ev.RunResumed | ev.RunScattered:
    return next(event for event in reversed(batch.events) if brings_definition(event) and event.run == run)
