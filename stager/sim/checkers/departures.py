"""A node that is gone is asked for nothing, one that drains is given nothing more, and of one that comes back after it was gone no product
is used. One rule: a command is judged by what had been told when it was decided.
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

GIVES = (cmd.AdmitJob, cmd.StartAttempt, cmd.RehomeJob, cmd.Fetch, cmd.CopyReplica, cmd.AssembleStripes)


class DepartureChecker(QuietChecker):
    """`gone` and `draining`: by node, the number of the event that said so. `strange`: products of nodes that came back."""

    def __init__(self) -> None:
        self.gone: dict[str, int] = {}
        self.draining: dict[str, int] = {}
        self.strange: set[tuple[str, str, str]] = set()

    def heard(self, world: SimWorld, events: Sequence[Any]) -> None:
        for number, event in enumerate(events, world.event_count - len(events) + 1):
            if isinstance(event, ev.NodeGone):
                self.gone.setdefault(event.node, number)
                self.draining.pop(event.node, None)
            elif isinstance(event, ev.NodeDraining) and event.draining and event.node not in self.gone:
                self.draining.setdefault(event.node, number)
            elif isinstance(event, ev.NodeDraining):
                self.draining.pop(event.node, None)
            elif isinstance(event, ev.NodeReported) and self.gone.pop(event.node, None) is not None:
                self.strange |= {(event.node, seen.file, seen.generation) for seen in event.replicas if not seen.file.startswith("x")}

    def about_to(self, world: SimWorld, command: Any) -> None:
        decided_at, node = int(command.cause[1:]), getattr(command, "node", "")
        for where in (node, getattr(command, "source", "")):
            if decided_at >= self.gone.get(where, decided_at + 1) and not isinstance(command, cmd.KillAttempt):
                raise Violation(f"at {world.clock.now:.3f}: {where} is gone, and is asked for {command}")
        if isinstance(command, GIVES) and decided_at >= self.draining.get(node, decided_at + 1):
            raise Violation(f"at {world.clock.now:.3f}: {node} drains, and is given {command}")
        used = [(node, entry.file, entry.generation) for entry in command.inputs] if isinstance(command, cmd.StartAttempt) else []
        if isinstance(command, cmd.CopyReplica):
            used = [(command.source, command.file, command.source_generation)]
        elif isinstance(command, cmd.Upload):
            used = [(node, command.reads or command.file, command.generation)]
        if not self.strange.isdisjoint(used):
            raise Violation(f"at {world.clock.now:.3f}: {command} uses what a node made before it was gone")
