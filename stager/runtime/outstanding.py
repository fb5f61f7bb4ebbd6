"""The journaled commands that have no answering event yet: those that must be done again after a crash, and the facts to ask for a transfer
anew.

May know: events and commands. One rule: fed by the same batches live and in replay, or begun with what was kept, so a restart knows what a
living world would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from stager.model.workflow import Workflow
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev


@dataclass(frozen=True, slots=True)
class KeptOutstanding:
    """Without the workflows: they stand in the events that submitted them."""

    epoch: int
    fetches: list[cmd.Fetch]
    uploads: list[cmd.Upload]
    cancels: list[cmd.CancelTransfer]
    erases: list[cmd.EraseSpill]
    attempts: list[cmd.StartAttempt]
    grants: list[cmd.GrantSpace]
    kills: list[cmd.KillAttempt]
    wakes: list[float]
    copies: list[cmd.CopyReplica] = field(default_factory=list)
    assemblies: list[cmd.AssembleStripes] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    hostless: list[str] = field(default_factory=list)


class Outstanding:
    def __init__(self) -> None:
        self.workflows: dict[str, Workflow] = {}
        self.transfers: dict[str, cmd.Fetch | cmd.AssembleStripes | cmd.CopyReplica | cmd.Upload] = {}
        self.cancels: dict[str, cmd.CancelTransfer] = {}
        self.erases: dict[tuple[str, str], cmd.EraseSpill] = {}
        self.attempts: dict[str, cmd.StartAttempt] = {}
        self.grants: dict[str, cmd.GrantSpace] = {}
        self.kills: dict[str, cmd.KillAttempt] = {}
        self.wakes: set[float] = set()
        # The nodes that are gone for good, as long as none of their name has come.
        self.gone: dict[str, None] = {}
        # Attempts whose host is gone, and whose end was not told.
        self.hostless: set[str] = set()
        self.epoch = 0

    def kept(self) -> KeptOutstanding:
        transfers = self.transfers.values()
        return KeptOutstanding(
            self.epoch,
            [command for command in transfers if isinstance(command, cmd.Fetch)],
            [command for command in transfers if isinstance(command, cmd.Upload)],
            list(self.cancels.values()),
            list(self.erases.values()),
            list(self.attempts.values()),
            list(self.grants.values()),
            list(self.kills.values()),
            sorted(self.wakes),
            [command for command in transfers if isinstance(command, cmd.CopyReplica)],
            [command for command in transfers if isinstance(command, cmd.AssembleStripes)],
            list(self.gone),
            sorted(self.hostless),
        )

    def twin(self) -> Outstanding:
        """For another thread: equal, and nothing of it is shared."""
        other = Outstanding()
        other.take_up(self.kept(), {})
        other.workflows = dict(self.workflows)
        return other

    def take_up(self, kept: KeptOutstanding, submitted: Mapping[str, ev.RunSubmitted | ev.RunResumed | ev.RunScattered]) -> None:
        self.workflows = {run: event.workflow for run, event in submitted.items() if event.workflow is not None}
        transfers = (kept.fetches, kept.copies, kept.assemblies, kept.uploads)
        for commands in (*transfers, kept.cancels, kept.erases, kept.attempts, kept.grants, kept.kills):
            self.gave(commands)
        self.epoch, self.wakes, self.gone = kept.epoch, set(kept.wakes), dict.fromkeys(kept.gone)
        self.hostless = set(kept.hostless)

    def saw(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            handler = SEEN.get(type(event))
            if handler is not None:
                handler(self, event)

    def gave(self, commands: Sequence[cmd.Command]) -> None:
        for command in commands:
            handler = GIVEN.get(type(command))
            if handler is not None:
                handler(self, command)

    def end_transfer(self, transfer: str) -> None:
        self.transfers.pop(transfer, None)
        self.cancels.pop(transfer, None)

    def end_attempt(self, attempt: str) -> None:
        self.attempts.pop(attempt, None)
        self.grants.pop(attempt, None)
        self.kills.pop(attempt, None)
        self.hostless.discard(attempt)

    def redefined(self, event: ev.RunResumed | ev.RunScattered) -> None:
        if event.workflow is not None:
            self.workflows[event.run] = event.workflow

    def reported(self, event: ev.NodeReported) -> None:
        """The Machine has to ask again, under a new id, for a transfer that the node does not list."""
        known = set(event.transfers)
        self.gone.pop(event.node, None)
        for transfer in [t.transfer for t in self.transfers.values() if t.node == event.node and t.transfer not in known]:
            self.end_transfer(transfer)

    def node_gone(self, event: ev.NodeGone) -> None:
        """Nothing is asked of the node any more. Its attempts are still to be ended, and who ended them says so."""
        self.gone[event.node] = None
        for transfer in [t.transfer for t in self.transfers.values() if t.node == event.node]:
            self.end_transfer(transfer)
        self.cancels = {key: command for key, command in self.cancels.items() if command.node != event.node}
        self.grants = {key: command for key, command in self.grants.items() if command.node != event.node}

    def host_gone(self, event: ev.HostGone) -> None:
        self.hostless.update(command.attempt for command in self.attempts.values() if command.host == event.host)

    def woken(self, event: ev.Woken) -> None:
        self.wakes = {wake for wake in self.wakes if wake > event.at}

    def erase(self, command: cmd.EraseSpill) -> None:
        """An older journal does not say the run; the path does."""
        known = command if command.run else replace(command, run=command.path.split("/")[1])
        self.erases[command.origin, command.path] = known


SEEN: dict[type, Any] = {
    ev.SchedulerStarted: lambda self, event: setattr(self, "epoch", event.epoch),
    ev.RunSubmitted: lambda self, event: self.workflows.__setitem__(event.run, event.workflow),
    ev.RunResumed: Outstanding.redefined,
    ev.RunScattered: Outstanding.redefined,
    ev.NodeReported: Outstanding.reported,
    ev.NodeGone: Outstanding.node_gone,
    ev.HostGone: Outstanding.host_gone,
    ev.TransferDone: lambda self, event: self.end_transfer(event.transfer),
    ev.TransferFailed: lambda self, event: self.end_transfer(event.transfer),
    ev.TransferCancelled: lambda self, event: self.end_transfer(event.transfer),
    ev.SpillErased: lambda self, event: self.erases.pop((event.origin, event.path), None),
    ev.AttemptEnded: lambda self, event: self.end_attempt(event.attempt),
    ev.AttemptWaits: lambda self, event: self.grants.pop(event.attempt, None),
    ev.Woken: Outstanding.woken,
}
GIVEN: dict[type, Any] = {
    cmd.Fetch: lambda self, command: self.transfers.__setitem__(command.transfer, command),
    cmd.AssembleStripes: lambda self, command: self.transfers.__setitem__(command.transfer, command),
    cmd.CopyReplica: lambda self, command: self.transfers.__setitem__(command.transfer, command),
    cmd.Upload: lambda self, command: self.transfers.__setitem__(command.transfer, command),
    cmd.CancelTransfer: lambda self, command: self.cancels.__setitem__(command.transfer, command),
    cmd.EraseSpill: Outstanding.erase,
    cmd.StartAttempt: lambda self, command: self.attempts.__setitem__(command.attempt, command),
    cmd.GrantSpace: lambda self, command: self.grants.__setitem__(command.attempt, command),
    cmd.KillAttempt: lambda self, command: self.kills.__setitem__(command.attempt, command),
    cmd.WakeAt: lambda self, command: self.wakes.add(command.wake_at),
}
