"""Attempts on compute hosts, given to their workers through Dask. The second implementation of the world's port for attempts.

May know: the executor of attempts, the workers of hosts. One rule: an attempt ends by its host's word alone, or by the word that the host
is gone, once nothing of it can be committed any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from stager.adapters import executor_local
from stager.adapters.attempt_tickets import COMMITTED, made_of
from stager.adapters.executor_local import AttemptExecutor, Ending, attempt_spec, uncounted
from stager.adapters.host_workers import HostWorkers
from stager.planning.plan import Access
from stager.ports import Put
from stager.scheduler import commands as cmd
from stager.tasks import tried_until_done
from stager.wire.node import ClosedAttempt
from stager.worker import AttemptResult, AttemptSpec, Outcome
from stager.worker.attempt import lost_fault


class Surroundings(executor_local.Surroundings, Protocol):
    def attempts_on(self, host: str) -> Collection[str]:
        """Those that are not over."""

    def is_host_gone(self, attempt: str) -> bool:
        """Its host is gone, and its end was not told."""

    async def close_attempt(self, command: cmd.StartAttempt, *, ticketed: bool) -> ClosedAttempt | None:
        """At its node, once that can be asked: it has no leases and no space any more, and nothing of it is taken. What a node says of one
        with a ticket; None: its node is gone for good.
        """


class DaskExecutor(AttemptExecutor):
    """On the event loop's thread."""

    worker: HostWorkers
    surroundings: Surroundings

    def __init__(self, workers: HostWorkers, put: Put, surroundings: Surroundings) -> None:
        super().__init__(workers, put, surroundings)
        workers.outstanding = surroundings.attempts_on
        workers.cores_of = self._cores_of
        workers.spec_of = partial(spec_known, surroundings)
        self.steps: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        await self.worker.open()

    def start(self, command: cmd.StartAttempt) -> None:
        self.worker.commands[command.attempt] = command
        if self.surroundings.is_host_gone(command.attempt):
            self.started[command.attempt] = command
            self._lose(command)
            return
        super().start(command)

    def was_begun(self, attempt: str) -> bool:
        return self.worker.was_given(attempt)

    async def drop(self, attempts: Sequence[str]) -> None:
        await self.worker.forget(attempts)

    def host_gone(self, host: str) -> None:
        """Each attempt of it that is not over is closed at its node, and lost."""
        for command in [each for each in self.started.values() if each.host == host]:
            self._lose(command)

    def node_is_there(self, node: str) -> None:
        """It has reported. Started anew, it has to be told what was opened there."""
        self.tasks.start(f"the attempts that node {node} has open", self.worker.tickets.open_again(node))

    async def sweep(self, outstanding: Container[str]) -> None:
        await asyncio.to_thread(self.worker.notes.drop_others, outstanding)

    async def before_told(self, command: cmd.StartAttempt, ending: AttemptResult) -> None:
        await self.worker.bring_logs(command.attempt)

    async def bring_logs(self, run: str, job: str) -> None:
        """Of its attempts that are not over."""
        its = [each.attempt for each in self.started.values() if each.run == run and each.job == job]
        await asyncio.gather(*(self.worker.bring_logs(attempt) for attempt in its))

    async def close(self) -> None:
        """The attempts live on, and are asked about again by the next scheduler."""
        await self.tasks.close()
        await self.worker.close()

    def _go_on(self, command: cmd.StartAttempt, steps: Coroutine[Any, Any, Ending]) -> None:
        self.steps[command.attempt] = self.tasks.start(f"attempt {command.attempt}", self._until_ended(command, steps))

    async def _first(self, command: cmd.StartAttempt) -> Ending:
        """One that was given to its host before a restart is asked for again. If its host has not begun it, it begins; not where what it
        needs was forgotten, or would have to be mounted anew.
        """
        origins: dict[str, str] = {}
        workflow, env = self.surroundings.workflow(command.run), self.surroundings.env(command.run)
        direct = {entry.origin: entry.origin_path for entry in command.inputs if entry.access is Access.DIRECT}
        if self.was_begun(command.attempt) and (direct or (workflow.jobs[command.job].env_pass and env is None)):
            return await self.worker.adopt(command.attempt)
        if direct:
            killed = await self._mount(command, direct, origins)
            if killed is not None:
                return killed
        watch = self.watches.begins(command.run, workflow.jobs[command.job].job_type)
        is_a_tenants = self.surroundings.is_a_tenants(command.run)
        spec = attempt_spec(command, workflow, env or {}, origins, unprivileged=is_a_tenants, watch=watch)
        return await self.worker.run(spec)

    async def _again(self, command: cmd.StartAttempt) -> Ending:
        return await self._first(command)

    async def _given_up(self, command: cmd.StartAttempt) -> Ending:
        """Its host may be away for long."""
        self.tasks.start(f"the end of attempt {command.attempt}", self.worker.kill(command.attempt))
        return AttemptResult(attempt_id=command.attempt, outcome=Outcome.LOST)

    def _told(self, command: cmd.StartAttempt, ending: Ending) -> None:
        """That a worker ended while it was starting a job is no try of the job."""
        super()._told(command, uncounted(ending) if isinstance(ending, AttemptResult) else ending)

    def _ended(self, command: cmd.StartAttempt, ending: AttemptResult) -> None:
        self.steps.pop(command.attempt, None)
        super()._ended(command, ending)

    def _lose(self, command: cmd.StartAttempt) -> None:
        if (steps := self.steps.pop(command.attempt, None)) is not None:
            steps.cancel()
        self.parked.pop(command.attempt, None)
        self.waiting.pop(command.attempt, None)
        name = f"the end of attempt {command.attempt}"
        self.tasks.start(name, tried_until_done(name, lambda: self._close_lost(command)))

    async def _close_lost(self, command: cmd.StartAttempt) -> None:
        closed = await self.surroundings.close_attempt(command, ticketed=self.worker.was_ticketed(command))
        if closed is not None and closed.state == COMMITTED:
            self._told(command, made_of(command, closed))
            return
        self._told(command, AttemptResult(attempt_id=command.attempt, outcome=Outcome.LOST, fault=lost_fault(command.job)))

    def _cores_of(self, command: cmd.StartAttempt) -> int:
        return self.surroundings.workflow(command.run).jobs[command.job].cores


def spec_known(surroundings: Surroundings, command: cmd.StartAttempt) -> AttemptSpec:
    """With those of the submitter's variables that are known."""
    workflow, env = surroundings.workflow(command.run), surroundings.env(command.run)
    return attempt_spec(command, workflow, env or {}, unprivileged=surroundings.is_a_tenants(command.run))
