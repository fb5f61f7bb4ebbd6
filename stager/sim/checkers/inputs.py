"""No job starts without each of its inputs there, sound, and with the content it must have. One rule: what the scheduler cannot know yet is
not held against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stager.planning.plan import Access
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.checkers.quiet import QuietChecker
from stager.sim.origin import expected_contents
from stager.sim.world import Violation

if TYPE_CHECKING:
    from stager.sim.world import SimWorld


class InputChecker(QuietChecker):
    def __init__(self) -> None:
        self.said_sound: set[tuple[str, str]] = set()
        self.expected: dict[str, dict[str, str]] = {}
        self.started: set[tuple[str, str, str]] = set()
        self.done: set[tuple[str, str]] = set()

    def heard(self, world: SimWorld, events: Sequence[Any]) -> None:
        """The replicas that the scheduler has been told are there."""
        for event in events:
            if isinstance(event, ev.RunResumed | ev.RunScattered) and event.workflow is not None:
                self.expected.pop(event.run, None)
            elif isinstance(event, ev.TransferDone):
                self.said_sound.add((event.transfer, ""))
            elif isinstance(event, ev.AttemptEnded):
                self.said_sound.update((made.generation, made.file) for made in event.outputs)
            elif isinstance(event, ev.NodeReported):
                self.said_sound.update((seen.generation, seen.file) for seen in event.replicas if not seen.quarantined)

    def about_to(self, world: SimWorld, command: Any) -> None:
        if not isinstance(command, cmd.StartAttempt):
            return
        node, run = world.nodes[command.node], world.runs[command.run]
        job = run.workflow.jobs[command.job]
        if sorted(entry.path for entry in command.inputs) != sorted(entry.path for entry in job.inputs):
            raise Violation(f"job {job.id} of {run.run} starts without all of its inputs: {command.inputs}")
        if command.run not in self.expected:
            self.expected[command.run] = expected_contents(run.workflow, run.graph)
        for entry in command.inputs:
            if entry.access is Access.DIRECT:
                self._check_direct(world, command, entry)
                continue
            said = (entry.generation, "") in self.said_sound or (entry.generation, entry.file) in self.said_sound
            if not said:
                raise Violation(f"job {job.id} of {run.run} starts, and nobody said that {entry.lfn} is there as {entry.generation}")
            replica = node.sound(entry.file, entry.generation) if node.answers else None
            if run.workflow.engine:
                # What its producer made last counts, which is another checker's.
                continue
            wrong = replica is not None and replica.content != self.expected[command.run][entry.lfn]
            if wrong and not world.contents_vary:
                raise Violation(f"job {job.id} of {run.run} would read another {entry.lfn} than the one made for it")
        key = (command.run, command.job, command.attempt)
        if key in self.started and not world.epoch > 1:
            raise Violation(f"attempt {command.attempt} is started twice")
        self.started.add(key)

    def _check_direct(self, world: SimWorld, command: cmd.StartAttempt, entry: cmd.StagedInput) -> None:
        """Only what was planned so, where the run says, and with the token by which the node can tell."""
        run = world.runs[command.run]
        planned = next(file.access for file in run.plan.files if file.lfn == entry.lfn)
        source = run.workflow.files[entry.lfn].sources[0]
        where = (source.location.origin, source.location.path, source.token or "")
        if planned is not Access.DIRECT or (entry.origin, entry.origin_path, entry.token) != where:
            raise Violation(f"job {command.job} of {command.run} reads {entry.lfn} directly at {entry.origin}:{entry.origin_path}")
