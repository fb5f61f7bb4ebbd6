"""The effect of each command on the virtual world. One rule: doing a command twice is doing it once; commands that only record a decision
do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stager.planning.links import comes_behind
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev

if TYPE_CHECKING:
    from stager.sim.world import SimWorld

RESUME_AFTER_S = 1.0


def fetch(world: SimWorld, command: cmd.Fetch) -> None:
    node = world.nodes[command.node]
    if node.answers:
        world.transfers.accept(command, node, world.origin_of(command.run, command.origin))


def copy_replica(world: SimWorld, command: cmd.CopyReplica | cmd.AssembleStripes) -> None:
    node = world.nodes[command.node]
    if node.answers:
        world.transfers.accept_copy(command, node, world.nodes)


def upload(world: SimWorld, command: cmd.Upload) -> None:
    node, origin = world.nodes[command.node], world.origin_of(command.run, command.origin)
    if node.answers:
        run = world.executor.runs[command.run]
        back = run.comes_back[command.origin]
        behind = back and comes_behind(run.workflow.origins[command.origin], world.topology.link(command.origin), command.size_bytes)
        world.transfers.accept(command, node, origin, back, behind)


def reprioritize(world: SimWorld, command: cmd.Reprioritize) -> None:
    if world.nodes[command.node].answers:
        world.transfers.reprioritize(command.transfer, command.priority)


def cancel_transfer(world: SimWorld, command: cmd.CancelTransfer) -> None:
    if world.nodes[command.node].answers:
        world.transfers.cancel(command.transfer)


def delete_replica(world: SimWorld, command: cmd.DeleteReplica) -> None:
    """One under a lease is busy; one that is not there is as good as deleted."""
    node = world.nodes[command.node]
    if not node.answers:
        return
    replica = node.replicas.get((command.file, command.generation))
    busy = replica is not None and replica.leases > 0
    if not busy:
        node.drop(command.file, command.generation)
    kind = ev.ReplicaBusy if busy else ev.ReplicaDeleted
    world.answer(node, lambda now: kind(at=now, node=command.node, file=command.file, generation=command.generation))


def erase_spill(world: SimWorld, command: cmd.EraseSpill) -> None:
    """A node that is not there cannot. One that cannot be reached was asked before."""
    if world.nodes[command.node].absent:
        return
    origin = world.origin_of(command.run, command.origin)
    stored = origin.files.get(command.path)
    if stored is not None and stored.token == command.token:
        del origin.files[command.path]
    world.answer(world.nodes[command.node], lambda now: ev.SpillErased(at=now, origin=command.origin, path=command.path))


def start_attempt(world: SimWorld, command: cmd.StartAttempt) -> None:
    world.executor.start(command, world.nodes[command.node])


def grant_space(world: SimWorld, command: cmd.GrantSpace) -> None:
    if world.nodes[command.node].answers:
        world.executor.grant(command)


def kill_attempt(world: SimWorld, command: cmd.KillAttempt) -> None:
    world.executor.kill(command.attempt)


def finish_run(world: SimWorld, command: cmd.FinishRun) -> None:
    """If the run did not succeed and somebody is to try again, they do so a little later."""
    entry = world.runs[command.run]
    if entry.ended_by == command.id:
        return
    entry.ended_by = command.id
    entry.outcome, entry.fault, entry.finished_at = command.outcome, command.fault, world.clock.now
    over = command.outcome in (cmd.RunOutcome.SUCCEEDED, cmd.RunOutcome.CANCELLED)
    if not over and entry.resumes < world.resumes_max:
        entry.resumes += 1
        world.tell_at(world.clock.now + RESUME_AFTER_S, lambda now: ev.RunResumed(at=now, run=command.run))


def wake_at(world: SimWorld, command: cmd.WakeAt) -> None:
    world.clock.at(command.wake_at, wake, world)


def wake(world: SimWorld) -> None:
    world.say(None, ev.Woken(at=world.clock.now))


def record_only(world: SimWorld, command: Any) -> None:
    """A decision that changes nothing outside the Machine."""


DOERS: dict[type, Callable[[SimWorld, Any], None]] = {
    cmd.Fetch: fetch,
    cmd.AssembleStripes: copy_replica,
    cmd.GiveUpStripes: record_only,
    cmd.CopyReplica: copy_replica,
    cmd.Reprioritize: reprioritize,
    cmd.Upload: upload,
    cmd.CancelTransfer: cancel_transfer,
    cmd.RetryTransferAt: record_only,
    cmd.GiveUpTransfer: record_only,
    cmd.DeleteReplica: delete_replica,
    cmd.EraseSpill: erase_spill,
    cmd.AdmitJob: record_only,
    cmd.StartAttempt: start_attempt,
    cmd.GrantSpace: grant_space,
    cmd.KillAttempt: kill_attempt,
    cmd.RequeueJob: record_only,
    cmd.RehomeJob: record_only,
    cmd.FailJob: record_only,
    cmd.EndCall: record_only,
    cmd.RemakeFile: record_only,
    cmd.AwaitJob: record_only,
    cmd.StopAwaiting: record_only,
    cmd.TakeOver: record_only,
    cmd.FallBackToFetch: record_only,
    cmd.PauseOrigin: record_only,
    cmd.PauseRun: record_only,
    cmd.TellForecast: record_only,
    cmd.FinishRun: finish_run,
    cmd.WakeAt: wake_at,
}
