"""The record that is written of a run when it ends: its summary, and the ledger of its finals. One rule: on the driving thread, from the
state as it is then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from stager.adapters.run_records import RunRecords
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.ledger import ledger_of
from stager.scheduler.states import RunState
from stager.service.counters import Counters
from stager.service.known_runs import KnownRuns
from stager.service.views import ledger_entry, run_summary, state_of


class Summaries:
    def __init__(self, runs: KnownRuns, records: RunRecords, counters: Counters) -> None:
        self.runs, self.records, self.counters = runs, records, counters

    def settle(self) -> None:
        """Completes the records that a crash left behind the journal."""
        state = self.runs.state
        for record in self.records.all():
            run = state.runs.get(record.run)
            if run is None and record.summary is None and not record.removed:
                self.records.forget(record.run)
            elif run is not None and run.state is RunState.FINISHED and record.finished_at is None:
                self.write(record.run)

    def saw(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        """Of each batch, live only: a replay has written them already."""
        for command in commands:
            if type(command) is cmd.FinishRun:
                self.write(command.run)

    def write(self, run: str) -> None:
        state = self.runs.state
        entry = state.runs[run]
        summary = run_summary(state, entry, self.counters)
        finals = [ledger_entry(entry.workflow, each).model_dump(mode="json") for each in ledger_of(state, run) if each.final]
        ended = (state_of(entry), entry.finished_at, summary.jobs_done, summary.model_dump_json(by_alias=True))
        self.records.finish(run, *ended, json.dumps(finals).encode())
