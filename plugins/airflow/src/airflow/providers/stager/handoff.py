"""News of DagRuns from the scheduler's process, handed to a thread of its own: begun, ended; and now and then, the news that was lost.

May know: the runs, the service. One rule: telling takes no time and never fails; what cannot be done is logged once, and mended by the
tasks, which submit what they do not find, and by reconciling.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.providers.stager import service
from airflow.providers.stager.loose import sweep
from airflow.providers.stager.runs import told_of

if TYPE_CHECKING:
    from airflow.providers.stager.graph import DagFact

log = logging.getLogger(__name__)
WAITING_MAX = 10_000
RECONCILE_S = 60.0
# An end that was told just before its process ends is still passed on.
DRAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Begun:
    dag: DagFact
    run_id: str


@dataclass(frozen=True, slots=True)
class Ended:
    dag: DagFact
    run_id: str
    succeeded: bool
    message: str


Told = Begun | Ended


class Outbox:
    """`reconcile` is called from time to time on the same thread, and ends that could not be told are told again: nobody else knows of
    them, and what is held for a DagRun is held until then.
    """

    def __init__(self, reconcile: Callable[[], None], every_s: float = RECONCILE_S) -> None:
        self.reconcile, self.every_s = reconcile, every_s
        self.told: queue.Queue[Told] = queue.Queue(WAITING_MAX)
        self.thread: threading.Thread | None = None
        self.pid = 0
        self.owed: dict[tuple[str, str], Ended] = {}
        self.said: set[str] = set()
        self.away = ""

    def tell(self, told: Told) -> None:
        self._start()
        try:
            self.told.put_nowait(told)
        except queue.Full:
            self._say(f"too much waits to be told to stager; {type(told).__name__.lower()} of {told.dag.dag_id} {told.run_id} is not")

    def _start(self) -> None:
        """A process that was forked has the thread's name, and not the thread."""
        if self.pid != os.getpid():
            self.pid, self.told = os.getpid(), queue.Queue(WAITING_MAX)
            self.thread = threading.Thread(target=self._serve, name="stager-handoff", daemon=True)
            self.thread.start()
            atexit.register(self.drain)

    def drain(self) -> None:
        end = time.monotonic() + DRAIN_S
        while self.pid == os.getpid() and self.told.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.02)

    def _serve(self) -> None:
        next_at = time.monotonic() + self.every_s
        while True:
            try:
                told = self.told.get(timeout=max(0.0, next_at - time.monotonic()))
            except queue.Empty:
                self._tell_owed()
                self._guarded(self.reconcile, "reconcile")
                next_at = time.monotonic() + self.every_s
                continue
            self._told(told)
            self.told.task_done()

    def _told(self, told: Told) -> bool:
        place = (told.dag.dag_id, told.run_id)
        self.owed.pop(place, None)
        well = self._guarded(lambda: self._pass_on(told), " ".join(place))
        if not well and isinstance(told, Ended) and len(self.owed) < WAITING_MAX:
            self.owed[place] = told
        return well

    def _tell_owed(self) -> None:
        """In turn, until one fails again."""
        for told in list(self.owed.values()):
            if not self._told(told):
                return

    def _guarded(self, do: Callable[[], None], what: str) -> bool:
        """Whether it went well. A service that is away for long is said to be once, and again when it has been there meanwhile."""
        try:
            do()
            self.away = ""
            return True
        except Exception as problem:  # a thread that ends would do so in silence
            if self.away != str(problem):
                self.away = str(problem)
                log.warning("%s: stager was not told: %s", what, problem)
            return False

    def _pass_on(self, told: Told) -> None:
        loose = service.loose_of(told.dag, told.run_id)
        if isinstance(told, Begun):
            loose.begun()
        elif told.succeeded:
            loose.clear()
        else:
            loose.failed()
        sweep(loose.fallback_dir, service.fallback_days())
        found = service.connected()
        with found.client:
            runs = found.runs(told.dag, told.run_id)
            runs.ask_once()
            if isinstance(told, Ended):
                runs.end(told.succeeded, told.message)
                return
            for note in runs.shape().notes:
                self._say(f"{told.dag.dag_id}: {note}")
            opened = runs.open()
            if opened is not None:
                log.info("stager follows %s %s as run %s", told.dag.dag_id, told.run_id, opened.run.name)
            if runs.loose:
                self._say(f"{told.dag.dag_id}: the service refused these, so tasks move them themselves: {told_of(runs.loose)}")

    def _say(self, text: str) -> None:
        """Once, however often it comes to pass."""
        if text not in self.said:
            self.said.add(text)
            log.warning("%s", text)
