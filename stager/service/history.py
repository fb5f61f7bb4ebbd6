"""The history of a run, from the journal: attempts and transfers in time, where its time went, bytes held, and the hits of a cache that
knows the future.

May know: events and commands. One rule: it only retells what is recorded; times count from the run's submit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from stager import wire
from stager.model.workflow import Workflow
from stager.planning.clairvoyant import clairvoyant_bound_bytes
from stager.planning.plan import Access
from stager.planning.rival_caches import Give, Rule, Step, Take, hits_of
from stager.ports import Batch
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.critical_path import critical_path
from stager.scheduler.run_times import RunTimes

OCCUPANCY_POINTS_MAX = 2_000


def history_of(batches: Iterable[Batch], run: str, *, rivals: bool = True) -> wire.RunHistory:
    """Raises nothing for a run that is not in it: then all lists are empty. `rivals` False: what other caches would have hit, and the
    critical path, are not worked out, which takes longer than all the rest.
    """
    past, times = Past(run), RunTimes(run)
    listeners = (past, times) if rivals else (past,)
    for batch in batches:
        for listener in listeners:
            for event in batch.events:
                listener.heard(event)
            for command in batch.commands:
                listener.gave(command)
    return past.told(rivals, path_of(times))


def path_of(times: RunTimes) -> list[wire.PathSpan]:
    return [
        wire.PathSpan(
            begun_s=span.begun_at - times.submitted_at,
            ended_s=span.ended_at - times.submitted_at,
            cause=span.cause.value,
            about=span.about,
            job=span.job,
            lfn=span.lfn,
        )
        for span in critical_path(times)
    ]


@dataclass(slots=True)
class Past:
    """Replicas count by (node, file, generation), as they are deleted. `there`: files that are on a node without this run having fetched
    them; the first use of such a one is a hit for everybody.
    """

    run: str
    workflow: Workflow | None = None
    submitted_at: float = 0.0
    cores: int = 1
    memory_bytes: int | None = None
    capacity: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, wire.HostOfRun] = field(default_factory=dict)
    begun: dict[str, tuple[float, str, str]] = field(default_factory=dict)
    transfers: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    held: dict[tuple[str, str, str], int] = field(default_factory=dict)
    held_bytes: int = 0
    there: dict[str, int] = field(default_factory=dict)
    over: bool = False
    read_bytes: int = 0
    steps: list[Step] = field(default_factory=list)
    trace: list[tuple[str, int]] = field(default_factory=list)
    attempts: list[wire.AttemptSpan] = field(default_factory=list)
    moves: list[wire.MoveSpan] = field(default_factory=list)
    occupancy: list[tuple[float, int]] = field(default_factory=list)

    def heard(self, event: Any) -> None:
        teller = HEARD.get(type(event))
        if teller is not None:
            teller(self, event)

    def gave(self, command: Any) -> None:
        if type(command) is cmd.StartAttempt:
            self.begun[command.attempt] = (command.at, command.node, command.host)
            if command.run == self.run:
                # What it reads directly passes no cache.
                read = [(used.file, self.sizes.get(used.file, 0)) for used in command.inputs if used.access is not Access.DIRECT]
                self.find({file for file, _ in read})
                self.trace += read
                self.steps.append(Take(command.attempt, tuple(dict(read).items()), command.reserve_bytes))
                self.read_bytes += sum(size for _, size in read)
        elif type(command) is cmd.FinishRun and command.run == self.run:
            self.over = True
        elif hasattr(command, "transfer") and hasattr(command, "size_bytes"):
            self.transfers[command.transfer] = command

    def submitted(self, event: ev.RunSubmitted) -> None:
        if event.run == self.run:
            self.workflow, self.submitted_at = event.workflow, event.at
            self.there = {file: size_bytes for (_, file, _), size_bytes in self.held.items()}
            self.note(event.at)

    def resumed(self, event: ev.RunResumed) -> None:
        if event.run == self.run:
            self.over = False
            self.workflow = event.workflow or self.workflow

    def scattered(self, event: ev.RunScattered) -> None:
        if event.run == self.run:
            self.workflow = event.workflow or self.workflow

    def set_policy(self, event: ev.PolicySet) -> None:
        if not self.over:
            self.cores, self.memory_bytes = event.limits.cores, event.limits.memory_bytes

    def reported(self, event: ev.NodeReported) -> None:
        """All that the node holds: whatever was believed of it before is void."""
        if not self.over:
            self.capacity[event.node] = event.capacity_bytes
        for key in [key for key in self.held if key[0] == event.node]:
            self.held_bytes -= self.held.pop(key)
        for seen in event.replicas:
            if seen.file not in self.sizes:
                self.there[seen.file] = seen.size_bytes
            self.sizes[seen.file] = seen.size_bytes
            self.hold(event.node, seen.file, seen.generation, seen.size_bytes)
        self.note(event.at)

    def host_reported(self, event: ev.HostReported) -> None:
        if not self.over:
            self.hosts[event.host] = wire.HostOfRun(
                host=event.host,
                node=event.node,
                cores=event.cores,
                memory_bytes=event.memory_bytes,
                scratch_bytes=event.scratch_bytes,
            )

    def host_gone(self, event: ev.HostGone) -> None:
        """One that was given up before the run began was not there for it."""
        if self.workflow is None:
            self.hosts.pop(event.host, None)

    def moved(self, event: ev.TransferDone) -> None:
        command = self.transfers.pop(event.transfer, None)
        if command is None:
            return
        if type(command) is not cmd.Upload:
            self.sizes[command.file] = event.size_bytes
            self.hold(event.node, command.file, event.transfer, event.size_bytes)
            if command.run != self.run:
                self.there[command.file] = event.size_bytes
            self.note(event.at)
        if command.run == self.run and type(command) in (cmd.Fetch, cmd.Upload):
            span = wire.MoveSpan(
                direction="fetch" if type(command) is cmd.Fetch else "upload",
                lfn=command.lfn,
                origin=command.origin,
                size_bytes=event.size_bytes,
                begun_s=max(0.0, event.at - event.duration_s - self.submitted_at),
                ended_s=event.at - self.submitted_at,
                verified=event.verified,
            )
            self.moves.append(span)

    def ended(self, event: ev.AttemptEnded) -> None:
        begun = event.attempt in self.begun
        begun_at, node, host = self.begun.pop(event.attempt, (event.at, "", ""))
        for output in event.outputs:
            self.sizes[output.file] = output.size_bytes
            self.hold(node, output.file, output.generation, output.size_bytes)
        self.note(event.at)
        if event.run != self.run or self.workflow is None:
            return
        made = [(entry.file, entry.size_bytes) for entry in event.outputs]
        self.trace += made
        if begun:
            self.steps.append(Give(event.attempt, tuple((file, size_bytes, False) for file, size_bytes in made)))
        span = wire.AttemptSpan(
            job=event.job,
            job_type=self.workflow.jobs[event.job].job_type,
            begun_s=begun_at - self.submitted_at,
            ended_s=event.at - self.submitted_at,
            outcome=event.outcome.value,
            host=host if self.hosts else "",
        )
        self.attempts.append(span)

    def deleted(self, event: ev.ReplicaDeleted) -> None:
        self.held_bytes -= self.held.pop((event.node, event.file, event.generation), 0)
        self.note(event.at)

    def hold(self, node: str, file: str, generation: str, size_bytes: int) -> None:
        self.held_bytes += size_bytes - self.held.get((node, file, generation), 0)
        self.held[node, file, generation] = size_bytes

    def note(self, at: float) -> None:
        """Of this run's time only."""
        if self.workflow is not None and not self.over:
            self.occupancy.append((at - self.submitted_at, self.held_bytes))

    def find(self, files: set[str]) -> None:
        """Puts those of these files that are there before its rivals, as something that was made."""
        found = [(file, self.there.pop(file)) for file in sorted(files & self.there.keys())]
        if found:
            self.trace += found
            finder = f"found {len(self.steps)}"
            self.steps += [Take(finder, ()), Give(finder, tuple((file, size_bytes, False) for file, size_bytes in found))]

    def told(self, rivals: bool, path: list[wire.PathSpan]) -> wire.RunHistory:
        used, capacity = self.read_bytes if rivals else 0, sum(self.capacity.values())
        return wire.RunHistory(
            run=self.run,
            nodes=sorted(self.capacity),
            cores=self.cores,
            memory_bytes=self.memory_bytes,
            capacity_bytes=capacity,
            attempts=self.attempts,
            moves=self.moves,
            occupancy=thinned(self.occupancy),
            belady_hit_rate=hits_of(Rule.MIN, self.steps, capacity).rate if used else None,
            best_hit_rate=min(1.0, clairvoyant_bound_bytes(self.trace, capacity) / used) if used else None,
            path=path,
            capacities=self.capacity,
            hosts=[self.hosts[host] for host in sorted(self.hosts)],
        )


HEARD: dict[type, Callable[[Past, Any], None]] = {
    ev.RunSubmitted: Past.submitted,
    ev.RunResumed: Past.resumed,
    ev.RunScattered: Past.scattered,
    ev.PolicySet: Past.set_policy,
    ev.NodeReported: Past.reported,
    ev.HostReported: Past.host_reported,
    ev.HostGone: Past.host_gone,
    ev.TransferDone: Past.moved,
    ev.AttemptEnded: Past.ended,
    ev.ReplicaDeleted: Past.deleted,
}


def thinned(points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """As many as a picture can show: of each stretch its highest, so that no peak is lost, and the last of all."""
    if len(points) <= OCCUPANCY_POINTS_MAX:
        return points
    stretch = -(-len(points) // (OCCUPANCY_POINTS_MAX - 1))
    highest = [max(points[start : start + stretch], key=lambda point: point[1]) for start in range(0, len(points), stretch)]
    return [*highest, points[-1]]
