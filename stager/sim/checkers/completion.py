"""Every run ends, every transfer ends, and what is at the destinations is what should be. One rule: these are promises about the end,
checked there.

A run that succeeded has each final at its destination with the right content. Any other outcome must name its reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stager.model.errors import NEWER_CODE
from stager.model.ids import produced_file_id
from stager.scheduler import commands as cmd
from stager.scheduler.commands import RunOutcome
from stager.sim.checkers.quiet import QuietChecker
from stager.sim.origin import expected_contents
from stager.sim.world import Submitted, Violation

if TYPE_CHECKING:
    from stager.sim.world import SimWorld


class EndingChecker(QuietChecker):
    """`superseded`: finals that were given up for what is newer at their destinations."""

    def __init__(self) -> None:
        self.superseded: set[str] = set()

    def about_to(self, world: SimWorld, command: Any) -> None:
        if isinstance(command, cmd.GiveUpTransfer) and command.fault.code == NEWER_CODE:
            self.superseded.add(command.file)

    def at_end(self, world: SimWorld) -> None:
        for run in world.runs.values():
            self._check_run(world, run)
        transfers = world.transfers
        if transfers.open or transfers.begun != transfers.ended:
            raise Violation(f"{transfers.begun} transfers began, {transfers.ended} ended; open: {sorted(transfers.open)}")
        if world.executor.open:
            raise Violation(f"attempts never ended: {sorted(world.executor.open)}")
        for node in world.nodes.values():
            left = [generation for (_, generation), replica in node.replicas.items() if replica.is_part]
            if left and node.answers:
                raise Violation(f"node {node.id} still holds parts that nobody assembles: {left}")
            if node.reservations:
                raise Violation(f"node {node.id} still reserves {node.reservations}")

    def _check_run(self, world: SimWorld, run: Submitted) -> None:
        if run.outcome is None:
            raise Violation(f"run {run.run} is stuck at {world.clock.now:.3f}: nothing is left to happen and it is not over")
        if run.outcome in (RunOutcome.FAILED, RunOutcome.REFUSED, RunOutcome.NOT_DURABLE) and (run.fault is None or not run.fault.message):
            raise Violation(f"run {run.run} ended as {run.outcome} and nobody says why")
        if run.outcome is not RunOutcome.SUCCEEDED or run.workflow.engine:
            # Of an engine's run what was made last counts, which is another checker's.
            return
        expected = expected_contents(run.workflow, run.graph)
        versions: dict[str, str] = {}
        for lfn, file in run.workflow.files.items():
            if file.destination is None or lfn not in run.graph.producer:
                continue
            stored = world.origin_of(run.run, file.destination.location.origin).files.get(file.destination.location.path)
            if stored is None:
                raise Violation(f"run {run.run} succeeded, and its final {lfn} is not at its destination")
            if str(produced_file_id(run.run, lfn)) in self.superseded and stored.content not in expected.values():
                continue
            if world.contents_vary:
                self._trace(world, run, stored.content, versions)
            elif stored.content != expected[lfn]:
                raise Violation(f"run {run.run} succeeded, and its final {lfn} is not what it should be")

    def _trace(self, world: SimWorld, run: Submitted, content: str, versions: dict[str, str]) -> None:
        """Where jobs never make the same twice, all finals must come from the same making of each file."""
        found = [content]
        for made in found:
            if made not in world.executor.lineage:
                continue
            lfn, inputs = world.executor.lineage[made]
            if versions.setdefault(lfn, made) != made:
                raise Violation(f"run {run.run} succeeded, and two different makings of {lfn} went into its finals")
            found.extend(entry for entry in inputs if entry not in found)
