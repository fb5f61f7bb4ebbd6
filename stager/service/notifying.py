"""Tells those who want to be told: notices are owed as soon as the journal holds what they are about, until they are delivered.

May know: the box, the ways, the journal. One rule: neither a run nor the end of the scheduler waits for anybody who is told; what could not
be delivered is owed, and the next scheduler goes on with it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from stager.adapters.journal_sqlite import SqliteJournal
from stager.adapters.notice_box import NoticeBox, Owed
from stager.adapters.notice_ways import Undelivered, Ways
from stager.model.errors import StagerError
from stager.model.notices import Notice, NotifyRules, Target
from stager.model.units import counted
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.state import State
from stager.service.notices import KnownRun, NoticeFold, body_of
from stager.service.run_targets import MARK, name_of, shown, target_of

log = logging.getLogger(__name__)
# Between two tries at one target: twice as long each time.
AGAIN_S_MIN, AGAIN_S_MAX = 1.0, 300.0
REFUSALS_MAX = 5
OWED_S_MAX = 7 * 86_400.0
GIVEN_UP_KEPT_S = 30 * 86_400.0
CLOSE_S = 3.0
# So many batches are looked through again after a crash, at most, where none of them made a notice.
CURSOR_EVERY = 1_000
WORKFLOW_THREADS = 4


class Notifier:
    """`catch_up` before the journal is replayed, `begin` after it, `saw` on the driving thread; a thread for each target."""

    def __init__(self, box: NoticeBox, rules: NotifyRules, environ: Mapping[str, str], journal: SqliteJournal) -> None:
        self.box, self.rules, self.journal = box, rules, journal
        self.ways = Ways(environ, rules.sendmail)
        self.fold = NoticeFold(box.source, rules.away_after_s)
        self.pending: list[Notice] = []
        self.last = self.written = 0
        self.changed = threading.Condition()
        self.made = 0
        # How often who is told has refused a notice, by its number. Whom nobody reaches refuses nothing.
        self.refusals: dict[int, int] = {}
        self.ending = False
        self.threads = [
            threading.Thread(target=self._tell, args=(each,), name=f"notify {each.name}", daemon=True) for each in rules.targets
        ]
        # Of workflows, whose targets are told in turn.
        self.turns = threading.Lock()
        self.busy: set[str] = set()
        self.later: dict[str, tuple[int, float]] = {}
        if rules.workflows is not None:
            self.threads += [
                threading.Thread(target=self._tell_of_workflows, name=f"notify workflows {number}", daemon=True)
                for number in range(WORKFLOW_THREADS)
            ]

    def catch_up(self) -> None:
        """Owes what an earlier scheduler had no time for. A journal of before anybody was to be told only says what goes on."""
        end, place = self.journal.next_seq - 1, self.box.place()
        mark = MARK if self.rules.workflows is not None else ""
        dropped = self.box.keep_only([target.name for target in self.rules.targets], mark)
        self.box.forget_given_up(time.time() - GIVEN_UP_KEPT_S)
        if dropped:
            log.warning("%s owed to targets that are no longer named are dropped", counted(dropped, "notice"))
        after = 0
        # A journal that ends before that place was begun anew.
        if place is not None and place[0] <= end:
            after = place[0]
            self.fold.take_up(place[1])
        self.fold.run_of = self._submitted
        for batch in self.journal.batches(after):
            made = self.fold.saw(batch.number, batch.events, batch.commands)
            self.pending += made if place is not None else []
        self.last = end
        self._owe(always=True)

    def _submitted(self, run: str) -> KnownRun:
        """As the journal says it while nobody has the state yet: of an old run that was resumed just before a kill."""
        for batch in self.journal.batches():
            for event in batch.events:
                if type(event) is ev.RunSubmitted and event.run == run:
                    return KnownRun(event.workflow.name, event.tenant, targets=event.workflow.notify)
        return KnownRun("", "")

    def _rebase(self) -> None:
        """The journal may have been folded away meanwhile, and counts from the beginning."""
        if self.journal.next_seq - 1 < self.last:
            self.last = self.journal.next_seq - 1
            self.fold.kept.moving.clear()
            self._owe(always=True)

    def begin(self, state: State) -> None:
        """The journal was replayed. `state`: read on the driving thread only."""
        self._rebase()

        def lfn_of(file_id: str) -> str:
            entry = state.files.get(file_id)
            return entry.lfn if entry is not None else ""

        def run_of(run: str) -> KnownRun:
            entry = state.runs.get(run)
            if entry is None:
                return KnownRun("", "")
            return KnownRun(entry.workflow.name, entry.tenant, targets=entry.workflow.notify)

        self.fold.lfn_of, self.fold.run_of = lfn_of, run_of
        for thread in self.threads:
            thread.start()

    def saw(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        """The journal holds this batch. What cannot be written now is with the next one, or is made again by the next scheduler."""
        self.last = self.journal.next_seq - 1
        try:
            self.pending += self.fold.saw(self.last, events, commands)
        except Exception:
            # No run ends because of who is told of it.
            log.exception("a defect of stager: nobody is told of batch %d", self.last)
        if self.pending or self.last - self.written >= CURSOR_EVERY:
            try:
                self._owe(always=self.last - self.written >= CURSOR_EVERY)
            except sqlite3.Error as problem:
                log.error("notices cannot be kept just now: %s", problem)

    def _owe(self, *, always: bool) -> None:
        """`always`: also where nobody wants to be told, so that the place is known from which a restart has to look."""
        rows = []
        for notice in self.pending:
            body = body_of(notice)
            rows += [(notice.id, target.name, notice.at, body) for target in self.rules.targets if target.wants(notice)]
            if self.rules.workflows is not None:
                named = [name_of(target) for target in self.fold.targets_of(notice.run) if notice.kind in target.on]
                rows += [(notice.id, name, notice.at, body) for name in dict.fromkeys(named)]
        if rows or always:
            self.box.add(rows, self.last, self.fold.to_keep())
            self.written = self.last
        self.pending = []
        if rows:
            with self.changed:
                self.made += 1
                self.changed.notify_all()

    def close(self) -> None:
        """What is due is tried once more, for a moment."""
        with self.changed:
            self.ending = True
            self.changed.notify_all()
        end = time.monotonic() + CLOSE_S
        for thread in self.threads:
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))
        self.box.close()

    def _tell(self, target: Target) -> None:
        """One after the other, in the order of the journal: a target that is down is asked with the first of them."""
        failures, not_before = 0, 0.0
        while True:
            with self.changed:
                seen = self.made
            try:
                owed = self.box.first(target.name)
                if owed is not None and time.monotonic() >= not_before:
                    failures = 0 if self._try(target, owed) else failures + 1
                    not_before = time.monotonic() + (min(AGAIN_S_MAX, AGAIN_S_MIN * 2 ** (failures - 1)) if failures else 0.0)
                    continue
            except sqlite3.Error as problem:
                log.error("notices of %s cannot be read just now: %s", target.name, problem)
                owed, not_before = None, time.monotonic() + AGAIN_S_MAX
            with self.changed:
                if self.ending:
                    return
                if self.made == seen:
                    wait_s = max(0.0, not_before - time.monotonic())
                    self.changed.wait(wait_s if owed is not None or wait_s else None)

    def _tell_of_workflows(self) -> None:
        """One target after the other: one that is down, or slow, keeps a thread for one try at a time."""
        while True:
            with self.changed:
                seen = self.made
            try:
                name, wait_s = self._next_of_workflows()
                if name is not None:
                    self._try_of_workflow(name)
                    continue
            except sqlite3.Error as problem:
                log.error("notices of workflows cannot be read just now: %s", problem)
                wait_s = AGAIN_S_MAX
            with self.changed:
                if self.ending:
                    return
                if self.made == seen:
                    self.changed.wait(wait_s)

    def _next_of_workflows(self) -> tuple[str | None, float | None]:
        """(whom to tell now, else for how long to wait; None: until something is owed)"""
        with self.turns:
            owed = [name for name in self.box.owed_to(MARK) if name not in self.busy]
            due = {name: self.later.get(name, (0, 0.0))[1] for name in owed}
            first = min(due, key=due.__getitem__, default=None)
            wait_s = max(0.0, due[first] - time.monotonic()) if first is not None else None
            if first is None or wait_s:
                return None, wait_s
            self.busy.add(first)
            return first, None

    def _try_of_workflow(self, name: str) -> None:
        try:
            owed = self.box.first(name)
            failures = self.later.get(name, (0, 0.0))[0]
            if owed is not None:
                failures = 0 if self._try_named(name, owed) else failures + 1
            with self.turns:
                self.later.pop(name, None)
                if failures:
                    self.later[name] = (failures, time.monotonic() + min(AGAIN_S_MAX, AGAIN_S_MIN * 2 ** (failures - 1)))
        finally:
            with self.turns:
                self.busy.discard(name)

    def _try_named(self, name: str, owed: Owed) -> bool:
        try:
            target, public_only = target_of(name, self.rules)
        except StagerError as problem:
            log.warning("notice %s to %s is given up: %s", owed.id, shown(name), problem.message)
            self.box.failed(owed, problem.message, given_up=True)
            return True
        return self._try(target, owed, public_only=public_only)

    def _try(self, target: Target, owed: Owed, *, public_only: bool = False) -> bool:
        """False: it is to be tried again later."""
        try:
            self.ways.deliver(target, owed.id, owed.body, public_only=public_only)
        except Exception as found:
            problem = found if isinstance(found, Undelivered) else defect(owed, found)
            refusals = self.refusals.pop(owed.number, 0) + problem.refused
            hopeless = refusals >= REFUSALS_MAX or time.time() - owed.made_at > OWED_S_MAX
            if refusals and not hopeless:
                self.refusals[owed.number] = refusals
            if hopeless:
                log.error("notice %s to %s is given up: %s", owed.id, target.name, problem)
            elif not owed.tries:
                log.warning("notice %s to %s is owed, since %s; it is tried again", owed.id, target.name, problem)
            self.box.failed(owed, str(problem), given_up=hopeless)
            return hopeless
        self.refusals.pop(owed.number, None)
        self.box.delivered(owed)
        return True


def defect(owed: Owed, found: Exception) -> Undelivered:
    """The thread goes on: it tells others too. What was raised may have anything in it, so the log gets its kind and place."""
    where = "".join(traceback.format_tb(found.__traceback__))
    log.error("a defect of stager: notice %s cannot be told (%s)\n%s", owed.id, type(found).__name__, where)
    return Undelivered(f"a defect of stager ({type(found).__name__}), of which scheduler.log says more", refused=True)


def notifier_of(file: Path, place: Path, environ: Mapping[str, str], journal: SqliteJournal) -> Notifier | None:
    """`file`: notify.toml; `place`: of the box. None: nobody is to be told. Raises InvalidInput or Denied for a file that is wrong."""
    from stager.readers.notify import read_notify

    rules = read_notify(file)
    if rules is None or not (rules.targets or rules.workflows):
        if place.exists():
            box = NoticeBox(place)
            box.leave_off()
            box.close()
        return None
    notifier = Notifier(NoticeBox(place), rules, environ, journal)
    notifier.catch_up()
    return notifier
