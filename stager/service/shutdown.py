"""How a scheduler ends: in order, at once, by giving way to a service.

May know: the Machine's state (read only), the inbox. One rule: what ends it leaves every run resumable.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from stager.model.errors import Refused, Transient
from stager.ports import Put
from stager.scheduler import events as ev
from stager.scheduler.state import RunEntry
from stager.service.inquiry import Inquiry, Pulse
from stager.service.known_runs import KnownRuns
from stager.service.lifetime import Lifetime
from stager.tasks import Tasks

log = logging.getLogger(__name__)
STOP_DEADLINE_S = 30.0


def is_native(run: RunEntry) -> bool:
    return not run.is_engines


def is_waited_for(run: RunEntry) -> bool:
    """By an end in order: native runs, and uploads that an engine which has ended its run left to us."""
    return is_native(run) or (run.engine_outcome is not None and run.uploads_live > 0)


class Shutdown:
    """On the event loop's thread."""

    def __init__(
        self, inquiry: Inquiry, pulse: Pulse, lifetime: Lifetime, runs: KnownRuns, put: Put, keep_at_end: Callable[[], None]
    ) -> None:
        """`keep_at_end`: called on the driving thread when all is over."""
        self.inquiry, self.pulse, self.lifetime, self.runs = inquiry, pulse, lifetime, runs
        self.put, self.keep_at_end = put, keep_at_end

    async def in_order(self, *, now: bool = False) -> None:
        """Interrupts every native run (drains, or stops at once) and ends. A second call with `now` shortens a drain.

        Runs of engines are left as they are, as by a crash: nothing of theirs runs here, and the next scheduler goes on with them, so that
        no engine has to know of it.
        """
        first = not self.lifetime.ending
        self.lifetime.ending = True
        event = ev.RunStopped if now else ev.RunDrained
        if not self.lifetime.ended.is_set():
            state = self.runs.state
            for run in await self.inquiry.ask(lambda: [each for each in state.active if is_native(state.runs[each])]):
                self.put(event(at=0.0, cause="shutdown", run=run, by=ev.BY_SERVICE))
        if first or now:
            end = time.monotonic() + STOP_DEADLINE_S if now else None
            while await self.has_active(is_native if now else is_waited_for) and (end is None or time.monotonic() < end):
                await self.pulse.happening(self.pulse.changed, 1.0)
            try:
                with contextlib.suppress(Transient):
                    await self.inquiry.ask(self.keep_at_end)
            finally:
                self.lifetime.ended.set()

    async def has_active(self, counts: Callable[[RunEntry], bool] = lambda run: True) -> bool:
        state = self.runs.state
        return not self.lifetime.ended.is_set() and await self.inquiry.ask(lambda: any(counts(state.runs[run]) for run in state.active))


class Ending:
    """Begins ends that go on beside all else. A failure of one ends the scheduler all the same: that is told to `fatal`."""

    def __init__(self, shutdown: Shutdown, lifetime: Lifetime, tasks: Tasks, fatal: Callable[[BaseException | None], None]) -> None:
        self.shutdown, self.lifetime, self.tasks, self.fatal = shutdown, lifetime, tasks, fatal

    def begin(self, *, now: bool) -> None:
        self.tasks.start("the end in order", self.shutdown.in_order(now=now), self.fatal)

    def interrupt(self) -> None:
        """By a signal; a second one is in a hurry."""
        log.info("asked to end: %s", "at once" if self.lifetime.ending else "running jobs and uploads end first")
        self.begin(now=self.lifetime.ending)


class GivingWay:
    """Of a scheduler that a command started, to the service of the same state directory."""

    def __init__(
        self, inquiry: Inquiry, lifetime: Lifetime, runs: KnownRuns, tenant_of: Callable[[str], str], root: Path, *, is_service: bool
    ) -> None:
        self.inquiry, self.lifetime, self.runs, self.tenant_of = inquiry, lifetime, runs, tenant_of
        self.root, self.is_service = root, is_service

    async def give_way(self) -> None:
        """All that is active are runs of its tenants, which are left as by a crash, and go on there. Raises Refused."""
        if self.is_service:
            raise Refused("it is a service itself", code="is_service", subject=str(self.root))
        state = self.runs.state
        mine = await self.inquiry.ask(lambda: sorted(run for run in state.active if not self.tenant_of(run)))
        if mine:
            raise Refused(f"it has runs of its owner's ({', '.join(mine)}); wait for them", code="run_active", subject=mine[0])
        log.info("it gives way to a service")
        self.lifetime.ending = True
        self.lifetime.ended.set()
