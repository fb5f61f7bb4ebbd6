"""The runs that there are: those in the Machine's state, and behind them those of which only the archive tells.

May know: the Machine's state (read only), the run records. One rule: on the driving thread, between two batches.
"""

from __future__ import annotations

from stager.adapters.run_records import RunRecords
from stager.scheduler.machine import Machine
from stager.scheduler.state import RunEntry, State
from stager.service.archive import Archive


class KnownRuns:
    def __init__(self, machine: Machine, records: RunRecords) -> None:
        self.machine = machine
        self.archive = Archive(records)

    @property
    def state(self) -> State:
        return self.machine.state

    def known(self, run: str) -> RunEntry:
        """Raises InvalidInput if there is no such run."""
        entry = self.machine.state.runs.get(run)
        if entry is None:
            raise self.archive.folded(run)
        return entry

    def is_folded(self, run: str) -> bool:
        """It is over, and only the archive tells of it."""
        return run not in self.machine.state.runs and self.archive.find(run) is not None
