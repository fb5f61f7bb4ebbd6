"""Sums that views and summaries need and the Machine does not: what attempts measured, what moved when, the timeline of a run in steps.

May know: events and commands. One rule: fed by the same batches live and in replay, or begun with what it kept; it decides nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.timeline import Step, step_of

STEPS_KEPT = 50_000


@dataclass(slots=True)
class Newest:
    """Of a job's newest attempt. `duration_s` None: it is under way."""

    started_at: float
    duration_s: float | None = None
    memory_peak_bytes: int | None = None


@dataclass(slots=True)
class RunCounters:
    attempts: int = 0
    read_bytes: int | None = None
    moved_fetch_bytes: int = 0
    moved_upload_bytes: int = 0
    verified: dict[str, int] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)
    newest: dict[str, Newest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptCounters:
    runs: dict[str, RunCounters]
    transfers: dict[str, tuple[str, bool]]
    steps: list[Step]
    next_seq: int


class Counters:
    """On the driving thread only."""

    KEPT = KeptCounters

    def __init__(self) -> None:
        self.runs: dict[str, RunCounters] = {}
        self.transfers: dict[str, tuple[str, bool]] = {}
        self.steps: deque[Step] = deque(maxlen=STEPS_KEPT)
        self.next_seq = 1

    def kept(self) -> KeptCounters:
        return KeptCounters(self.runs, self.transfers, list(self.steps), self.next_seq)

    def take_up(self, kept: KeptCounters) -> None:
        self.runs, self.transfers, self.next_seq = kept.runs, kept.transfers, kept.next_seq
        self.steps.extend(kept.steps)

    def saw(self, events: Sequence[Any], commands: Sequence[Any]) -> None:
        for event in events:
            if type(event) in (ev.TransferDone, ev.TransferFailed, ev.TransferCancelled):
                self._transfer_ended(event)
            elif type(event) is ev.AttemptEnded:
                self._attempt_ended(event)
            elif type(event) in RUN_EVENTS:
                self._step(event.run, event)
        for command in commands:
            if type(command) in (cmd.Fetch, cmd.Upload):
                self.transfers[command.transfer] = (command.run, type(command) is cmd.Fetch)
            if type(command) is cmd.StartAttempt:
                self.of(command.run).newest[command.job] = Newest(command.at)
            if type(command) in RUN_COMMANDS:
                self._step(command.run, command)

    def of(self, run: str) -> RunCounters:
        return self.runs.setdefault(run, RunCounters())

    def since(self, run: str, after: int, limit: int) -> tuple[list[Step], bool]:
        """Steps of the run after that number, oldest first, and whether older ones were dropped."""
        gap = bool(self.steps) and after + 1 < self.steps[0].seq and self.steps[0].seq > 1
        found = [step for step in self._newer(after) if step.run == run]
        found.reverse()
        return found[:limit], gap

    def _newer(self, after: int) -> Iterator[Step]:
        for step in reversed(self.steps):
            if step.seq <= after:
                return
            yield step

    def _step(self, run: str, value: Any) -> None:
        self.steps.append(step_of(self.next_seq, run, value))
        self.next_seq += 1

    def _transfer_ended(self, event: ev.TransferDone | ev.TransferFailed | ev.TransferCancelled) -> None:
        known = self.transfers.pop(event.transfer, None)
        if known is None:
            return
        run, is_fetch = known
        self._step(run, event)
        if type(event) is not ev.TransferDone:
            return
        counters = self.of(run)
        if is_fetch:
            counters.moved_fetch_bytes += event.bytes_moved
        else:
            counters.moved_upload_bytes += event.bytes_moved

    def _attempt_ended(self, event: ev.AttemptEnded) -> None:
        counters = self.of(event.run)
        counters.attempts += 1
        if event.measures.read_bytes is not None:
            counters.read_bytes = (counters.read_bytes or 0) + event.measures.read_bytes
        if event.exit_code is not None:
            counters.exit_codes[event.job] = event.exit_code
        newest = counters.newest.get(event.job)
        if newest is not None:
            measured, memory = event.measures.wall_s, event.measures.memory_peak_bytes
            newest.duration_s = measured if measured is not None else max(0.0, event.at - newest.started_at)
            newest.memory_peak_bytes = memory
        self._step(event.run, event)


OF_RUNS = {ev.RunSubmitted, ev.RunResumed, ev.RunScattered, ev.RunDrained, ev.RunStopped, ev.RunCancelled}
RUN_EVENTS = frozenset(OF_RUNS | {ev.JobCalled, ev.CallFailed, ev.EngineRunEnded})
RUN_COMMANDS = frozenset(
    {
        cmd.Fetch,
        cmd.AssembleStripes,
        cmd.GiveUpStripes,
        cmd.CopyReplica,
        cmd.Upload,
        cmd.GiveUpTransfer,
        cmd.StartAttempt,
        cmd.RequeueJob,
        cmd.FailJob,
        cmd.EndCall,
        cmd.RemakeFile,
        cmd.AwaitJob,
        cmd.StopAwaiting,
        cmd.TakeOver,
        cmd.FallBackToFetch,
        cmd.PauseOrigin,
        cmd.PauseRun,
        cmd.TellForecast,
        cmd.FinishRun,
    }
)
