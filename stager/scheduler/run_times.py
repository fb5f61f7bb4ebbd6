"""When things of one run happened: its attempts and transfers, and what others took of the same nodes meanwhile. The critical path is
walked over it.

May know: events, commands, the workflow that they bring. One rule: it only retells what is recorded, and forgets what ended before the run
was submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

from stager.model.workflow import Workflow
from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.host_times import HostTimes
from stager.scheduler.steps import Steps

# A run with such an end stays ended.
FOR_GOOD = (cmd.RunOutcome.SUCCEEDED, cmd.RunOutcome.CANCELLED)


class Way(StrEnum):
    """An upload is that of a final: what is spilled nobody waits for."""

    FETCH = "fetch"
    COPY = "copy"
    UPLOAD = "upload"


@dataclass(slots=True)
class Attempted:
    """`inputs`: (lfn, generation) of what was staged. `made_at`: when its program had ended, which took `wall_s`; None: nobody knows.
    `space_waits`: from when until when its outputs waited for space. `ended_at` None: it is under way.
    """

    id: str
    run: str
    job: str
    node: str
    begun_at: float
    inputs: tuple[tuple[str, str], ...]
    cores: int
    memory_bytes: int
    ended_at: float | None = None
    made_at: float | None = None
    wall_s: float | None = None
    is_ok: bool = False
    is_void: bool = False
    host: str = ""
    space_waits: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True)
class Moved:
    """`place`: an origin, or of a copy the node that it comes from. `generation`: of what is copied or uploaded. `ended_at` None: it is
    under way. `not_before`: of one that failed, from when on it may be tried again.
    """

    id: str
    way: Way
    run: str
    file: str
    lfn: str
    place: str
    node: str
    asked_at: float
    generation: str = ""
    ended_at: float | None = None
    is_ok: bool = False
    not_before: float | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """When the run took up no more jobs: from `asked_at` on it was being ended, from `over_at` on it had ended, until somebody resumed
    it.
    """

    asked_at: float
    over_at: float
    until: float


class RunTimes:
    """Fed with the journal, or while a simulation goes on, from before the run is submitted."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.workflow: Workflow | None = None
        self.planned_on: dict[str, str] = {}
        self.submitted_at = 0.0
        self.finished_at: float | None = None
        self.outcome: cmd.RunOutcome | None = None
        self.engine_ended_at: float | None = None
        self.attempts: dict[str, Attempted] = {}
        self.moves: dict[str, Moved] = {}
        # By file, and whether it was an upload.
        self.failed: dict[tuple[str, bool], list[Moved]] = {}
        # By job of this run: when it was admitted, called, or had to run again; from when until when it was not to begin.
        self.admitted: dict[str, list[float]] = {}
        self.called: dict[str, list[float]] = {}
        self.remade: dict[str, list[float]] = {}
        # By job of this run: when it was found done, since what it would make was made elsewhere, and by which run.
        self.taken: dict[str, tuple[float, str]] = {}
        # By job of this run that members brought, or changed: when, and the job that named them.
        self.scattered: dict[str, tuple[float, str]] = {}
        self.backoffs: dict[str, list[tuple[float, float]]] = {}
        # By job of this run: from when on it had failed, until the run was resumed.
        self.job_failed: dict[str, list[tuple[float, float]]] = {}
        # By file: when its upload was given up.
        self.given_up: dict[str, list[float]] = {}
        self.closed: list[Closed] = []
        # By node: jobs that are admitted and have not begun, and whether it is away.
        self.waiting: dict[str, Steps] = {}
        self.away: dict[str, Steps] = {}
        self.hosts = HostTimes()
        self.limits, self.admitted_waiting_max = Steps(), Policy().admitted_waiting_max
        # Since when it is being ended, and whether that can be taken back.
        self._asked_at: float | None = None
        self._drains = True
        self._holds: dict[tuple[str, str], str] = {}
        # Of all runs, the jobs that take more than one core, or memory: (cores, bytes).
        self._needs: dict[str, dict[str, tuple[int, int]]] = {}
        self._space_since: dict[str, float] = {}

    def heard(self, event: Any) -> None:
        teller = HEARD.get(type(event))
        if teller is not None:
            teller(self, event)

    def gave(self, command: Any) -> None:
        teller = GAVE.get(type(command))
        if teller is not None:
            teller(self, command)

    def limits_at(self, time: float) -> Limits:
        found: Limits = self.limits.at(time, Limits())
        return found

    @property
    def is_engines(self) -> bool:
        return self.workflow is not None and bool(self.workflow.engine)

    def own_attempts(self) -> Iterator[Attempted]:
        return (attempt for attempt in self.attempts.values() if attempt.run == self.run)

    def set_needs(self, run: str, workflow: Workflow) -> None:
        if workflow.engine:
            self._needs[run] = dict.fromkeys(workflow.jobs, (0, 0))
            return
        jobs = workflow.jobs.values()
        self._needs[run] = {job.id: (job.cores, job.memory_bytes or 0) for job in jobs if job.cores != 1 or job.memory_bytes}

    def needs_of(self, run: str, job: str) -> tuple[int, int]:
        return self._needs.get(run, {}).get(job, (1, 0))

    def counts(self, begun_at: float) -> bool:
        """Whether the run lived when that began, or lives now."""
        return self.workflow is not None and (self.finished_at is None or begun_at < self.finished_at)

    def end_move(self, move: Moved, at: float, is_ok: bool) -> None:
        move.ended_at, move.is_ok = at, is_ok
        if not self.counts(move.asked_at):
            del self.moves[move.id]
        elif not is_ok:
            self.failed.setdefault((move.file, move.way is Way.UPLOAD), []).append(move)

    def end_space_wait(self, attempt: str, at: float) -> None:
        since = self._space_since.pop(attempt, None)
        if since is not None and attempt in self.attempts:
            self.attempts[attempt].space_waits.append((since, at))

    def begin_space_wait(self, attempt: str, at: float) -> None:
        if attempt in self.attempts:
            self._space_since.setdefault(attempt, at)

    def hold(self, at: float, run: str, job: str, node: str) -> None:
        """It is admitted there."""
        self._holds[run, job] = node
        self.count_waiting(at, node, 1)

    def let_go(self, at: float, run: str, job: str) -> None:
        """It is not admitted any more: it begins, or goes back."""
        node = self._holds.pop((run, job), None)
        if node is not None:
            self.count_waiting(at, node, -1)

    def count_waiting(self, at: float, node: str, more: int) -> None:
        steps = self.waiting.setdefault(node, Steps())
        steps.set(at, steps.newest(0) + more)

    def begin_end(self, at: float, drains: bool) -> None:
        """Somebody wants it to end, for now or for good."""
        if self.finished_at is None:
            self._asked_at = at if self._asked_at is None else self._asked_at
            self._drains = drains

    def reopen(self, at: float) -> None:
        """Somebody resumed it, or cancels what had ended. A resume of one that is over for good, or is being stopped, changes nothing."""
        over_at, asked_at = self.finished_at, self._asked_at
        if self.outcome in FOR_GOOD or (over_at is None and not self._drains):
            return
        ends = [time for time in (asked_at, over_at) if time is not None]
        if ends:
            self.closed.append(Closed(ends[0], at if over_at is None else over_at, at))
        self._asked_at = self.finished_at = self.outcome = None
        self._drains = True
        for times in self.job_failed.values():
            times[-1] = (times[-1][0], min(at, times[-1][1]))

    def finish(self, at: float, outcome: cmd.RunOutcome) -> None:
        self.finished_at, self.outcome = at, outcome

    def closings(self) -> list[Closed]:
        """In the order of time, the last one included, which nobody ended."""
        last = [] if self._asked_at is None else [Closed(self._asked_at, inf, inf)]
        return [*self.closed, *last]


