"""Jobs that wait for those of other runs, or are taken over, watched from outside: nobody waits for a later run or for ever, who waits
holds nothing and does not run, and what is taken over is what the job would have made.

One rule: the accounts here are kept from words and commands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.checkers.quiet import QuietChecker
from stager.sim.origin import expected_contents
from stager.sim.world import Violation

if TYPE_CHECKING:
    from stager.sim.world import SimWorld

Job = tuple[str, str]


class JoinChecker(QuietChecker):
    def __init__(self) -> None:
        self.entered: dict[str, int] = {}
        self.waiting: dict[Job, Job] = {}
        self.made: dict[Job, None] = {}
        self.contents: dict[str, None] = {}
        self.over: dict[str, None] = {}
        self.expected: dict[str, dict[str, str]] = {}

    def heard(self, world: SimWorld, events: Sequence[Any]) -> None:
        for event in events:
            if isinstance(event, ev.RunScattered):
                self.expected.pop(event.run, None)
            if isinstance(event, ev.RunSubmitted | ev.RunResumed):
                # One that comes back stands behind the others.
                if event.run not in self.entered or event.run in self.over:
                    self.entered.pop(event.run, None)
                    self.entered[event.run] = 1 + max(self.entered.values(), default=0)
                self.over.pop(event.run, None)
                self.expected.pop(event.run, None)
                if isinstance(event, ev.RunSubmitted):
                    self.contents |= {output.blake3: None for each in event.reused for output in each.outputs}
            elif isinstance(event, ev.AttemptEnded) and event.outcome is ev.Outcome.OK:
                self.made[event.run, event.job] = None
                self.contents |= {output.blake3: None for output in event.outputs}

    def about_to(self, world: SimWorld, command: Any) -> None:
        now = f"at {world.clock.now:.3f}"
        if isinstance(command, cmd.AwaitJob):
            job, other = (command.run, command.job), (command.other_run, command.other_job)
            if self.entered[other[0]] >= self.entered[job[0]]:
                raise Violation(f"{now}: {job} waits for {other}, whose run came later")
            if other[0] in self.over or job in self.waiting or world.runs[command.run].workflow.jobs[command.job].reuse is False:
                raise Violation(f"{now}: {job} waits for {other}, and must not")
            self.waiting[job] = other
        elif isinstance(command, cmd.StopAwaiting):
            self._stop(world, (command.run, command.job))
        elif isinstance(command, cmd.TakeOver):
            self.waiting.pop((command.run, command.job), None)
            self.made[command.run, command.job] = None
            self._check_taken(world, command)
        elif isinstance(command, cmd.AdmitJob | cmd.StartAttempt) and (command.run, command.job) in self.waiting:
            raise Violation(f"{now}: {command.job} of {command.run} waits for {self.waiting[command.run, command.job]}, and is taken up")
        elif isinstance(command, cmd.FinishRun):
            self.over[command.run] = None
            for job in [job for job in self.waiting if job[0] == command.run]:
                del self.waiting[job]
        elif isinstance(command, cmd.RemakeFile):
            # Who waits below it rests on another making now.
            self._stop_below(world, command.run, command.job)

    def _stop(self, world: SimWorld, job: Job) -> None:
        self.waiting.pop(job, None)
        self._stop_below(world, *job)

    def _stop_below(self, world: SimWorld, run: str, job: str) -> None:
        below = list(world.runs[run].graph.children[job])
        for each in below:
            self.waiting.pop((run, each), None)
            below += [child for child in world.runs[run].graph.children[each] if child not in below]

    def _check_taken(self, world: SimWorld, command: cmd.TakeOver) -> None:
        run = world.runs[command.run]
        if command.run not in self.expected:
            self.expected[command.run] = expected_contents(run.workflow, run.graph)
        for output in command.outputs:
            if world.contents_vary and output.blake3 not in self.contents:
                raise Violation(f"at {world.clock.now:.3f}: {output.lfn} of {command.run} is taken over, and nobody made it")
            if not world.contents_vary and output.blake3 != self.expected[command.run][output.lfn]:
                raise Violation(f"at {world.clock.now:.3f}: {output.lfn} of {command.run} is taken over, and is another one")

    def at_end(self, world: SimWorld) -> None:
        if self.waiting:
            raise Violation(f"at the end these still wait: {self.waiting}")
