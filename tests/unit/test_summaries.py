"""The record of a run follows the journal, wherever the scheduler was killed between the two."""

from __future__ import annotations

from pathlib import Path

from stager import wire
from stager.adapters.run_records import RunRecord
from stager.scheduler import events as ev
from stager.service.counters import Counters
from stager.service.summaries import Summaries
from tests.unit.test_run_service import Bench, writing


class Killed(Bench):
    """A run that was interrupted, told so in its record, and resumed."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.summaries = Summaries(self.run_service.runs, self.run_service.records, Counters())
        self.run = self.submit(writing("file:///data", "out/x"))
        self.interrupt(1.0)
        self.summaries.write(self.run)

    def interrupt(self, at: float) -> None:
        self.machine.step(ev.RunDrained(at=at, run=self.run))
        for attempt in list(self.machine.state.attempts):
            self.machine.step(ev.AttemptEnded(at=at + 1.0, run=self.run, job="make", attempt=attempt, outcome=ev.Outcome.LOST))

    @property
    def record(self) -> RunRecord:
        record = self.run_service.records.get(self.run)
        assert record is not None
        return record


def test_a_run_that_was_resumed_and_ended_unrecorded_is_recorded_by_the_next_scheduler(tmp_path: Path) -> None:
    bench = Killed(tmp_path)
    bench.run_service.resume(bench.run, wire.ResumeRequest(), lambda: None)
    bench.interrupt(5.0)
    assert bench.machine.state.now >= 5.0 and bench.record.state == "active"
    bench.summaries.settle()
    assert (bench.record.state, bench.record.finished_at) == ("interrupted", bench.machine.state.runs[bench.run].finished_at)


def test_a_resume_that_never_reached_the_journal_leaves_the_run_as_it_ended(tmp_path: Path) -> None:
    bench = Killed(tmp_path)
    bench.slow = True
    bench.run_service.resume(bench.run, wire.ResumeRequest(), lambda: None)
    bench.summaries.settle()
    assert (bench.record.state, bench.record.finished_at) == ("interrupted", 2.0)
