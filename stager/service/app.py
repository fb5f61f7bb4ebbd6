"""The composition root: lock, journal, Machine, world, node, executor; and the life of the scheduler process.

May know: everything below. One rule: the Machine is stepped and its state is read on one thread only, the driving one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from stager import __version__
from stager.adapters.binary import find_ionode
from stager.adapters.executor_engine import EngineExecutor, Executors
from stager.adapters.executor_local import LocalExecutor
from stager.adapters.journal_sqlite import SqliteJournal
from stager.adapters.node_process import NodeProcess, NodeSettings, Scrub, Storage
from stager.adapters.profiles_store import ProfilesStore
from stager.adapters.run_records import RunRecords
from stager.adapters.storage_keys import KeyIssuer
from stager.driver import drive
from stager.model.errors import Transient
from stager.model.workflow import Workflow
from stager.planning.policy import Limits, Policy
from stager.ports import Batch
from stager.runtime.clock import SteadyClock
from stager.runtime.credentials import CredentialBook
from stager.runtime.deciding import deciding_digest
from stager.runtime.inbox import Inbox
from stager.runtime.live_world import LiveWorld
from stager.runtime.mounting import mounted
from stager.runtime.node_link import NodeLink
from stager.runtime.recovery import recover
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.ledger import ledger_of
from stager.scheduler.machine import Machine
from stager.scheduler.state import OVER, RunEntry
from stager.scheduler.states import RunState
from stager.service.counters import Counters
from stager.service.measuring import Measuring
from stager.service.node_view import NodeWatch
from stager.service.rates import Rates, Totals
from stager.service.run_service import RunService
from stager.service.settings import Settings
from stager.service.state_dir import StateDir
from stager.service.tenancy import Tenancy
from stager.service.views import ledger_entry, run_summary, state_of
from stager.tasks import Tasks
from stager.worker import KeptSandboxes, Worker

log = logging.getLogger(__name__)
NODE_ID = "node0"
FOLD_OVER_BATCHES = 20_000
STOP_DEADLINE_S = 30.0
T = TypeVar("T")


def is_native(run: RunEntry) -> bool:
    return not run.is_engines


def is_waited_for(run: RunEntry) -> bool:
    """By an end in order: native runs, and uploads that an engine which has ended its run left to us."""
    return is_native(run) or (run.engine_outcome is not None and run.uploads_live > 0)


class Surroundings:
    """What the executor must know of the scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def workflow(self, run: str) -> Workflow:
        return self.scheduler.outstanding.workflows[run]

    def env(self, run: str) -> Mapping[str, str] | None:
        return self.scheduler.book.env.get(run)

    def is_a_tenants(self, run: str) -> bool:
        return bool(self.scheduler.tenancy.of_run(run))

    async def reachable(self, node: str) -> None:
        while not self.scheduler.world.links[node].up:
            await self.scheduler.happening(self.scheduler.changed)

    async def owed_bytes(self) -> int:
        nodes, storage = self.scheduler.machine.state.nodes, self.scheduler.settings.storage
        cache = await self.scheduler.ask(lambda: sum(max(0, each.capacity_bytes - each.present_bytes) for each in nodes.values()))
        return cache + (storage.size_bytes if storage is not None else 0)

    async def mounted(self, node: str, run: str, origin: str, path: str) -> str:
        return await mounted(self.scheduler.world.links[node].calls, run, origin, path)

    def at(self, wall: float) -> float:
        return self.scheduler.clock.of_wall(wall)


