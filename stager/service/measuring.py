"""Puts what attempts measured into the profiles store. One rule: only attempts that ended well speak for their job type."""

from __future__ import annotations

from collections.abc import Sequence

from stager.adapters import moves
from stager.adapters.overheads import Seen
from stager.adapters.profiles_store import ProfilesStore
from stager.model.link import Move
from stager.model.overhead import SeenOverhead, seen_overhead, share_after
from stager.model.profiling import Kind, Sample, Side, group_files
from stager.model.workflow import Job, Origin, OriginKind
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.direct_access import predicted
from stager.scheduler.machine import Machine
from stager.scheduler.state import RunEntry

# By kickstart, whose records `stager pegasus attach` takes in.
MEASURED_BY_ENGINE = frozenset(("pegasus",))
# More than are ever under way at once.
DELETING_MAX = 100_000


class Measuring:
    """On the driving thread, live only: a replay has been measured already."""

    def __init__(self, store: ProfilesStore, machine: Machine) -> None:
        self.store, self.machine = store, machine
        # Attempts under way whose time is all their own.
        self.begun: dict[str, float] = {}
        self.share_beyond: float | None = None
        self.moving: dict[str, cmd.Fetch | cmd.Upload | cmd.CopyReplica] = {}
        # By node, file and generation; what a node that is gone never answers stays until there are too many.
        self.deleting: dict[tuple[str, str, str], tuple[float, str]] = {}

    def saw(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        """The next plan is made after a run: what it measured is there by then."""
        ended = [event for event in events if type(event) is ev.AttemptEnded and event.outcome is ev.Outcome.OK]
        self.store.add_overheads(self._overheads(events, commands))
        self.store.add_moves([*self._moves(events, commands), *self._deletes(events, commands)])
        self.store.add(self._sample(event) for event in ended if self._speaks(event))
        if any(type(command) is cmd.FinishRun for command in commands):
            self.store.try_to(self.store.write)

    def _speaks(self, event: ev.AttemptEnded) -> bool:
        """Where an engine measures its jobs itself, and better, a call would be a second sample of the same."""
        run = self.machine.state.runs.get(event.run)
        return run is not None and run.workflow.engine not in MEASURED_BY_ENGINE

    def _overheads(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> list[Seen]:
        """One that waited for space, or was begun by an earlier scheduler, tells nothing of what an attempt takes."""
        seen, others = [], len(self.begun) - 1
        for event in events:
            if type(event) is ev.AttemptWaits:
                self.begun.pop(event.attempt, None)
            elif type(event) is ev.AttemptEnded:
                begun_at, wall_s = self.begun.pop(event.attempt, None), event.measures.wall_s
                if begun_at is not None and wall_s is not None and event.outcome is ev.Outcome.OK:
                    seen.append((event.attempt, event.at, self._overhead(event, event.at - begun_at, wall_s, others)))
        self.begun |= {command.attempt: command.at for command in commands if type(command) is cmd.StartAttempt}
        return seen

    def _overhead(self, event: ev.AttemptEnded, took_s: float, wall_s: float, others: int) -> SeenOverhead:
        made_bytes = sum(made.size_bytes for made in event.outputs)
        run = self.machine.state.runs.get(event.run)
        declared_s, input_bytes = None, 0
        if run is not None:
            job = run.workflow.jobs[event.job]
            declared_s, input_bytes = job.compute_s, sum(size_bytes for _, size_bytes in self._inputs(run, job))
        seen = seen_overhead(took_s, wall_s, declared_s, input_bytes, made_bytes, len(event.outputs))
        self.share_beyond = share_after(self.share_beyond, took_s, seen.beyond_s or 0.0)
        return seen.beside(others * self.share_beyond)

    def _inputs(self, run: RunEntry, job: Job) -> list[tuple[str, int]]:
        """Each with its size."""
        files = self.machine.state.files
        return [(lfn, files[run.file_ids[lfn]].size_bytes) for lfn in dict.fromkeys(entry.lfn for entry in job.inputs)]

    def _moves(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> list[moves.Seen]:
        """Only what went over the link tells of it."""
        seen: list[moves.Seen] = []
        for event in events:
            if isinstance(event, (ev.TransferDone, ev.TransferFailed, ev.TransferCancelled)):
                command = self.moving.pop(event.transfer, None)
                if isinstance(command, cmd.CopyReplica):
                    seen += copied_by(event, command)
                elif command is not None and command.run in self.machine.state.runs:
                    seen += moved_by(event, command, self.machine.state.runs[command.run].workflow.origins[command.origin])
        begun = [command for command in commands if isinstance(command, (cmd.Fetch, cmd.Upload, cmd.CopyReplica))]
        self.moving |= {command.transfer: command for command in begun}
        return seen

    def _deletes(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> list[moves.Seen]:
        seen: list[moves.Seen] = []
        for event in events:
            if type(event) is ev.ReplicaDeleted:
                begun_at, run = self.deleting.pop((event.node, event.file, event.generation), (event.at, ""))
                if event.at > begun_at:
                    name = f"{moves.DELETES} {event.node} {event.generation}"
                    seen.append((name, moves.DELETES, Move(run, True, begun_at, event.at, 0)))
        for command in commands:
            if type(command) is cmd.DeleteReplica and (file := self.machine.state.files.get(command.file)) is not None:
                if len(self.deleting) > DELETING_MAX:
                    self.deleting.clear()
                self.deleting[command.node, command.file, command.generation] = command.at, file.run
        return seen

    def _sample(self, event: ev.AttemptEnded) -> Sample:
        run = self.machine.state.runs[event.run]
        job, measures = run.workflow.jobs[event.job], event.measures
        inputs = self._inputs(run, job)
        outputs = [(made.lfn, made.size_bytes) for made in event.outputs]
        return Sample(
            store=self.store.id,
            attempt=event.attempt,
            job_type=job.profile,
            run=event.run,
            kind=Kind.RUN,
            at=event.at,
            wall_s=wall_at_node_s(run, job, measures),
            cpu_s=measures.cpu_s,
            memory_peak_bytes=measures.memory_peak_bytes,
            input_bytes=sum(size_bytes for _, size_bytes in inputs),
            input_files=len(inputs),
            read_bytes=measures.read_bytes,
            written_bytes=measures.written_bytes,
            output_bytes=sum(size_bytes for _, size_bytes in outputs),
            output_files=len(outputs),
            files=group_files(Side.INPUT, inputs) + group_files(Side.OUTPUT, outputs),
        )


def moved_by(event: ev.Event, command: cmd.Fetch | cmd.Upload, origin: Origin) -> list[moves.Seen]:
    """The node counts the seconds of a transfer and not those that it waited for its turn."""
    if type(event) is not ev.TransferDone or event.bytes_moved <= 0 or event.duration_s <= 0:
        return []
    is_fetch = type(command) is cmd.Fetch
    # In a directory of this machine it crosses nothing.
    read_back = not is_fetch and origin.kind is not OriginKind.FILE and event.verified == "readback"
    # A node counts what it read back as moved, too.
    moved_bytes = event.bytes_moved if is_fetch else min(event.bytes_moved, event.size_bytes)
    begun_at = event.at - event.duration_s
    move = Move(command.run, is_fetch, begun_at, event.at, moved_bytes, read_back, max(0.0, begun_at - command.at))
    return [(event.transfer, origin.link, move)]


def copied_by(event: ev.Event, command: cmd.CopyReplica) -> list[moves.Seen]:
    """All that it took: a copy waits for nothing but the scheduler and the two nodes."""
    if type(event) is not ev.TransferDone or event.at <= command.at:
        return []
    return [(event.transfer, moves.BETWEEN_NODES, Move(command.run, True, command.at, event.at, event.size_bytes))]


def wall_at_node_s(run: RunEntry, job: Job, measures: ev.Measures) -> float | None:
    """Without what it was predicted to stand still for while it read directly, as far as it did not compute meanwhile: a plan adds that
    again, where it reads directly.
    """
    stood_s = predicted(run, job.id)[1]
    if measures.wall_s is None or not stood_s:
        return measures.wall_s
    computed_s = (measures.cpu_s or 0.0) / max(1, job.cores)
    return max(min(computed_s, measures.wall_s), measures.wall_s - stood_s)