def policy_set(times: RunTimes, event: ev.PolicySet) -> None:
    times.limits.set(event.at, event.limits)
    times.admitted_waiting_max = event.policy.admitted_waiting_max


def run_submitted(times: RunTimes, event: ev.RunSubmitted) -> None:
    times.set_needs(event.run, event.workflow)
    if event.run == times.run:
        times.workflow, times.submitted_at = event.workflow, event.at
        times.admitted_waiting_max = min(times.admitted_waiting_max, event.plan.ahead_max or times.admitted_waiting_max)
        times.planned_on = {entry.job: entry.node for entry in event.plan.jobs}
        for steps in (times.limits, *times.waiting.values(), *times.away.values(), *times.hosts.by_host.values()):
            steps.forget_past()


def run_resumed(times: RunTimes, event: ev.RunResumed) -> None:
    if event.workflow is not None:
        times.set_needs(event.run, event.workflow)
    if event.run == times.run and times.workflow is not None:
        times.workflow = event.workflow or times.workflow
        times.reopen(event.at)


def run_scattered(times: RunTimes, event: ev.RunScattered) -> None:
    if event.workflow is None:
        return
    times.set_needs(event.run, event.workflow)
    if event.run == times.run and times.workflow is not None and event.plan is not None:
        before = times.workflow.jobs
        by_name = {each.name: each.maker for each in event.workflow.scatters}
        makers = {by_name[name] for name in (event.scatter, *event.also)}
        for name, job in event.workflow.jobs.items():
            if before.get(name) != job:
                maker = next((other for other in job.after if other in makers), by_name[event.scatter])
                times.scattered[name] = event.at, maker
        times.workflow = event.workflow
        times.planned_on |= {entry.job: entry.node for entry in event.plan.jobs}


