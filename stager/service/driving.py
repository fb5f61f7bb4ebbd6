"""The driving thread: it steps the Machine, and tells those who keep account of each batch.

May know: the driver, the world. One rule: the Machine is stepped and its state is read on this thread only.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

from stager.driver import drive
from stager.ports import Batch, Journal
from stager.runtime.deciding import deciding_digest
from stager.runtime.live_world import LiveWorld
from stager.runtime.past import Past
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.inquiry import Pulse
from stager.service.lifetime import Lifetime

log = logging.getLogger(__name__)
# Hears of each batch once the journal holds it.
Heard = Callable[[Sequence[ev.Event], Sequence[cmd.Command]], None]


class Driving:
    def __init__(self, past: Past, world: LiveWorld, journal: Journal, heard: Sequence[Heard], lifetime: Lifetime, pulse: Pulse) -> None:
        self.past, self.world, self.journal, self.heard = past, world, journal, heard
        self.lifetime, self.pulse = lifetime, pulse
        # Nothing is written by the driving thread any more.
        self.over = asyncio.Event()

    def start(self) -> None:
        """From the event loop's thread, which is told when it ends."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._drive, args=(loop,), name="drive", daemon=True).start()

    def keep_at_end(self) -> None:
        """On the driving thread, when nobody waits."""
        self.past.keep_at_end(self.journal)

    def _drive(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            drive(self.past.machine, self.world, self._watch)
        except BaseException as problem:
            log.critical("the scheduler cannot go on", exc_info=True)
            self.world.fatal(problem)
        loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        """On the event loop's thread."""
        self.over.set()
        self.lifetime.failure = self.world.failure
        self.lifetime.ended.set()
        self.pulse.beat()

    def _watch(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        """After each batch."""
        self.past.saw(Batch(self.world.last_batch, deciding_digest(), events, commands))
        for hear in self.heard:
            hear(events, commands)
        self.past.keep_if_due(self.journal)
