"""Attempts of jobs that a foreign engine runs, and all ways of carrying out attempts as one.

May know: the worker, the executor of our own jobs, the Machine's commands. One rule: the same as there: an attempt ends with exactly one
AttemptEnded; what the engine said is on disk before it is answered, so that a scheduler that dies in between takes it up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, cast

from stager.adapters.executor_local import AttemptExecutor, Ending, LocalExecutor, Surroundings, outputs_of
from stager.model.tenants import tenant_of_host
from stager.model.topology import HERE
from stager.planning.plan import Access
from stager.ports import Put
from stager.scheduler import commands as cmd
from stager.worker import AttemptInput, AttemptSpec, Called, InputAccess, Place, Worker
from stager.worker.called import KILLED

if TYPE_CHECKING:
    from stager.adapters import executor_dask
    from stager.adapters.executor_dask import DaskExecutor
    from stager.adapters.host_workers import HostPool

log = logging.getLogger(__name__)


class EngineExecutor(LocalExecutor):
    """On the event loop's thread."""

    def __init__(self, worker: Worker, put: Put, surroundings: Surroundings, staged: Callable[[], None]) -> None:
        super().__init__(worker, put, surroundings)
        self.called = Called(worker, staged)

    def start(self, command: cmd.StartAttempt) -> None:
        self.started[command.attempt] = command
        self._go_on(command, self._first(command))

    def kill(self, command: cmd.KillAttempt) -> None:
        """A take that is under way is not stopped: the Machine knows whether to believe it."""
        start = self.started.get(command.attempt)
        if start is None:
            return
        if self.waiting.pop(command.attempt, None) is not None:
            self._go_on(start, self.worker.abandon(command.attempt))
        else:
            Place.of(self.worker.state_dir, command.attempt).make()
            self.called.tell(command.attempt, KILLED)

    async def _first(self, command: cmd.StartAttempt) -> Ending:
        return await self.called.run(called_spec(command, self.surroundings))

    async def _again(self, command: cmd.StartAttempt) -> Ending:
        return await self._first(command)


def called_spec(command: cmd.StartAttempt, surroundings: Surroundings) -> AttemptSpec:
    """An input that is only held is read on its node. There is no program of stager's: the engine's name stands for it."""
    workflow = surroundings.workflow(command.run)
    job = workflow.jobs[command.job]
    copied = [entry for entry in command.inputs if entry.access is Access.COPY]
    return AttemptSpec(
        attempt_id=command.attempt,
        run_id=command.run,
        job_id=job.id,
        number=command.number,
        argv=(workflow.engine,),
        inputs=tuple(AttemptInput(entry.file, entry.generation, entry.path, InputAccess.COPY) for entry in copied),
        outputs=outputs_of(command, job, workflow),
        reservation_id=command.attempt,
        reserve_bytes=command.reserve_bytes,
        want_sha256=any(workflow.files[output.lfn].sha256 for output in job.outputs),
    )


class Executors:
    """The port of the world: each attempt is carried out as its run's workflow says, and where its command says. `hosts` None: this
    scheduler has no pool. `of_tenants`: on the hosts of tenants' pools, made by `make` when the first is spoken of.
    """

    def __init__(
        self,
        local: LocalExecutor,
        engine: EngineExecutor,
        surroundings: Surroundings,
        hosts: DaskExecutor | None = None,
        make: Callable[[str], DaskExecutor] | None = None,
    ) -> None:
        self.local, self.engine, self.hosts, self.surroundings, self.make = local, engine, hosts, surroundings, make
        self.of_tenants: dict[str, DaskExecutor] = {}
        # Where attempts of a pool are outstanding that this scheduler does not have.
        self.hostless: AttemptExecutor | None = None

    @property
    def all(self) -> list[AttemptExecutor]:
        return [*(each for each in (self.local, self.engine, self.hosts, self.hostless) if each is not None), *self.of_tenants.values()]

    @property
    def on_hosts(self) -> list[DaskExecutor]:
        return [*([self.hosts] if self.hosts is not None else []), *self.of_tenants.values()]

    def of_tenant(self, tenant: str) -> DaskExecutor | None:
        """None: this scheduler knows of no pools of tenants."""
        found = self.of_tenants.get(tenant)
        if found is None and self.make is not None:
            found = self.of_tenants[tenant] = self.make(tenant)
            found.tasks.start(f"the pool of {tenant}", found.open())
        return found

    def beside(self, host: str) -> DaskExecutor | None:
        """That of attempts on this host; None: of no pool that this scheduler has."""
        tenant = tenant_of_host(host)
        return self.of_tenant(tenant) if tenant else self.hosts

    def is_started(self, attempt: str) -> bool:
        return any(attempt in each.started for each in self.all)

    def start(self, command: cmd.StartAttempt) -> None:
        if self.surroundings.workflow(command.run).engine:
            self.engine.start(command)
        elif command.host in ("", HERE):
            self.local.start(command)
        elif (there := self.beside(command.host)) is not None:
            there.start(command)
        else:
            self._hostless().start(command)

    def grant(self, command: cmd.GrantSpace) -> None:
        self._of(command.attempt).grant(command)

    def kill(self, command: cmd.KillAttempt) -> None:
        self._of(command.attempt).kill(command)

    def host_gone(self, host: str) -> None:
        if (there := self.beside(host)) is not None:
            there.host_gone(host)

    def node_is_there(self, node: str) -> None:
        for each in self.on_hosts:
            each.node_is_there(node)

    def pool_of(self, tenant: str) -> HostPool | None:
        """The pool whose hosts its jobs run on; None: they run here."""
        its = self.of_tenants.get(tenant)
        its = its if its is not None and its.worker.pool.address else self.hosts
        return its.worker.pool if its is not None else None

    async def bring_logs(self, run: str, job: str) -> None:
        for each in self.on_hosts:
            await each.bring_logs(run, job)

    def parked(self, run: str) -> int:
        """How many of its attempts wait for the submitter's variables."""
        return sum(command.run == run for each in self.all for command in each.parked.values())

    def unpark(self, run: str) -> None:
        for each in self.all:
            each.unpark(run)

    def end_all(self) -> None:
        """Programs and all: nobody comes after this."""
        self.local.worker.end_all()

    async def sweep(self, outstanding: Container[str]) -> None:
        await self.local.sweep(outstanding)
        for each in self.on_hosts:
            await each.sweep(outstanding)

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self.all))

    def _hostless(self) -> AttemptExecutor:
        if self.hostless is None:
            # Most schedulers never had a pool, and start sooner without this.
            from stager.adapters.executor_hostless import HostlessExecutor

            self.hostless = HostlessExecutor(self.local.put, cast("executor_dask.Surroundings", self.surroundings))
        return self.hostless

    def _of(self, attempt: str) -> AttemptExecutor:
        return next((each for each in self.all if attempt in each.started), self.local)