def run_ends(times: RunTimes, event: ev.RunDrained | ev.RunStopped | ev.RunCancelled) -> None:
    if event.run != times.run:
        return
    if type(event) is ev.RunCancelled and times.finished_at is not None:
        times.reopen(event.at)
    times.begin_end(event.at, drains=type(event) is ev.RunDrained)


def run_paused(times: RunTimes, command: cmd.PauseRun) -> None:
    if command.run == times.run:
        times.begin_end(command.at, drains=True)


def job_called(times: RunTimes, event: ev.JobCalled) -> None:
    if event.run == times.run:
        times.called.setdefault(event.job, []).append(event.at)


def engine_run_ended(times: RunTimes, event: ev.EngineRunEnded) -> None:
    if event.run == times.run:
        times.engine_ended_at = event.at


def node_lost(times: RunTimes, event: ev.NodeLost) -> None:
    times.away.setdefault(event.node, Steps()).set(event.at, True)


def node_reported(times: RunTimes, event: ev.NodeReported) -> None:
    """A transfer that the node does not list is asked for again, at once."""
    if event.node in times.away:
        times.away[event.node].set(event.at, False)
    known = dict.fromkeys(event.transfers)
    gone = [move for move in times.moves.values() if move.node == event.node and move.ended_at is None and move.id not in known]
    for move in gone:
        move.not_before = event.at
        times.end_move(move, event.at, is_ok=False)


def host_heard(times: RunTimes, event: ev.HostReported | ev.HostLost | ev.HostDraining | ev.HostGone) -> None:
    times.hosts.heard(event)


def node_gone(times: RunTimes, event: ev.NodeGone) -> None:
    """What was under way there has ended, and goes on elsewhere at once. It holds nobody up any more."""
    if event.node in times.away:
        times.away[event.node].set(event.at, False)
    for move in [move for move in times.moves.values() if move.node == event.node and move.ended_at is None]:
        move.not_before = event.at
        times.end_move(move, event.at, is_ok=False)
    for attempt in [attempt for attempt in times.attempts.values() if attempt.node == event.node and attempt.ended_at is None]:
        attempt.ended_at = event.at


def transfer_ended(times: RunTimes, event: ev.TransferDone | ev.TransferFailed | ev.TransferCancelled) -> None:
    move = times.moves.get(event.transfer)
    if move is not None and move.ended_at is None:
        times.end_move(move, event.at, is_ok=type(event) is ev.TransferDone)


def attempt_waits(times: RunTimes, event: ev.AttemptWaits) -> None:
    times.begin_space_wait(event.attempt, event.at)


def attempt_ended(times: RunTimes, event: ev.AttemptEnded) -> None:
    times.end_space_wait(event.attempt, event.at)
    attempt = times.attempts.get(event.attempt)
    if attempt is None or attempt.ended_at is not None:
        return
    attempt.ended_at, attempt.made_at, attempt.wall_s = event.at, event.made_at, event.measures.wall_s
    attempt.is_ok = event.outcome is ev.Outcome.OK and not attempt.is_void
    if not times.counts(attempt.begun_at):
        del times.attempts[event.attempt]


def fetched(times: RunTimes, command: cmd.Fetch | cmd.AssembleStripes) -> None:
    times.moves[command.transfer] = Moved(
        command.transfer, Way.FETCH, command.run, command.file, command.lfn, command.origin, command.node, command.at
    )


def copied(times: RunTimes, command: cmd.CopyReplica) -> None:
    times.moves[command.transfer] = Moved(
        command.transfer,
        Way.COPY,
        command.run,
        command.file,
        command.lfn,
        command.source,
        command.node,
        command.at,
        command.source_generation,
    )


def uploaded(times: RunTimes, command: cmd.Upload) -> None:
    if command.purpose is cmd.Purpose.SPILL:
        return
    times.moves[command.transfer] = Moved(
        command.transfer,
        Way.UPLOAD,
        command.run,
        command.file,
        command.lfn,
        command.origin,
        command.node,
        command.at,
        command.generation,
    )


