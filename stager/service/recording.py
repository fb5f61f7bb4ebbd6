"""Writes down what jobs made, so that later runs need not make it again.

May know: the state of the Machine (read only), the results store. One rule: what the journal holds is written sooner or later, whatever is
killed; what cannot be written is told.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stager.model.errors import ErrorClass, Fault, StagerError
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import RunState

if TYPE_CHECKING:
    from stager.adapters.results_store import Named, ResultsStore
    from stager.model.results import KeptOutput, MadeOutput, Result, SeenAt

log = logging.getLogger(__name__)
# Written together while a run goes on. What is left is written when it ends.
WRITE_TOGETHER = 200
# What could not be written is tried again so long after: each try may hold up the scheduler.
AGAIN_S = 10.0
# Of results and places that could not be written so many wait here. More are left to the next scheduler, which has the journal.
WAITING_MAX = 10_000
UNWRITTEN_CODE = "results_unwritten"


@dataclass(slots=True)
class Unwritten:
    """Of one run. `held`: of the same jobs, what nodes hold; `named`: what outputs of them name; `used`: what it reuses. `seen`: once it is
    over. `again_with`: it is to be written, and where that cannot be, again with so many results at the latest; 0: it is not yet.
    """

    tenant: str
    results: list[Result] = field(default_factory=list)
    held: list[tuple[str, str, KeptOutput]] = field(default_factory=list)
    named: list[Named] = field(default_factory=list)
    used: list[tuple[str, float]] = field(default_factory=list)
    seen: Sequence[SeenAt] = ()
    is_over: bool = False
    again_with: int = 0

    @property
    def size(self) -> int:
        return len(self.results) + len(self.seen)

    def is_due(self) -> None:
        self.again_with = len(self.results) + WRITE_TOGETHER


class Recording:
    """On the driving thread. What it needs is imported, and the file opened, by the first thing that there is to write: a scheduler that
    starts waits for neither. What is to be written leaves memory when it is written, and not before.
    """

    def __init__(self, path: Path, state: State, ahead_s: Callable[[], float]) -> None:
        """`ahead_s`: how far the scheduler's clock is ahead of that of this machine."""
        self.path, self.state, self.ahead_s = path, state, ahead_s
        self.opened: ResultsStore | None = None
        self.waiting: dict[str, Unwritten] = {}
        # The files that the store says nodes hold, and those of them that they hold no more.
        self.kept: set[str] | None = None
        self.gone: list[str] = []
        # Runs that go on and may count as complete in the store, and those of which this scheduler has let go something unwritten.
        self.reopened: set[str] = set()
        self.left: set[str] = set()
        # Runs whose submit looked whether inputs are what they were. Of those of an earlier scheduler nobody knows.
        self.looked: set[str] = set()
        # Since a write failed: when what waits is tried again.
        self.again_at: float | None = None
        # By run, why later runs will not find all of it.
        self.faults: dict[str, Fault] = {}
        self.caught_up = False

    def saw(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        """Of each batch, once the journal holds it: what is not written when this process dies, the next one finds in the journal."""
        for event in events:
            if type(event) is ev.RunResumed and (event.run in self.waiting or self.path.exists()):
                self._reopen(event.run)
        if not self.caught_up:
            self.caught_up = True
            self._catch_up()
            return
        for event in events:
            if type(event) is ev.AttemptEnded and event.outcome is ev.Outcome.OK:
                self._job_ended(event)
            elif type(event) is ev.RunSubmitted and (event.sharing is not None or event.reused):
                self.looked.add(event.run)
                if event.reused:
                    self._used(event)
        if self.state.policy.keep_results_bytes:
            self._note_gone(events, commands)
        for command in commands:
            if type(command) is cmd.FinishRun:
                self._run_ended(command.run)
        if self.again_at is not None and self.state.now >= self.again_at:
            self._write_all()

    def passed(self, env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
        """Keyed digests of the values of these variables. Nothing where they cannot be made: then such jobs are not recorded."""
        wanted, found = sorted(set(names)), dict[str, str]()
        if wanted:
            self._try_to("", lambda store: found.update(store.passed(env, wanted)))
        return found

    def close(self) -> None:
        """What waits of a run that goes on is left to the next scheduler."""
        self._write_all()
        if self.opened is not None:
            self.opened.close()

    def _catch_up(self) -> None:
        """What the process before did not get to write. Its runs may go on, or be over."""
        runs = [run for run in self.state.runs.values() if not run.is_engines]
        if not runs:
            return
        from stager.service.results_in_state import result_in

        written: set[str] = set()
        self._try_to(runs[-1].id, lambda store: written.update(store.complete()))
        for run in runs:
            if run.id in written:
                if run.state is RunState.FINISHED:
                    continue
                # Whoever had it go on did not get to say so.
                self._reopen(run.id)
            known = self._known_of(run)
            found = (result_in(self.state, run, job_id, self.state.now, None) for job_id in run.jobs)
            for result in found:
                if result is not None and known.get(result.key) != result.outputs:
                    self._add(run, result)
            if run.state is RunState.FINISHED:
                self._run_ended(run.id)
        if self.state.policy.keep_results_bytes:
            self._note_gone_of(list(self._kept_files()))

    def _known_of(self, run: RunEntry) -> dict[str, tuple[MadeOutput, ...]]:
        """What is written of it, by key: more was known of these jobs when they ended than is now."""
        known: dict[str, tuple[MadeOutput, ...]] = {}
        if self.path.exists():
            self._try_to(run.id, lambda store: known.update({each.key: each.outputs for each in store.results(run.tenant, run=run.id)}))
        return known

    def _job_ended(self, event: ev.AttemptEnded) -> None:
        run = self.state.runs.get(event.run)
        if run is None or run.is_engines:
            return
        from stager.service.results_in_state import result_in

        result = result_in(self.state, run, event.job, event.at, event.measures.wall_s)
        if result is not None:
            each = self._add(run, result)
            if len(each.results) >= max(WRITE_TOGETHER, each.again_with):
                self._write(event.run)

    def _add(self, run: RunEntry, result: Result) -> Unwritten:
        unwritten = self.waiting.setdefault(run.id, Unwritten(run.tenant))
        unwritten.results.append(result)
        for each in run.workflow.scatters:
            rows = each.rows if each.rows is not None else run.members.get(each.name)
            if each.maker == result.job and rows is not None:
                unwritten.named.append((result.key, each, self.state.files[run.file_ids[each.over]].blake3, rows))
        if self.state.policy.keep_results_bytes:
            from stager.service.results_in_state import kept_of

            held = list(kept_of(self.state, run, result))
            unwritten.held += held
            if held:
                self._kept_files().update(output.file for _, _, output in held)
        return unwritten

    def _kept_files(self) -> set[str]:
        if self.kept is None:
            found: list[tuple[str, KeptOutput]] = []
            if self.path.exists():
                self._try_to("", lambda store: found.extend(store.kept_files()))
            self.kept = {output.file for _, output in found}
        return self.kept

    def _note_gone(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        """What nodes are told to delete, have found damaged, or do not have any more."""
        files = {command.file for command in commands if type(command) is cmd.DeleteReplica}
        files |= {event.file for event in events if type(event) is ev.ReplicaCorrupt}
        everything = any(type(event) in (ev.NodeReported, ev.NodeGone) for event in events)
        if everything and (self.kept is not None or self.path.exists()):
            # Of one whose run is not known any more, the node that has it may not have reported yet.
            known = (file for file in self._kept_files() if file not in self.state.files or self.state.files[file].run)
            self._note_gone_of(list(known))
        elif files and self._kept_files():
            self._note_gone_of(files & self._kept_files())

    def _note_gone_of(self, files: Iterable[str]) -> None:
        from stager.service.results_in_state import is_held

        lost = [file for file in files if not is_held(self.state, file)]
        self._kept_files().difference_update(lost)
        self.gone += lost
        if len(self.gone) >= WRITE_TOGETHER and self.again_at is None:
            self._write_gone()

    def _write_gone(self) -> bool:
        if not self._try_to("", lambda store: store.write("", gone=self.gone)):
            return False
        self.gone = []
        return True

    def _run_ended(self, run_id: str) -> None:
        """Also where none of its jobs was recorded: what it saw at origins tells the next one what did not change."""
        run = self.state.runs.get(run_id)
        if run is None or run.is_engines:
            return
        from stager.service.results_in_state import seen_of

        seen = tuple(seen_of(self.state, run, self.ahead_s()))
        if run.workflow.anew:
            self._try_to(run_id, lambda store: self.faults.update(disguised(store, run, seen)))
        unwritten = self.waiting.setdefault(run.id, Unwritten(run.tenant))
        unwritten.seen, unwritten.is_over = seen, True
        self._write(run_id)

    def _write(self, run_id: str) -> bool:
        """After what could not be written before, since the newest counts."""
        self.waiting[run_id].is_due()
        return self._write_all()

    def _write_all(self) -> bool:
        """All that is due, and what nodes hold no more; until the first that cannot be written."""
        self.again_at = None
        due = [run for run, each in self.waiting.items() if each.again_with]
        for run in due:
            if not self._put(run):
                for other in due:
                    self.faults.setdefault(other, self.faults[run])
                self._let_go()
                return False
        noted = all(self._reopen(run) for run in list(self.reopened))
        return noted and (not self.gone or self._write_gone())

    def _put(self, run_id: str) -> bool:
        """In one transaction."""
        each = self.waiting[run_id]
        complete = run_id if each.is_over and run_id not in self.left else ""

        def put(store: ResultsStore) -> None:
            if run_id in self.reopened:
                store.reopen(run_id)
            held = [one for one in each.held if one[2].file in self._kept_files()]
            looked = run_id in self.looked
            store.write(each.tenant, each.results, each.seen, each.used, complete, held, self.gone, each.named, looked=looked)

        if not self._try_to(run_id, put):
            each.is_due()
            return False
        del self.waiting[run_id]
        self.gone = []
        self.reopened.discard(run_id)
        if run_id in self.faults and self.faults[run_id].code == UNWRITTEN_CODE and run_id not in self.left:
            del self.faults[run_id]
        return True

    def _let_go(self) -> None:
        """Of too much the oldest. Such a run is not called complete, so the next scheduler takes all of it from the journal."""
        failed = {run_id: each.size for run_id, each in self.waiting.items() if each.again_with}
        size = sum(failed.values())
        for run_id in failed:
            if size <= WAITING_MAX:
                break
            size -= self.waiting.pop(run_id).size
            self.left.add(run_id)

    def _reopen(self, run: str) -> bool:
        """It goes on, so there will be more of it."""
        self.reopened.add(run)
        if run in self.waiting:
            self.waiting[run].is_over = False
        if not self._try_to(run, lambda store: store.reopen(run)):
            return False
        self.reopened.discard(run)
        return True

    def _used(self, event: ev.RunSubmitted) -> None:
        """So that what is forgotten first is what nobody uses."""
        run = self.state.runs[event.run]
        if any(made.kept and run.file_ids[made.lfn] != made.kept for each in event.reused for made in each.outputs):
            # It was planned with what is not there any more.
            self._note_gone_of([made.kept for each in event.reused for made in each.outputs if made.kept in self._kept_files()])
        self.waiting.setdefault(run.id, Unwritten(run.tenant)).used += [(each.key, event.at) for each in event.reused]
        self._write(event.run)

    def _try_to(self, run: str, write: Callable[[ResultsStore], object]) -> bool:
        """A scheduler does not end because what it remembers cannot be written down: that is told, of the run that it is about."""
        from stager.adapters.results_store import ResultsStore

        try:
            if self.opened is None:
                self.opened = ResultsStore(self.path)
            write(self.opened)
        except (sqlite3.Error, OSError, StagerError) as problem:
            text = f"what the jobs of this run made cannot be recorded, so a later run makes it again: {self.path}: {problem}"
            text += "; it is tried again until the scheduler ends, and by the next one"
            log.warning("%s", text)
            self.again_at = self.state.now + AGAIN_S
            if run:
                # That an input is not what it seems counts for more.
                self.faults.setdefault(run, Fault(ErrorClass.TRANSIENT, UNWRITTEN_CODE, text, str(self.path)))
            return False
        return True


def unwritten_files(recording: Recording) -> set[str]:
    """That nodes hold of what is not written yet."""
    return {output.file for each in recording.waiting.values() for _, _, output in each.held}


def disguised(store: ResultsStore, run: RunEntry, seen: Sequence[SeenAt]) -> dict[str, Fault]:
    """Inputs were fetched anew: what is cached and remembered under the same token has another content where they changed. By run."""
    inputs = [each for each in seen if not each.verified]
    paths: dict[str, list[str]] = {}
    for each in inputs:
        paths.setdefault(each.origin, []).append(each.path)
    known = {origin: store.seen(run.tenant, origin, wanted, finals=False) for origin, wanted in paths.items()}
    for each in inputs:
        before = known[each.origin].get(each.path)
        if before is not None and before.token == each.token and before.blake3 != each.blake3:
            text = f"the content of the input {each.path} changed, and its size and time are what they were"
            text += "; `touch` it at its origin, or later runs take what is cached of it for what it is"
            log.warning("run %s: %s", run.id, text)
            return {run.id: Fault(ErrorClass.CORRUPT, "input_disguised", text, each.path)}
    return {}