class Scheduler:
    """One state directory's scheduler, from `open` to `close`; the caller holds the lock."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.settings, self.loop = settings, loop
        self.state_dir = StateDir(settings.state_dir)
        self.held_lock = self.state_dir.lock_file()
        self.clock = SteadyClock()
        self.started_at = self.clock()
        self.records = RunRecords(self.state_dir.runs)
        self.profiles = ProfilesStore(self.state_dir.profiles)
        self.journal = SqliteJournal(self.state_dir.journal, deciding_digest())
        self.counters, self.rates = Counters(), Rates(time.monotonic)
        self.tenancy = Tenancy(settings.tenants_file or self.state_dir.tenants, settings.state_dir, settings.environ)
        self.tenancy.of_runs = {record.run: record.tenant for record in self.records.all() if record.tenant}
        self.book = CredentialBook(self.tenancy.resolve, self.tenancy.needs_secrets)
        self.inbox = Inbox(self.clock)
        self.limits = Limits(cores=settings.cores, memory_bytes=settings.memory_bytes)
        self.changed = asyncio.Event()
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        # Of those who read the journal whole.
        self.reading = asyncio.Lock()
        self.ending = self.is_service = False
        self.tasks = Tasks()
        self.issuer: KeyIssuer | None = None
        self.totals = Totals(time.monotonic)
        self.failure: BaseException | None = None

    def replay(self) -> None:
        """The Machine as it was when the last scheduler ended. Long for a long journal."""
        self._fold_away()
        self.past = recover(self.journal, deciding_digest(), lambda: Machine(Policy(), self.limits), self._start_counters)
        self.machine, self.outstanding = self.past.machine, self.past.outstanding.twin()
        self.epoch = self._next_epoch(self.outstanding.epoch)

    def open(self) -> None:
        """Makes contact with the node and goes on with what was under way."""
        outstanding = self.outstanding
        self.world = LiveWorld(self.journal, self.inbox, outstanding, self.loop, self._carried_out)
        self.inbox.last_at = self.machine.state.now
        self.clock.go_on_from(self.machine.state.now)
        self.run_service = RunService(self.machine, self.records, self.book, self.inbox.put, self.tenancy.of_runs)
        self.measuring = Measuring(self.profiles, self.machine)
        self._settle_records()
        program = find_ionode(self.settings.environ)
        state_dir, capacity = self.state_dir, self.settings.capacity_bytes
        scrub = Scrub(self.settings.scrub_bytes_per_s, self.settings.scrub_every_s)
        places = (state_dir.node_store, state_dir.node_log)
        settings = NodeSettings(program, NODE_ID, *places, capacity, self.settings.umask, scrub, self._storage())
        self.node = NodeProcess(settings, self.epoch)
        self.link = NodeLink(self.node, self.inbox.put, outstanding, self.book, self.world.fatal, self.clock)
        worker = Worker(state_dir.root, self.node.client, binary=program, inherited={}, epoch=self.epoch)
        around = Surroundings(self)
        self.kept_sandboxes = KeptSandboxes(state_dir.root, self.settings.keep_failed_bytes)
        self.kept_sandboxes.load()
        local, engine = (
            LocalExecutor(worker, self.inbox.put, around, self.kept_sandboxes),
            EngineExecutor(worker, self.inbox.put, around, self.pulse),
        )
        self.executor = Executors(local, engine, around)
        self.node_view = NodeWatch(self.link, local, outstanding)
        self.inbox.put(ev.SchedulerStarted(at=0.0, cause="start", epoch=self.epoch, version=__version__))
        self.inbox.put(ev.PolicySet(at=0.0, cause="start", policy=Policy(), limits=self.limits))
        self.world.open([self.link], self.executor)
        threading.Thread(target=self._drive, name="drive", daemon=True).start()

    def _storage(self) -> Storage | None:
        wanted = self.settings.storage
        if wanted is None:
            return None
        self.issuer = KeyIssuer(self.state_dir.storage_key)
        return Storage(wanted.listen, wanted.size_bytes, self.issuer.path, wanted.trust_network)

    def _start_counters(self) -> Counters:
        self.counters = Counters()
        return self.counters

    def _fold_away(self) -> None:
        """A journal that tells only of runs that are over, or that were removed, need not be replayed for ever: their records are kept."""
        records = self.records.all()
        over = all(record.removed or (record.state in OVER and record.summary is not None) for record in records)
        if over and self.journal.next_seq > (1 if all(record.removed for record in records) else FOLD_OVER_BATCHES):
            self.journal.clear()

    def _next_epoch(self, journaled: int) -> int:
        """Grows over every start, also when the journal was moved away: the node remembers."""
        epoch = self.records.next_number("epoch")
        while epoch <= journaled:
            epoch = self.records.next_number("epoch")
        return epoch

    def _settle_records(self) -> None:
        """What a crash left between the journal and the records."""
        state = self.machine.state
        for record in self.records.all():
            run = state.runs.get(record.run)
            if run is None and record.summary is None and not record.removed:
                self.records.forget(record.run)
            elif run is not None and run.state is RunState.FINISHED and record.summary is None:
                self._write_summary(record.run)

    def _drive(self) -> None:
        try:
            drive(self.machine, self.world, self._watch)
        except BaseException as problem:
            log.critical("the scheduler cannot go on", exc_info=True)
            self.world.fatal(problem)
        self.loop.call_soon_threadsafe(self._drive_ended)

    def _drive_ended(self) -> None:
        self.failure = self.world.failure
        self.ended.set()
        self.pulse()

    def _watch(self, events: Sequence[Any], commands: Sequence[Any]) -> None:
        """On the driving thread, after each batch."""
        self.past.saw(Batch(self.world.last_batch, deciding_digest(), events, commands))
        self.measuring.saw(events, commands)
        for event in events:
            if type(event) is ev.RunSubmitted:
                self.run_service.took(event.run)
        for command in commands:
            if type(command) is cmd.FinishRun:
                self._write_summary(command.run)
        self.past.keep_if_due(self.journal)

    def _carried_out(self, events: Sequence[Any]) -> None:
        """On the loop's thread. Whoever is woken here asks the driving thread, which first ends its own watch over this batch."""
        for event in events:
            if type(event) is ev.NodeReported and not self.ready.is_set():
                self._go_on()
            elif type(event) is ev.RunResumed:
                self.executor.local.unpark(event.run)
        self.pulse()

    def _go_on(self) -> None:
        """The Machine knows the node: attempts that were under way are taken up."""
        outstanding = self.outstanding
        for command in list(outstanding.attempts.values()):
            if not self.executor.is_started(command.attempt):
                self.executor.start(command)
        for grant in list(outstanding.grants.values()):
            self.executor.grant(grant)
        for kill in list(outstanding.kills.values()):
            self.executor.kill(kill)
        for wake_at in outstanding.wakes:
            self.inbox.wake_at(wake_at)
        self.tasks.start("the sweep of old attempts", self.executor.sweep(outstanding.attempts))
        self.ready.set()

    def _write_summary(self, run: str) -> None:
        entry = self.machine.state.runs[run]
        summary = run_summary(self.machine.state, entry, self.counters)
        finals = [ledger_entry(entry.workflow, each).model_dump(mode="json") for each in ledger_of(self.machine.state, run) if each.final]
        ended = (state_of(entry), entry.finished_at, summary.jobs_done, summary.model_dump_json(by_alias=True))
        self.records.finish(run, *ended, json.dumps(finals).encode())

    def pulse(self) -> None:
        """Wakes who waits for something to happen."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def ask(self, question: Callable[[], T]) -> T:
        """Answered on the driving thread. Raises what the question raises."""
        try:
            return await asyncio.wrap_future(self.inbox.ask(question))
        except asyncio.CancelledError:
            if not self.inbox.closed:
                raise
            raise Transient("the scheduler is ending; ask again in a moment", code="draining") from None

    async def happening(self, since: asyncio.Event, timeout_s: float | None = None) -> None:
        """Until something has happened since `changed` was taken, before the look that found nothing; or the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await since.wait()

    async def shut_down(self, *, now: bool = False) -> None:
        """Interrupts every native run (drains, or stops at once) and ends. A second call with `now` shortens a drain.

        Runs of engines are left as they are, as by a crash: nothing of theirs runs here, and the next scheduler goes on with them, so that
        no engine has to know of it.
        """
        first = not self.ending
        self.ending = True
        event = ev.RunStopped if now else ev.RunDrained
        if not self.ended.is_set():
            state = self.machine.state
            for run in await self.ask(lambda: [each for each in state.active if is_native(state.runs[each])]):
                self.inbox.put(event(at=0.0, cause="shutdown", run=run, by=ev.BY_SERVICE))
        if first or now:
            end = time.monotonic() + STOP_DEADLINE_S if now else None
            while await self.has_active(is_native if now else is_waited_for) and (end is None or time.monotonic() < end):
                await self.happening(self.changed, 1.0)
            try:
                with contextlib.suppress(Transient):
                    await self.ask(lambda: self.past.keep_at_end(self.journal))
            finally:
                self.ended.set()

    async def has_active(self, counts: Callable[[RunEntry], bool] = lambda run: True) -> bool:
        state = self.machine.state
        return not self.ended.is_set() and await self.ask(lambda: any(counts(state.runs[run]) for run in state.active))

    async def close(self, *, stop_node: bool = True, for_good: bool = False) -> None:
        """After `ended`. Attempts still under way live on and are adopted by the next scheduler, and so does the node then. Of an engine's
        attempt nothing lives here but its directory. `for_good`: there will be no next one, since the state directory is gone.
        """
        await self.tasks.close()
        if for_good:
            self.executor.local.worker.end_all()
        await self.world.close()
        await self.executor.close()
        living = [each for each in self.outstanding.attempts.values() if not self.outstanding.workflows[each.run].engine]
        if for_good or (stop_node and not living):
            await self.node.stop()
        else:
            self.node.client.close()
        for store in (self.journal, self.records, self.profiles):
            with contextlib.suppress(sqlite3.Error) if for_good else contextlib.nullcontext():
                store.close()
        log.info("the scheduler of %s has ended (pid %d)", self.state_dir.root, os.getpid())
