"""A command's id names its effect: one id, one effect. Transfers and attempts have ids of their own. One rule: the same id with other
content is a bug, whoever replays it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stager.scheduler import commands as cmd
from stager.sim.checkers.quiet import QuietChecker
from stager.sim.world import Violation

if TYPE_CHECKING:
    from stager.sim.world import SimWorld


class CommandChecker(QuietChecker):
    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.transfers: dict[str, Any] = {}

    def about_to(self, world: SimWorld, command: Any) -> None:
        known = self.seen.setdefault(command.id, command)
        if known is not command and known != command:
            raise Violation(f"command id {command.id} stands for {known} and for {command}")
        if isinstance(command, cmd.Fetch | cmd.AssembleStripes | cmd.CopyReplica | cmd.Upload):
            first = self.transfers.setdefault(command.transfer, command)
            if first is not command and first != command:
                raise Violation(f"transfer id {command.transfer} stands for {first} and for {command}")
