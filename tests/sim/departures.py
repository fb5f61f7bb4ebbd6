"""What must hold when a node leaves, as far as only the Machine can say what it had promised.

One rule: asked of its state before and after a batch, never in between.
"""

from __future__ import annotations

from typing import Any

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.leaving import unsafe_on
from stager.scheduler.ledger import Standing, ledger_of
from stager.scheduler.machine import Machine
from stager.scheduler.state import FileEntry, State
from stager.sim.departures import DRAINED
from stager.sim.world import SimWorld, Violation

# Of a node that dies, at the same time.
SAID_BEFORE = (ev.NodeLost, ev.TransferFailed)


class DepartureWatch:
    """Answers the world whether a node may leave; and no byte that was safe on two nodes is lost, or made again, when one goes, nor any at
    all when one goes that had drained.
    """

    def __init__(self, world: SimWorld) -> None:
        self.machine: Machine | None = None
        self.safe: set[str] = set()
        self.checked = 0
        world.troubles.departures.may_leave = self.may_leave

    def may_leave(self, node: str) -> bool:
        return self.machine is not None and not unsafe_on(self.machine.state, node)

    def __call__(self, machine: Machine, events: list[Any], commands: list[Any]) -> None:
        self.machine, state = machine, machine.state
        at = next((number for number, event in enumerate(events) if not isinstance(event, SAID_BEFORE)), len(events))
        first = events[at] if at < len(events) else None
        if isinstance(first, ev.NodeGone):
            self.checked += 1
            cause = f"e{state.events_seen - len(events) + at + 1}"
            lost = [command for command in commands if command.cause == cause and isinstance(command, cmd.RemakeFile | cmd.FailJob)]
            remade = [command.file for command in lost if isinstance(command, cmd.RemakeFile)]
            if first.why == DRAINED and lost:
                raise Violation(f"{first.node} had drained, and with it was lost: {lost}")
            if state.policy.copies > 1 and (again := self.safe.intersection(remade)):
                raise Violation(f"{first.node} is gone, and what was safe is made again: {again}")
            if len(events) == at + 1 and state.policy.copies > 1:
                self.check_there(state)
        self.safe = safe_files(state) if state.policy.copies > 1 else set()

    def check_there(self, state: State) -> None:
        for file in [state.files[file_id] for file_id in self.safe]:
            if not (is_somewhere(file) or state.runs[file.run].jobs[file.producer].state != "done"):
                raise Violation(f"{file.lfn} of {file.run} was safe, and is nowhere")


def is_somewhere(file: FileEntry) -> bool:
    return bool(file.copies) or file.durable is not None or file.spilled is not None


def safe_files(state: State) -> set[str]:
    return {state.runs[run].file_ids[row.lfn] for run in state.active for row in ledger_of(state, run) if row.standing is Standing.SAFE}
