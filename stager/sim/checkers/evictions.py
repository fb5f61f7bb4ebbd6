"""Nothing pinned and nothing dirty is deleted. One rule: the accounts here are kept from words and commands alone, as a second opinion.

Pinned: an input of a job that was admitted and has not ended. Dirty: the only sound copy of a file that a job of an active run still has to
read, or of a final that is not at its destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stager.model.ids import external_file_id, produced_file_id
from stager.planning.plan import Access, ReusedJob, ReusedOutput
from stager.planning.reuse import run_as_well
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.checkers.quiet import QuietChecker
from stager.sim.world import Submitted, Violation

if TYPE_CHECKING:
    from stager.sim.world import SimWorld

ENDED_FOR_GOOD = ("succeeded", "cancelled")


def owner_is_engines(world: SimWorld, owner: tuple[str, str] | None) -> bool:
    """Of whom a job may be called again while its final is fetched from where it was written: either making will do."""
    return owner is not None and world.runs[owner[0]].workflow.engine != ""


class EvictionChecker(QuietChecker):
    def __init__(self) -> None:
        self.ids: dict[str, dict[str, str]] = {}
        self.owner: dict[str, tuple[str, str]] = {}
        self.pinned: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
        self.done: set[tuple[str, str]] = set()
        self.failed: set[tuple[str, str]] = set()
        self.uploads: dict[str, tuple[str, str]] = {}
        # Files on their way to a spill origin, by transfer.
        self.spilling: dict[str, str] = {}
        self.elsewhere: set[str] = set()
        self.cancelling: set[str] = set()
        self.lost: set[tuple[str, str]] = set()
        self.void: set[str] = set()
        self.running: set[tuple[str, str]] = set()
        self.resumed_now: set[str] = set()
        self.wiped: dict[str, int] = {}
        self.gone: set[str] = set()
        self.where: dict[tuple[str, str], str] = {}
        # By what was decided: a scheduler that dies has recorded the end of a run, and what goes for it, before either was done.
        self.ended: dict[str, cmd.RunOutcome] = {}
        self.direct_access: set[tuple[str, str]] = set()
        # Runs that their engine has ended: what they made is wanted by nobody but their destinations.
        self.given_up: set[str] = set()
        # Of runs that were to take over what an earlier one made: the file, by run and lfn. And who does, by file.
        self.kept: dict[tuple[str, str], str] = {}
        self.sharing: dict[str, list[tuple[str, str]]] = {}
        # Of finals that go home of what another run made: that file, by run and lfn.
        self.lent: dict[tuple[str, str], str] = {}
        # Since the scheduler started: these may be there for all that it knows.
        self.unheard: set[str] = set()

    def heard(self, world: SimWorld, events: Sequence[Any]) -> None:
        # What was decided before it was told of the resume, in the same batch, is not held against it.
        self.resumed_now = {event.run for event in events if isinstance(event, ev.RunResumed)}
        for event in events:
            if isinstance(event, ev.TransferDone | ev.TransferFailed | ev.TransferCancelled):
                self.spilling.pop(event.transfer, None)
            if isinstance(event, ev.SchedulerStarted):
                self.unheard = set(world.nodes)
            elif isinstance(event, ev.RunSubmitted):
                self._enter(world.runs[event.run])
                reused = self._reused(world, event)
                self.done |= {(event.run, each.job) for each in reused}
                at_home = (output.lfn for each in reused for output in each.outputs if output.token)
                self.elsewhere |= {self.ids[event.run][lfn] for lfn in at_home}
                for output in (output for each in reused for output in each.outputs if output.kept):
                    self._stands_for(world, event.run, output)
            elif isinstance(event, ev.AttemptEnded):
                self._unpin(event.run, event.job)
                self.running.discard((event.run, event.job))
                if event.outcome is ev.Outcome.OK and event.attempt not in self.void:
                    self.done.add((event.run, event.job))
                for made in event.outputs:
                    self._part_if_made_anew(world, made.file, made.generation)
            elif isinstance(event, ev.TransferDone) and event.transfer in self.uploads:
                self.elsewhere.add(self.uploads[event.transfer][0])
            elif isinstance(event, ev.EngineRunEnded):
                self.given_up.add(event.run)
            elif isinstance(event, ev.JobCalled):
                self.given_up.discard(event.run)
                self.done.discard((event.run, event.job))
            elif isinstance(event, ev.RunCancelled):
                self.cancelling.add(event.run)
            elif isinstance(event, ev.RunResumed):
                self.failed = {key for key in self.failed if key[0] != event.run}
                if self.ended.get(event.run) not in ENDED_FOR_GOOD:
                    self.ended.pop(event.run, None)
                if event.workflow is not None:
                    self._enter(world.runs[event.run])
            elif isinstance(event, ev.RunScattered):
                if event.workflow is not None:
                    self._enter(world.runs[event.run])
            elif isinstance(event, ev.ReplicaCorrupt):
                self._lose(event.node, event.file, event.generation)
            elif isinstance(event, ev.NodeGone):
                self._leave(event.node)
            elif isinstance(event, ev.NodeReported):
                self._empty(world, event.node)
                self.unheard.discard(event.node)
                strange = event.node in self.gone
                self.gone.discard(event.node)
                for seen in event.replicas:
                    if seen.quarantined or (strange and seen.file in self.owner):
                        self._lose(event.node, seen.file, seen.generation)

    def about_to(self, world: SimWorld, command: Any) -> None:
        if isinstance(command, cmd.AdmitJob):
            run = world.runs[command.run]
            held = [entry for entry in run.workflow.jobs[command.job].inputs if (command.run, entry.lfn) not in self.direct_access]
            for entry in held:
                file = self._file_of(world, command.run, entry.lfn)
                self.pinned.setdefault((command.node, file), {})[command.run, command.job] = None
        elif isinstance(command, cmd.RequeueJob | cmd.FailJob | cmd.EndCall):
            self._unpin(command.run, command.job)
            if isinstance(command, cmd.FailJob):
                self.failed.add((command.run, command.job))
            if not isinstance(command, cmd.RequeueJob) or world.runs[command.run].workflow.engine:
                # Its outputs were not believed, though it ended well.
                self.done.discard((command.run, command.job))
        elif isinstance(command, cmd.FinishRun):
            self.ended[command.run] = command.outcome
        elif isinstance(command, cmd.StartAttempt):
            self.running.add((command.run, command.job))
            self.where[command.run, command.job] = command.node
        elif isinstance(command, cmd.KillAttempt) and command.void:
            self.void.add(command.attempt)
        elif isinstance(command, cmd.FallBackToFetch):
            self.direct_access.discard((command.run, command.lfn))
        elif isinstance(command, cmd.TakeOver):
            self._take_over(world, command)
        elif isinstance(command, cmd.RemakeFile):
            self._make_anew(world, command)
            # It is lost, whoever said so: a job that was admitted on it and has not begun is so no more.
            for node in world.nodes:
                self._withdraw(node, command.file)
        elif isinstance(command, cmd.Upload):
            self.uploads[command.transfer] = (command.file, command.path)
            if command.purpose is cmd.Purpose.SPILL:
                self.spilling[command.transfer] = command.file
        elif isinstance(command, cmd.EraseSpill):
            self.elsewhere.discard(command.file)
        elif isinstance(command, cmd.DeleteReplica):
            self._check_delete(world, command)

    def _reused(self, world: SimWorld, event: ev.RunSubmitted) -> list[ReusedJob]:
        """Those that can be: what is kept of them is there, and there is room for all files of all runs."""
        kept = {output.lfn: output.kept for each in event.reused for output in each.outputs if output.kept}
        if not kept:
            return list(event.reused)
        going_on = [run for run in world.runs.values() if run.at <= event.at and run.run not in self.ended]
        roomy = sum(file.size_bytes for run in going_on for file in run.plan.files) <= event.plan.capacity_bytes
        home = {output.lfn for each in event.reused for output in each.outputs if output.token}

        def is_at_hand(lfn: str) -> bool:
            if kept.get(lfn) in (*self.elsewhere, *self.spilling.values()) or finals[lfn].is_final:
                # Spilled, or about to be: its place is called by the run that made it. Or a final, which is read where it is at home.
                return lfn in home
            return lfn in home or (lfn in kept and roomy and is_there(lfn))

        def is_there(lfn: str) -> bool:
            asked = [node for node in world.nodes.values() if node.answers or node.id in self.unheard]
            return any(file == kept[lfn] for node in asked for file, _ in node.replicas)

        def goes_home(lfn: str) -> bool:
            return lfn in home or (lfn in kept and roomy and is_there(lfn))

        finals = event.workflow.files
        stays = [each for each in event.reused if all(goes_home(out.lfn) for out in each.outputs if finals[out.lfn].is_final)]
        runs = event.workflow.jobs.keys() - {each.job for each in stays}
        more = run_as_well(event.workflow, runs, is_at_hand)
        return [each for each in stays if each.job not in more]

    def _stands_for(self, world: SimWorld, run: str, output: ReusedOutput) -> None:
        if world.runs[run].workflow.files[output.lfn].is_final:
            self.lent[run, output.lfn] = output.kept
            return
        self.kept[run, output.lfn] = output.kept
        self.sharing.setdefault(output.kept, []).append((run, output.lfn))

    def _take_over(self, world: SimWorld, command: cmd.TakeOver) -> None:
        self.done.add((command.run, command.job))
        for output in command.outputs:
            if output.kept:
                self._stands_for(world, command.run, output)
            if output.token:
                self.elsewhere.add(self.ids[command.run][output.lfn])

    def _make_anew(self, world: SimWorld, command: cmd.RemakeFile) -> None:
        """Where a job has begun on what this one made, what is not lost of that stands, whatever is made now."""
        run, graph = command.run, world.runs[command.run].graph
        outputs = [output.lfn for output in world.runs[run].workflow.jobs[command.job].outputs]
        begun = self.done | self.running
        rests = any((run, reader) in begun for lfn in outputs for reader in graph.readers[lfn])
        rests = rests or any(self.ids[run][lfn] in self.elsewhere for lfn in outputs)
        for lfn in outputs:
            if not rests or self.ids[run][lfn] == command.file:
                self.kept.pop((run, lfn), None)
                self.lent.pop((run, lfn), None)
        self.done.discard((run, command.job))

    def _part_if_made_anew(self, world: SimWorld, file: str, generation: str) -> None:
        """It was nowhere: whoever had taken it over, or borrowed it, has had one of its own since."""
        self.lent.pop(self.owner.get(file, ("", "")), None)
        there = file in self.elsewhere or any(
            name == file and other != generation for node in world.nodes.values() for name, other in node.replicas
        )
        if not there:
            for table in (self.kept, self.lent):
                for who in [who for who, kept in table.items() if kept == file]:
                    del table[who]

    def _file_of(self, world: SimWorld, run: str, lfn: str) -> str:
        """What it took over from an earlier run, as long as that is anywhere, or its own."""
        kept = self.kept.get((run, lfn))
        there = kept in self.elsewhere or any(file == kept for node in world.nodes.values() for file, _ in node.replicas)
        if kept is not None and there:
            return kept
        return self.ids[run][lfn]

    def _enter(self, run: Submitted) -> None:
        ids = self.ids[run.run] = {}
        self.direct_access |= {(run.run, file.lfn) for file in run.plan.files if file.access is Access.DIRECT}
        for lfn, file in run.workflow.files.items():
            if file.is_external:
                first = file.sources[0]
                origin = run.workflow.origins[first.location.origin]
                ids[lfn] = str(external_file_id(origin.url, first.location.path, first.token or "", origin.endpoint))
            else:
                ids[lfn] = str(produced_file_id(run.run, lfn))
                self.owner[ids[lfn]] = (run.run, lfn)

    def _lose(self, node: str, file: str, generation: str) -> None:
        """Damaged. A job that was admitted on it and has not begun is so no more."""
        self.lost.add((file, generation))
        self._withdraw(node, file)

    def _withdraw(self, node: str, file: str) -> None:
        for run, job in list(self.pinned.get((node, file), {})):
            if (run, job) not in self.running:
                self._unpin(run, job)

    def _empty(self, world: SimWorld, node: str) -> None:
        """It came back without its disk: who was admitted there and has not begun is so no more."""
        if world.nodes[node].wiped == self.wiped.get(node, 0):
            return
        self.wiped[node] = world.nodes[node].wiped
        for key in [key for (where, _), readers in self.pinned.items() if where == node for key in readers]:
            if key not in self.running:
                self._unpin(*key)

    def _leave(self, node: str) -> None:
        """Nobody runs or is admitted there any more, and what was made there is lost."""
        self.gone.add(node)
        for key in [key for (where, _), readers in self.pinned.items() if where == node for key in readers]:
            self._unpin(*key)
        self.running -= {key for key in self.running if self.where.get(key) == node}

    def _unpin(self, run: str, job: str) -> None:
        for readers in self.pinned.values():
            readers.pop((run, job), None)

    def _check_delete(self, world: SimWorld, command: cmd.DeleteReplica) -> None:
        node = world.nodes[command.node]
        key = (command.file, command.generation)
        sound = node.sound(*key)
        if sound is None or sound.is_part or key in self.lost:
            return
        twins = [
            other
            for other in world.nodes.values()
            for (file, generation), replica in other.replicas.items()
            if file == command.file and generation != command.generation and not replica.is_part
        ]
        readers = self.pinned.get((command.node, command.file), {})
        made_again = command.file in self.elsewhere and owner_is_engines(world, self.owner.get(command.file))
        if readers and not twins and not made_again:
            raise Violation(f"at {world.clock.now:.3f}: {command.file} is deleted ({command.why}) while {list(readers)} needs it")
        borrowed = (who for who, file in self.lent.items() if file == command.file and self.ids[who[0]][who[1]] not in self.elsewhere)
        if not twins and (lacks := next((who for who in borrowed if self._wanted_by(world, *who)), None)) is not None:
            raise Violation(f"at {world.clock.now:.3f}: {command.file} is deleted ({command.why}), of which {lacks} is to go home")
        owner = self.owner.get(command.file)
        if owner is None or twins or command.file in self.elsewhere or self._file_of(world, *owner) != command.file:
            return
        sharing = (who for who in self.sharing.get(command.file, ()) if self.kept.get(who) == command.file)
        wanted_by = next((by for who in (owner, *sharing) if (by := self._wanted_by(world, *who))), "")
        if wanted_by:
            raise Violation(
                f"at {world.clock.now:.3f}: the only copy of {owner[1]} of {owner[0]} is deleted ({command.why}), {wanted_by} needs it"
            )

    def _wanted_by(self, world: SimWorld, run_id: str, lfn: str) -> str:
        run = world.runs[run_id]
        producer = run.graph.producer[lfn]
        if run_id in self.cancelling or run_id in self.resumed_now or run_id in self.ended or (run_id, producer) not in self.done:
            return ""
        if run.workflow.files[lfn].is_final:
            return "its destination"
        skipped = self._below_failures(run)
        if run_id in self.given_up:
            return ""
        return next((job for job in run.graph.readers.get(lfn, ()) if (run_id, job) not in self.done and job not in skipped), "")

    def _below_failures(self, run: Submitted) -> set[str]:
        """Jobs that will not run unless somebody resumes."""
        found = [job for owner, job in self.failed if owner == run.run]
        for job in found:
            found.extend(child for child in run.graph.children[job] if child not in found)
        return set(found)
