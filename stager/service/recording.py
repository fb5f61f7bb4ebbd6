"""Writes down what jobs made, so that later runs need not make it again.

May know: the state of the Machine (read only), the results store. One rule: what the journal holds is written sooner or later, whatever is
killed; what cannot be written is told.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stager.model.errors import ErrorClass, Fault, StagerError
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import RunState

if TYPE_CHECKING:
    from stager.adapters.results_store import ResultsStore
    from stager.model.results import KeptOutput, Result, SeenAt
    from stager.model.scatter import Rows, Scatter

log = logging.getLogger(__name__)
# Written together while a run goes on. What is left is written when it ends.
WRITE_TOGETHER = 200
UNWRITTEN_CODE = "results_unwritten"


class Recording:
    """On the driving thread. What it needs is imported, and the file opened, by the first thing that there is to write: a scheduler that
    starts waits for neither.
    """

    def __init__(self, path: Path, state: State) -> None:
        self.path, self.state = path, state
        self.opened: ResultsStore | None = None
        self.waiting: dict[str, list[Result]] = {}
        # Of the same jobs, what nodes hold of it. The files that the store says they hold, and those of them that they hold no more.
        self.held: dict[str, list[tuple[str, str, KeptOutput]]] = {}
        self.named: dict[str, list[tuple[str, Scatter, Rows]]] = {}
        self.kept: set[str] | None = None
        self.gone: list[str] = []
        # By run, why later runs will not find all of it.
        self.faults: dict[str, Fault] = {}
        self.caught_up = False

    def saw(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        """Of each batch, once the journal holds it: what is not written when this process dies, the next one finds in the journal."""
        for event in events:
            if type(event) is ev.RunResumed and self.path.exists():
                self._reopen(event.run)
        if not self.caught_up:
            self.caught_up = True
            self._catch_up()
            return
        for event in events:
            if type(event) is ev.AttemptEnded and event.outcome is ev.Outcome.OK:
                self._job_ended(event)
            elif type(event) is ev.RunSubmitted and event.reused:
                self._used(event)
        if self.state.policy.keep_results_bytes:
            self._note_gone(events, commands)
        for command in commands:
            if type(command) is cmd.FinishRun:
                self._run_ended(command.run)

    def passed(self, env: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
        """Keyed digests of the values of these variables. Nothing where they cannot be made: then such jobs are not recorded."""
        wanted, found = sorted(set(names)), dict[str, str]()
        if wanted:
            self._try_to("", lambda store: found.update(store.passed(env, wanted)))
        return found

    def close(self) -> None:
        if self.gone:
            self._write_gone()
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
                continue
            found = (result_in(self.state, run, job_id, self.state.now, None) for job_id in run.jobs)
            self.waiting[run.id] = []
            for result in found:
                if result is not None:
                    self._add(run, result)
            if run.state is RunState.FINISHED:
                self._run_ended(run.id)
        if self.state.policy.keep_results_bytes:
            self._note_gone_of(list(self._kept_files()))

    def _job_ended(self, event: ev.AttemptEnded) -> None:
        run = self.state.runs.get(event.run)
        if run is None or run.is_engines:
            return
        from stager.service.results_in_state import result_in

        result = result_in(self.state, run, event.job, event.at, event.measures.wall_s)
        if result is not None:
            self._add(run, result)
            if len(self.waiting[event.run]) >= WRITE_TOGETHER:
                self._write(event.run)

    def _add(self, run: RunEntry, result: Result) -> None:
        self.waiting.setdefault(run.id, []).append(result)
        for each in run.workflow.scatters:
            rows = each.rows if each.rows is not None else run.members.get(each.name)
            if each.maker == result.job and rows is not None:
                self.named.setdefault(run.id, []).append((result.key, each, rows))
        if self.state.policy.keep_results_bytes:
            from stager.service.results_in_state import kept_of

            held = list(kept_of(self.state, run, result))
            self.held.setdefault(run.id, []).extend(held)
            if held:
                self._kept_files().update(output.file for _, _, output in held)

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
        if len(self.gone) >= WRITE_TOGETHER:
            self._write_gone()

    def _write_gone(self) -> None:
        gone, self.gone = self.gone, []
        self._try_to("", lambda store: store.write("", gone=gone))

    def _run_ended(self, run_id: str) -> None:
        """Also where none of its jobs was recorded: what it saw at origins tells the next one what did not change."""
        run = self.state.runs.get(run_id)
        if run is None or run.is_engines:
            return
        from stager.service.results_in_state import seen_of

        seen = tuple(seen_of(self.state, run))
        if run.workflow.anew:
            self._try_to(run_id, lambda store: self._compare(store, run, seen))
        self._write(run_id, seen, complete=run_id)

    def _compare(self, store: ResultsStore, run: RunEntry, seen: Sequence[SeenAt]) -> None:
        """Inputs were fetched anew: what is cached and remembered under the same token has another content where they changed."""
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
                self.faults[run.id] = Fault(ErrorClass.CORRUPT, "input_disguised", text, each.path)
                return

    def _write(self, run_id: str, seen: Sequence[SeenAt] = (), complete: str = "") -> None:
        tenant, results = self.state.runs[run_id].tenant, self.waiting.pop(run_id, [])
        held = [each for each in self.held.pop(run_id, []) if each[2].file in self._kept_files()]
        gone, self.gone = self.gone, []
        named = self.named.pop(run_id, [])
        self._try_to(run_id, lambda store: store.write(tenant, results, seen, complete=complete, kept=held, gone=gone, members=named))

    def _reopen(self, run: str) -> None:
        self._try_to(run, lambda store: store.reopen(run))

    def _used(self, event: ev.RunSubmitted) -> None:
        """So that what is forgotten first is what nobody uses."""
        run = self.state.runs[event.run]
        used = [(each.key, event.at) for each in event.reused]
        if any(made.kept and run.file_ids[made.lfn] != made.kept for each in event.reused for made in each.outputs):
            # It was planned with what is not there any more.
            self._note_gone_of([made.kept for each in event.reused for made in each.outputs if made.kept in self._kept_files()])
        self._try_to(event.run, lambda store: store.write(run.tenant, used=used))

    def _try_to(self, run: str, write: Callable[[ResultsStore], object]) -> None:
        """A scheduler does not end because what it remembers cannot be written down: that is told, of the run that it is about."""
        from stager.adapters.results_store import ResultsStore

        try:
            if self.opened is None:
                self.opened = ResultsStore(self.path)
            write(self.opened)
        except (sqlite3.Error, OSError, StagerError) as problem:
            text = f"what the jobs of this run made cannot be recorded, so a later run makes it again: {self.path}: {problem}"
            log.warning("%s", text)
            if run:
                self.faults[run] = Fault(ErrorClass.TRANSIENT, UNWRITTEN_CODE, text, str(self.path))
