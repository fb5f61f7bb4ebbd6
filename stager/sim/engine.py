"""A foreign engine in the virtual world: it runs the jobs of one run in an order of its own, with slots, retries and cleared tasks, and
loses some of what it was about to say.

May know: the world that it calls, and what was journaled. One rule: it calls, waits to be told, and ends its run; it never looks into the
Machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from stager.model.workflow import Graph
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.attempts import Trying

if TYPE_CHECKING:
    from stager.sim.world import SimWorld

LOST_AFTER_S, RETRY_AFTER_S, ASK_AGAIN_S, CHECK_AFTER_S = 3.0, 0.5, 0.7, 40.0
RETRY_AFTER_S_MAX, MENDED_AFTER_S = 60.0, 30.0
MENDED, MENDS_MAX = ("denied", "no_space_node"), 8
UNPUBLISHED = ("not_published", "output_lost")


@dataclass(frozen=True, slots=True)
class Habits:
    """Shares are chances per try, as long as things go wrong at all (`until_s`). `early_share`: that a task is called before what it reads
    was published. `clears`: how often a task that is done is cleared, with all below it. `silent`: after so many calls it never says
    anything again. `tries`: of a task, refusals included.
    """

    seed: int = 0
    slots: int = 1
    retries: int = 1_000_000
    until_s: float = 0.0
    fail_share: float = 0.0
    lost_share: float = 0.0
    early_share: float = 0.0
    pins_share: float = 0.0
    clears: int = 0
    silent: int | None = None


@dataclass(slots=True)
class Task:
    """`state`: waiting, called, done, given up. `trying`: what was staged for it."""

    job: str
    state: str = "waiting"
    retries: int = 0
    call: str = ""
    not_before: float = 0.0
    trying: Trying | None = None


class SimEngine:
    """`closed`: the run takes no calls now. `over`: the engine has ended it. `calls`: how many it made."""

    def __init__(self, world: SimWorld, run: str, graph: Graph, habits: Habits) -> None:
        self.world, self.run, self.graph, self.habits = world, run, graph, habits
        self.random = Random(f"engine/{habits.seed}/{run}")
        self.tasks = {job: Task(job) for job in graph.order}
        self.calls = self.clears = self.mends = 0
        self.begun = self.closed = self.over = self.mending = False
        self.refused: dict[str, int] = {}

    # What it is told

    def heard(self, events: Sequence[Any], commands: Sequence[Any]) -> None:
        """The engine is answered by the journal when it asks, also by a scheduler that died meanwhile."""
        ended = {command.call for command in commands if type(command) is cmd.EndCall and command.run == self.run}
        for event in events:
            if getattr(event, "run", "") != self.run:
                continue
            if type(event) is ev.RunSubmitted or type(event) is ev.RunResumed:
                self._opened()
            elif type(event) in (ev.RunDrained, ev.RunStopped, ev.RunCancelled):
                self.closed = True
                self._send_back_unstaged()
            elif type(event) is ev.AttemptEnded and event.outcome is ev.Outcome.OK:
                self._published(self.tasks[event.job], event.attempt, ended)
        for command in commands:
            if type(command) is cmd.EndCall and command.run == self.run:
                self._refused(self.tasks[command.job], command)
            elif type(command) is cmd.GiveUpTransfer and command.run == self.run and command.fault.code == "output_lost":
                self._clear_lost(self.tasks[self.graph.producer[command.fault.subject]])
            elif type(command) is cmd.FinishRun and command.run == self.run:
                self.closed = True
                self._send_back_unstaged()

    def _clear_lost(self, task: Task) -> None:
        """A final that is gone: somebody sees it in the ledger, and clears its task."""
        if task.state == "done":
            self._wait(task)
            self.over = False
            self._soon()

    def staged(self, trying: Trying) -> None:
        task = self.tasks[trying.command.job]
        if task.state != "called" or self._is_silent():
            return
        task.trying = trying
        self.world.clock.after(trying.duration_s, self._computed, task, trying)

    # What it does

    def _opened(self) -> None:
        """Submitted, or resumed: tasks that were given up are cleared."""
        self.begun, self.closed, self.mending = True, False, False
        if self.over and any(task.state == "given up" for task in self.tasks.values()):
            self.over = False
        for task in self.tasks.values():
            if task.state == "given up":
                task.state, task.retries = "waiting", 0
        self._soon()

    def _send_back_unstaged(self) -> None:
        for task in self.tasks.values():
            if task.state == "called" and task.trying is None:
                self._wait(task)

    def _is_silent(self) -> bool:
        return self.habits.silent is not None and self.calls >= self.habits.silent

    def _strikes(self, share: float) -> bool:
        return self.random.random() < share and self.world.clock.now < self.habits.until_s

    def _soon(self, delay_s: float = 0.01) -> None:
        self.world.clock.after(delay_s, self._go_on)

    def _go_on(self) -> None:
        """Fills its slots; ends the run when nothing is left to do."""
        if not self.begun or self.closed or self.over or self._is_silent():
            return
        while sum(task.state == "called" for task in self.tasks.values()) < self.habits.slots:
            ready = [task for task in self.tasks.values() if self._may_call(task)]
            if not ready:
                break
            self._call(self.random.choice(ready))
            if self._is_silent():
                return
        if all(task.state not in ("called", "waiting") for task in self.tasks.values() if task.job not in self._blocked()):
            self._end()

    def _blocked(self) -> set[str]:
        """Those below what was given up."""
        found = [task.job for task in self.tasks.values() if task.state == "given up"]
        for job in found:
            found += [child for child in self.graph.children[job] if child not in found]
        return {job for job in found if self.tasks[job].state == "waiting"}

    def _may_call(self, task: Task) -> bool:
        if task.state != "waiting" or task.not_before > self.world.clock.now:
            return False
        return all(self.tasks[parent].state == "done" for parent in self.graph.parents[task.job]) or self._strikes(self.habits.early_share)

    def _call(self, task: Task) -> None:
        self.calls += 1
        task.retries += 1
        task.state, task.call, task.trying = "called", f"{task.job}#{self.calls}", None
        stage = ev.Stage.PINS if self.random.random() < self.habits.pins_share else ev.Stage.PATHS
        event = ev.JobCalled(at=self.world.clock.now, run=self.run, job=task.job, call=task.call, stage=stage)
        for _ in range(self.random.choice((1, 1, 1, 2))):
            self.world.say(None, event)
        if self._strikes(self.habits.lost_share):
            self.world.clock.after(LOST_AFTER_S * self.random.random(), self._lost, task, task.call)

    def _lost(self, task: Task, call: str) -> None:
        """The process that ran the task is gone; the engine runs it again, and finds out later that it never ended the lost try."""
        if task.state == "called" and task.call == call:
            self._wait(task)
            self._soon()
            self.world.clock.after(CHECK_AFTER_S, self._fail, task, call)

    def _fail(self, task: Task, call: str) -> None:
        self.world.say(None, ev.CallFailed(at=self.world.clock.now, run=self.run, job=task.job, call=call, message="the task failed"))

    def _wait(self, task: Task, delay_s: float = 0.0) -> None:
        task.state, task.trying, task.not_before = "waiting", None, self.world.clock.now + delay_s
        if delay_s:
            self._soon(delay_s)

    def _computed(self, task: Task, trying: Trying, fails: bool | None = None) -> None:
        """Says so until somebody answers."""
        if task.trying is not trying or trying.state != "staged" or self._is_silent():
            return
        fails = self._strikes(self.habits.fail_share) if fails is None else fails
        if self.world.crashed:
            self.world.clock.after(ASK_AGAIN_S, self._computed, task, trying, fails)
        elif fails:
            self._fail(task, task.call)
        else:
            self.world.executor.finish(trying)

    def _published(self, task: Task, attempt: str, ended: set[str]) -> None:
        if task.state == "called" and task.trying is not None and task.trying.command.attempt == attempt and task.call not in ended:
            task.state, task.retries, task.trying = "done", 0, None
            self._soon()

    def _refused(self, task: Task, command: cmd.EndCall) -> None:
        """Clears the tasks that it is told to clear. A task that has used up its tries is given up."""
        self.refused[command.fault.code] = self.refused.get(command.fault.code, 0) + 1
        if task.state != "called" or task.call != command.call:
            return
        if command.fault.code in UNPUBLISHED:
            maker = self.tasks[self.graph.producer[command.fault.subject]]
            if maker.state in ("done", "given up"):
                self._wait(maker)
        if task.retries >= self.habits.retries:
            task.state, task.trying = "given up", None
        else:
            self._wait(task, min(RETRY_AFTER_S * 2 ** min(task.retries, 10), RETRY_AFTER_S_MAX))
        if command.fault.code in MENDED and self.world.resumes_max and not self.mending and self.mends < MENDS_MAX:
            # Somebody looks at what was refused, and mends it.
            self.mending = True
            self.mends += 1
            self.world.tell_at(self.world.clock.now + MENDED_AFTER_S, lambda now: ev.RunResumed(at=now, run=self.run))
        self._soon()

    def _end(self) -> None:
        """Unless somebody clears a task that is done, with all below it."""
        done = [task for task in self.tasks.values() if task.state == "done"]
        if done and self.clears < self.habits.clears:
            self.clears += 1
            cleared = [self.random.choice(done)]
            for task in cleared:
                self._wait(task)
                cleared += [self.tasks[child] for child in self.graph.children[task.job] if self.tasks[child] not in cleared]
            self._soon()
            return
        self.over = True
        outcome = ev.EngineOutcome.FAILED if any(task.state == "given up" for task in self.tasks.values()) else ev.EngineOutcome.SUCCEEDED
        self.world.say(None, ev.EngineRunEnded(at=self.world.clock.now, run=self.run, outcome=outcome))
