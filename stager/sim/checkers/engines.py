"""Runs of an engine: a job is staged with what its producers made last and nothing else, what was made stays until the engine has ended its
run, externals cross the wide area once, and the finals are those of the last making.

One rule: what counts is what the engine was told has been taken; accounts are kept from words and commands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stager.model.errors import NEWER_CODE
from stager.model.ids import external_file_id, produced_file_id
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.commands import RunOutcome
from stager.sim.checkers.quiet import QuietChecker
from stager.sim.faults import NO_FAULTS
from stager.sim.origin import external_content
from stager.sim.world import Submitted, Violation

if TYPE_CHECKING:
    from stager.sim.world import SimWorld


class EngineChecker(QuietChecker):
    """`made`: by file, what counts of it; `fresh`: by job, what was made anew in this batch. `over`: runs whose intermediates may go."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}
        self.fresh: dict[tuple[str, str], dict[str, str]] = {}
        self.owner: dict[str, tuple[str, str]] = {}
        self.externals: dict[str, dict[str, str]] = {}
        self.void: set[str] = set()
        self.over: set[str] = set()
        self.lost: set[tuple[str, str]] = set()
        self.gone: set[str] = set()
        self.uploads: dict[str, tuple[str, str]] = {}
        self.elsewhere: dict[str, str] = {}
        self.reading: dict[str, cmd.StartAttempt] = {}
        self.fetches: dict[str, str] = {}
        self.crossed: dict[str, int] = {}
        self.evicted: dict[str, int] = {}
        self.superseded: set[str] = set()

    def heard(self, world: SimWorld, events: Sequence[Any]) -> None:
        if not world.engines:
            return
        self.fresh = {}
        for event in events:
            if isinstance(event, ev.RunSubmitted) and event.workflow.engine:
                self._enter(world.runs[event.run])
            elif isinstance(event, ev.AttemptEnded):
                told_again = self.reading.pop(event.attempt, None) is None
                if event.attempt in self.void:
                    # It may be the same as what was lost before, and is not taken all the same.
                    self.lost |= {(made.file, made.generation) for made in event.outputs}
                if event.outcome is ev.Outcome.OK and event.attempt not in self.void and not told_again:
                    self.fresh[event.run, event.job] = {made.file: made.blake3 for made in event.outputs}
                    self.superseded -= {made.file for made in event.outputs}
            elif isinstance(event, ev.EngineRunEnded | ev.RunCancelled):
                self.over.add(event.run)
            elif isinstance(event, ev.ReplicaCorrupt):
                self.lost.add((event.file, event.generation))
            elif isinstance(event, ev.NodeGone):
                self.gone.add(event.node)
            elif isinstance(event, ev.NodeReported):
                strange = event.node in self.gone
                self.gone.discard(event.node)
                self.lost |= {(seen.file, seen.generation) for seen in event.replicas if seen.quarantined or strange}
            elif isinstance(event, ev.TransferDone):
                self._moved(world, event)

    def _enter(self, run: Submitted) -> None:
        known = self.externals[run.run] = {}
        for lfn, file in run.workflow.files.items():
            if file.is_external:
                first = file.sources[0]
                origin, token = run.workflow.origins[first.location.origin], first.token or ""
                file_id = external_file_id(origin.url, first.location.path, token, origin.endpoint)
                known[str(file_id)] = external_content(origin.url, first.location.path, token)
            else:
                self.owner[str(produced_file_id(run.run, lfn))] = (run.run, lfn)

    def _moved(self, world: SimWorld, event: ev.TransferDone) -> None:
        if event.transfer in self.uploads:
            file, content = self.uploads.pop(event.transfer)
            self.elsewhere[file] = content
        file = self.fetches.pop(event.transfer, "")
        if file and world.faults is NO_FAULTS:
            self.crossed[file] = self.crossed.get(file, 0) + 1
            if self.crossed[file] > 1 + self.evicted.get(file, 0):
                raise Violation(
                    f"{file} crossed the wide area {self.crossed[file]} times and was evicted {self.evicted.get(file, 0)} times"
                )

    def about_to(self, world: SimWorld, command: Any) -> None:
        if not world.engines:
            return
        if isinstance(command, cmd.StartAttempt) and world.runs[command.run].workflow.engine:
            self._check_staged(world, command)
        elif isinstance(command, cmd.KillAttempt) and command.void:
            self.void.add(command.attempt)
        elif isinstance(command, cmd.EndCall | cmd.RequeueJob):
            # It was not believed.
            self.fresh.pop((command.run, command.job), None)
        elif isinstance(command, cmd.Fetch) and command.stripe is None and command.file.startswith("x"):
            self.fetches[command.transfer] = command.file
        elif isinstance(command, cmd.Upload) and command.file in self.owner:
            replica = world.nodes[command.node].replicas.get((command.file, command.generation))
            self.uploads[command.transfer] = (command.file, replica.content if replica is not None else "")
        elif isinstance(command, cmd.GiveUpTransfer) and command.fault.code == NEWER_CODE:
            self.superseded.add(command.file)
        elif isinstance(command, cmd.EraseSpill):
            self.elsewhere.pop(command.file, None)
        elif isinstance(command, cmd.FinishRun) and command.outcome is not RunOutcome.INTERRUPTED:
            self.over.add(command.run)
        elif isinstance(command, cmd.FinishRun):
            # Who resumes it finds what there was room for.
            self.over.add(command.run)
        elif isinstance(command, cmd.DeleteReplica):
            self.evicted[command.file] = self.evicted.get(command.file, 0) + 1
            self._check_delete(world, command)

    def _check_staged(self, world: SimWorld, command: cmd.StartAttempt) -> None:
        self.reading[command.attempt] = command
        for entry in command.inputs:
            replica = world.nodes[command.node].sound(entry.file, entry.generation)
            if replica is None:
                continue
            external = self.externals[command.run].get(entry.file)
            right = {external} if external else {self.made.get(entry.file), *(made.get(entry.file) for made in self.fresh.values())}
            if replica.content not in right:
                raise Violation(f"job {command.job} of {command.run} is staged with a {entry.lfn} that is not what counts")

    def _check_delete(self, world: SimWorld, command: cmd.DeleteReplica) -> None:
        key = (command.file, command.generation)
        node = world.nodes[command.node]
        sound = node.sound(*key)
        if sound is None or sound.is_part or key in self.lost:
            return
        for attempt in self.reading.values():
            if attempt.node == command.node and key in {(entry.file, entry.generation) for entry in attempt.inputs}:
                raise Violation(f"{command.file} is deleted ({command.why}) while {attempt.attempt} of {attempt.job} reads it")
        fresh = next((made[command.file] for made in self.fresh.values() if command.file in made), None)
        if command.file not in self.owner or (fresh or self.made.get(command.file)) != sound.content:
            return
        run, lfn = self.owner[command.file]
        twins = any(
            replica.content == sound.content and not replica.quarantined
            for other in world.nodes.values()
            for (file, generation), replica in other.replicas.items()
            if file == command.file and (other.id, generation) != (command.node, command.generation)
        )
        if run not in self.over and not twins and self.elsewhere.get(command.file) != sound.content:
            raise Violation(f"the only copy of {lfn} of {run} is deleted ({command.why}), and its engine may call its readers again")

    def after(self, world: SimWorld) -> None:
        for made in self.fresh.values():
            self.made |= made
        self.fresh = {}

    def at_end(self, world: SimWorld) -> None:
        for name in world.engines:
            run = world.runs[name]
            if run.outcome is not RunOutcome.SUCCEEDED:
                continue
            for lfn, file in run.workflow.files.items():
                content = self.made.get(str(produced_file_id(name, lfn)))
                if file.destination is None or content is None:
                    continue
                place = file.destination.location
                stored = world.origin_of(name, place.origin).files.get(place.path)
                superseded = str(produced_file_id(name, lfn)) in self.superseded
                if superseded and stored is not None and stored.content not in self.made.values():
                    continue
                if stored is None or stored.content != content:
                    raise Violation(f"run {name} succeeded, and its final {lfn} at its destination is not what was made last: {stored}")
