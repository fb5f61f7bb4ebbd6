"""No transfer goes where its run did not say: names of origins are those of the run it is for. One rule: a run is judged by its own
workflow, never by another's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stager.model.ids import external_file_id, produced_file_id
from stager.scheduler import commands as cmd
from stager.sim.checkers.quiet import QuietChecker
from stager.sim.world import Submitted, Violation

if TYPE_CHECKING:
    from stager.sim.world import SimWorld


class PlaceChecker(QuietChecker):
    def about_to(self, world: SimWorld, command: Any) -> None:
        if not isinstance(command, cmd.Fetch | cmd.AssembleStripes | cmd.Upload | cmd.EraseSpill):
            return
        run = world.runs.get(command.run)
        if run is None or command.origin not in run.workflow.origins:
            raise Violation(f"{type(command).__name__} {command.path} names {command.origin!r}, which is no origin of run {command.run!r}")
        if world.nodes[command.node].apart and run.workflow.origins[command.origin].beside_workflow:
            raise Violation(f"{type(command).__name__} has {command.node} ask {command.origin!r}, which it does not reach")
        spilled = command.path == f".stager-spill/{command.run}/{command.file}" and command.origin == run.plan.spill_origin
        if not spilled and (command.origin, command.path) not in said_places(run, command):
            where = f"{command.origin}:{command.path}"
            raise Violation(f"{type(command).__name__} of run {command.run} goes to {where}, where it has no such file")


def said_places(run: Submitted, command: cmd.Fetch | cmd.AssembleStripes | cmd.Upload | cmd.EraseSpill) -> list[tuple[str, str]]:
    """Where the run's workflow says that this file is, or is to go."""
    file = run.workflow.files.get(command.lfn) if not isinstance(command, cmd.EraseSpill) else None
    if file is None:
        return []
    if file.is_external:
        first = file.sources[0]
        origin = run.workflow.origins[first.location.origin]
        file_id = external_file_id(origin.url, first.location.path, first.token or "", origin.endpoint)
    else:
        file_id = produced_file_id(run.run, file.lfn)
    places = [source.location for source in file.sources] if isinstance(command, cmd.Fetch | cmd.AssembleStripes) else []
    places += [file.destination.location] if file.destination is not None else []
    return [(place.origin, place.path) for place in places] if file_id == command.file else []