def retry_at(times: RunTimes, command: cmd.RetryTransferAt) -> None:
    failed = times.failed.get((command.file, command.upload))
    if failed:
        failed[-1].not_before = command.not_before


def job_admitted(times: RunTimes, command: cmd.AdmitJob) -> None:
    times.hold(command.at, command.run, command.job, command.node)
    if command.run == times.run:
        times.admitted.setdefault(command.job, []).append(command.at)


def attempt_begun(times: RunTimes, command: cmd.StartAttempt) -> None:
    times.let_go(command.at, command.run, command.job)
    cores, memory_bytes = times.needs_of(command.run, command.job)
    inputs = tuple([(entry.lfn, entry.generation) for entry in command.inputs]) if command.run == times.run else ()
    times.attempts[command.attempt] = Attempted(
        command.attempt,
        command.run,
        command.job,
        command.node,
        command.at,
        inputs,
        cores if command.host else min(cores, times.limits_at(command.at).cores),
        memory_bytes,
        host=command.host,
    )


def space_granted(times: RunTimes, command: cmd.GrantSpace) -> None:
    times.end_space_wait(command.attempt, command.at)


def attempt_killed(times: RunTimes, command: cmd.KillAttempt) -> None:
    if command.void and command.attempt in times.attempts:
        times.attempts[command.attempt].is_void = True


def job_requeued(times: RunTimes, command: cmd.RequeueJob) -> None:
    times.let_go(command.at, command.run, command.job)
    if command.run == times.run and command.not_before > command.at:
        times.backoffs.setdefault(command.job, []).append((command.at, command.not_before))


def job_failed(times: RunTimes, command: cmd.FailJob) -> None:
    times.let_go(command.at, command.run, command.job)
    if command.run == times.run:
        times.job_failed.setdefault(command.job, []).append((command.at, inf))


def call_ended(times: RunTimes, command: cmd.EndCall) -> None:
    times.let_go(command.at, command.run, command.job)


def transfer_given_up(times: RunTimes, command: cmd.GiveUpTransfer) -> None:
    if command.upload and command.run == times.run:
        times.given_up.setdefault(command.file, []).append(command.at)


def job_remade(times: RunTimes, command: cmd.RemakeFile) -> None:
    if command.run == times.run:
        times.remade.setdefault(command.job, []).append(command.at)


def job_taken_over(times: RunTimes, command: cmd.TakeOver) -> None:
    if command.run == times.run:
        times.taken[command.job] = (command.at, command.made_by)


def run_finished(times: RunTimes, command: cmd.FinishRun) -> None:
    if command.run == times.run:
        times.finish(command.at, command.outcome)


HEARD: dict[type, Callable[[RunTimes, Any], None]] = {
    ev.PolicySet: policy_set,
    ev.RunSubmitted: run_submitted,
    ev.RunResumed: run_resumed,
    ev.RunScattered: run_scattered,
    ev.RunDrained: run_ends,
    ev.RunStopped: run_ends,
    ev.RunCancelled: run_ends,
    ev.JobCalled: job_called,
    ev.EngineRunEnded: engine_run_ended,
    ev.NodeLost: node_lost,
    ev.NodeReported: node_reported,
    ev.HostReported: host_heard,
    ev.HostLost: host_heard,
    ev.HostDraining: host_heard,
    ev.HostGone: host_heard,
    ev.NodeGone: node_gone,
    ev.TransferDone: transfer_ended,
    ev.TransferFailed: transfer_ended,
    ev.TransferCancelled: transfer_ended,
    ev.AttemptWaits: attempt_waits,
    ev.AttemptEnded: attempt_ended,
}
GAVE: dict[type, Callable[[RunTimes, Any], None]] = {
    cmd.Fetch: fetched,
    cmd.AssembleStripes: fetched,
    cmd.CopyReplica: copied,
    cmd.Upload: uploaded,
    cmd.RetryTransferAt: retry_at,
    cmd.AdmitJob: job_admitted,
    cmd.StartAttempt: attempt_begun,
    cmd.GrantSpace: space_granted,
    cmd.KillAttempt: attempt_killed,
    cmd.RequeueJob: job_requeued,
    cmd.FailJob: job_failed,
    cmd.EndCall: call_ended,
    cmd.GiveUpTransfer: transfer_given_up,
    cmd.RemakeFile: job_remade,
    cmd.TakeOver: job_taken_over,
    cmd.PauseRun: run_paused,
    cmd.FinishRun: run_finished,
}
