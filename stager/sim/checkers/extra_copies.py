"""An extra copy goes only where the plan wants one, to a node that has room for it now, and takes no line from what a job waits for. One
rule: judged by the plan and by the nodes' truth at the moment of the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.checkers.quiet import QuietChecker
from stager.sim.world import Violation

if TYPE_CHECKING:
    from stager.sim.world import SimWorld


class ExtraCopyChecker(QuietChecker):
    def __init__(self) -> None:
        self.planned: dict[str, dict[str, int]] = {}
        self.deleted: set[tuple[str, str, str]] = set()

    def heard(self, world: SimWorld, events: Sequence[Any]) -> None:
        for event in events:
            if isinstance(event, ev.RunScattered):
                self.planned.pop(event.run, None)

    def about_to(self, world: SimWorld, command: Any) -> None:
        if isinstance(command, cmd.DeleteReplica):
            self.deleted.add((command.node, command.file, command.generation))
        if not isinstance(command, cmd.CopyReplica) or command.purpose is not cmd.Purpose.EXTRA_COPY:
            return
        if command.run not in self.planned:
            self.planned[command.run] = {file.lfn: file.safe_copies for file in world.runs[command.run].plan.files}
        if max(world.policy.copies, self.planned[command.run].get(command.lfn, 1)) < 2:
            raise Violation(f"{command.lfn} of {command.run} gets an extra copy, and its plan wants none")
        node = world.nodes[command.node]
        there = [generation for file, generation in node.replicas if file == command.file and node.sound(file, generation)]
        if node.answers and any((node.id, command.file, generation) not in self.deleted for generation in there):
            raise Violation(f"{command.lfn} of {command.run} gets an extra copy on {node.id}, which has it")
        free = node.capacity_bytes - node.used_bytes - node.reserved_bytes
        if node.answers and command.size_bytes > free:
            raise Violation(f"an extra copy of {command.lfn} takes {command.size_bytes} bytes on {node.id}, where {free} are free")
        for moving in world.transfers.open.values():
            if not moving.node.heard:
                # It was said to be gone, and what it does is not known.
                continue
            if moving.source is not None and moving.source.id == command.source and moving.command.transfer != command.transfer:
                raise Violation(f"an extra copy of {command.lfn} goes from {command.source}, which sends {moving.command.transfer}")
