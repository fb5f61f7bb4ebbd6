"""The accesses to files in a simulated run, as steps that other caches can be put through.

May know: the Machine's state, its events and commands. One rule: it is told what happened after it happened, and changes nothing.

A job's inputs are taken when it is admitted and given back when its attempt ends. A job that hands its admission back before it began has
read nothing, and counts as if it had never been admitted. The outputs of a job must stay as long as nobody else has them: finals until
they are at their destination, intermediates until nobody wants them, unless they can be spilled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stager.planning.rival_caches import Free, Give, Step, Take
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.accounting import inputs_of
from stager.scheduler.machine import Machine

Owner = tuple[str, str]


class Accesses:
    """`core_s`: seconds that cores were given to attempts, by how many each had."""

    def __init__(self) -> None:
        self._steps: list[Step | None] = []
        self.core_s = 0.0
        # By who took something: where that is among the steps, and whether an attempt has begun since.
        self._taken: dict[Owner, tuple[int, bool]] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._uploads: dict[str, str] = {}
        self._parts: dict[str, None] = {}

    def watch(self, machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
        for event in events:
            if type(event) is ev.AttemptEnded:
                self._ended(machine, event)
            elif type(event) is ev.TransferDone and event.transfer in self._uploads:
                self._steps.append(Free(self._uploads.pop(event.transfer)))
        for command in commands:
            kind = type(command)
            if kind is cmd.AdmitJob:
                self._admitted(machine, command)
            elif kind is cmd.StartAttempt:
                cores = machine.state.runs[command.run].workflow.jobs[command.job].cores
                self._begun[command.attempt] = (command.at, cores if command.host else min(cores, machine.state.limits.cores))
                owner = (command.run, command.job)
                if owner in self._taken:
                    self._taken[owner] = (self._taken[owner][0], True)
            elif kind is cmd.Upload and command.purpose is cmd.Purpose.FINAL:
                self._uploads[command.transfer] = command.file
            elif kind is cmd.Fetch and command.stripe is not None:
                self._parts[command.transfer] = None
            elif kind is cmd.DeleteReplica and command.generation not in self._parts:
                self._steps.append(Free(command.file))
            elif kind is cmd.RequeueJob or kind is cmd.FailJob:
                self._hand_back((command.run, command.job))

    def _admitted(self, machine: Machine, command: cmd.AdmitJob) -> None:
        state = machine.state
        files = tuple([(file.id, file.size_bytes) for file in inputs_of(state, state.runs[command.run], command.job)])
        self._taken[command.run, command.job] = (len(self._steps), False)
        self._steps.append(Take((command.run, command.job), files, command.reserve_bytes))

    def _ended(self, machine: Machine, event: ev.AttemptEnded) -> None:
        began_at, cores = self._begun.pop(event.attempt, (event.at, 0))
        self.core_s += cores * (event.at - began_at)
        run = machine.state.runs.get(event.run)
        if run is None or event.outcome is not ev.Outcome.OK:
            self._give((event.run, event.job))
            return
        can_spill = run.plan.spill_origin is not None
        made = [(output.file, output.size_bytes, run.workflow.files[output.lfn].is_final or not can_spill) for output in event.outputs]
        self._give((event.run, event.job), tuple(made))

    def _give(self, owner: Owner, made: tuple[tuple[str, int, bool], ...] = ()) -> None:
        """Once for each time it took: an end may be told twice."""
        if owner in self._taken:
            del self._taken[owner]
            self._steps.append(Give(owner, made))

    def _hand_back(self, owner: Owner) -> None:
        if owner in self._taken and not self._taken[owner][1]:
            self._steps[self._taken.pop(owner)[0]] = None
        self._give(owner)

    @property
    def steps(self) -> list[Step]:
        return [step for step in self._steps if step is not None]

    @property
    def trace(self) -> list[tuple[str, int]]:
        """Files in the order in which jobs made and took them."""
        trace: list[Any] = []
        for step in self.steps:
            if isinstance(step, Take):
                trace += step.files
            elif isinstance(step, Give):
                trace += [(file, size_bytes) for file, size_bytes, _ in step.made]
        return trace
