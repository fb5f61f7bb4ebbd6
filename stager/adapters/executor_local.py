"""Attempts: what the Machine started, carried out by a worker; what became of it, as events. Here by the worker of this host.

May know: the worker, the Machine's commands and events. One rule: an attempt ends with exactly one AttemptEnded; while its node cannot be
asked it has not ended, and is taken up again once it can be.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from stager.adapters import executor_kept
from stager.adapters.attempt_notes import NOT_ISOLATED, Watches, directories_of, notes_of, told_once
from stager.adapters.executor_kept import Keeper
from stager.model.errors import Fault, StagerError
from stager.model.ids import produced_file_id
from stager.model.workflow import Job, Workflow
from stager.planning.plan import Access
from stager.ports import Put
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.tasks import AFTER_DEFECT_S, Tasks
from stager.worker import (
    AttemptInput,
    AttemptOutput,
    AttemptResult,
    AttemptSpec,
    AttemptWaiting,
    DirectInput,
    InputAccess,
    KeptSandboxes,
    MembersIn,
    Outcome,
    Place,
    Sight,
    Worker,
)
from stager.worker.attempt import NOT_BEGUN_CODE
from stager.worker.node_port import UNASKED_CODES
from stager.worker.place import read_json

log = logging.getLogger(__name__)
ASK_AGAIN_S = 0.2
FORGET_AFTER_S = 0.2
Ending = AttemptResult | AttemptWaiting


class Surroundings(executor_kept.Surroundings, Protocol):
    """The facts about its scheduler that the executor needs."""

    def workflow(self, run: str) -> Workflow: ...

    def is_a_tenants(self, run: str) -> bool:
        """Submitted through a service: whose jobs may not do what the service's user may as root."""

    def env(self, run: str) -> Mapping[str, str] | None:
        """The submitter's variables; None if a restart forgot them."""

    async def reachable(self, node: str) -> bool:
        """Returns once the node can be asked. False: it never can be, since it is gone for good."""

    async def mounted(self, node: str, run: str, origin: str, path: str) -> str:
        """The id at the node of the run's origin, mounted there so that `path` can be read directly. Raises StagerError."""

    def at(self, wall: float) -> float:
        """The scheduler's time of a moment that the wall clock stamped."""


class AttemptWorker(Protocol):
    """The steps of an attempt, each of which can be repeated (stager/worker/worker.py). A StagerError that is raised says that the attempt
    could not be asked about.
    """

    async def run(self, spec: AttemptSpec) -> Ending: ...
    async def adopt(self, attempt_id: str) -> Ending: ...
    async def commit(self, attempt_id: str, reserve_bytes: int) -> Ending: ...
    async def abandon(self, attempt_id: str) -> AttemptResult: ...
    async def kill(self, attempt_id: str) -> bool: ...


class AttemptExecutor:
    """On the event loop's thread. Where attempts are is for those below to know."""

    def __init__(self, worker: AttemptWorker, put: Put, surroundings: Surroundings, kept_sandboxes: KeptSandboxes | None = None) -> None:
        """`kept_sandboxes`: where sandboxes of jobs that failed are kept; None: none is."""
        self.worker, self.put, self.surroundings = worker, put, surroundings
        self.tasks = Tasks()
        self.keeper = Keeper(kept_sandboxes, surroundings, self.tasks) if kept_sandboxes is not None else None
        self.started: dict[str, cmd.StartAttempt] = {}
        self.waiting: dict[str, int] = {}
        self.granted: dict[str, int] = {}
        self.parked: dict[str, cmd.StartAttempt] = {}
        # Attempts that wait for a mount, and those that are to be ended: a node that is away meanwhile changes nothing about that.
        self.mounting: set[str] = set()
        self.called_off: set[str] = set()
        # Attempts that were begun before a restart.
        self.found: set[str] = set()
        self.over: list[str] = []
        # Runs of which it was told that their jobs are not isolated.
        self.bare: set[str] = set()
        self.watches = Watches()

    def start(self, command: cmd.StartAttempt) -> None:
        """One that was begun before a restart is taken up. A new one whose submitter's variables a restart forgot waits for `unpark`."""
        self.started[command.attempt] = command
        wants_env = self.surroundings.workflow(command.run).jobs[command.job].env_pass
        if self.was_begun(command.attempt):
            self.found.add(command.attempt)
        elif wants_env and self.surroundings.env(command.run) is None:
            self.parked[command.attempt] = command
            return
        self._go_on(command, self._first(command))

    def was_begun(self, attempt: str) -> bool:
        raise NotImplementedError

    async def drop(self, attempts: Sequence[str]) -> None:
        """What they left, their logs not."""
        raise NotImplementedError

    def unpark(self, run: str) -> None:
        for attempt in [attempt for attempt, command in self.parked.items() if command.run == run]:
            self.start(self.parked.pop(attempt))

    def grant(self, command: cmd.GrantSpace) -> None:
        self.granted[command.attempt] = command.reserve_bytes
        start = self.started.get(command.attempt)
        if start is not None and self.waiting.pop(command.attempt, None) is not None:
            self._go_on(start, self.worker.commit(command.attempt, command.reserve_bytes))

    def kill(self, command: cmd.KillAttempt) -> None:
        start = self.started.get(command.attempt)
        if start is None:
            return
        self.called_off.add(command.attempt)
        if self.parked.pop(command.attempt, None) is not None:
            self._told(start, AttemptResult(attempt_id=start.attempt, outcome=Outcome.KILLED))
        elif command.attempt in self.mounting:
            return
        elif self.waiting.pop(command.attempt, None) is not None:
            self._go_on(start, self.worker.abandon(command.attempt))
        else:
            self.tasks.start(f"the end of attempt {command.attempt}", self.worker.kill(command.attempt))

    async def close(self) -> None:
        """Stops watching; the attempts live on under their reapers and are adopted by the next scheduler."""
        await self.tasks.close()
        await self._forget_all()

    def _go_on(self, command: cmd.StartAttempt, steps: Coroutine[Any, Any, Ending]) -> None:
        self.tasks.start(f"attempt {command.attempt}", self._until_ended(command, steps))

    async def _until_ended(self, command: cmd.StartAttempt, steps: Coroutine[Any, Any, Ending]) -> None:
        """A StagerError that is raised says that the node could not be asked, and nothing about the attempt."""
        while True:
            try:
                ending = await steps
                break
            except StagerError as problem:
                if problem.error_class == "invalid_input":
                    ending = not_startable(command, problem.fault())
                    break
                log.info("attempt %s: %s; it is looked at again once the node answers", command.attempt, problem.message)
                await asyncio.sleep(ASK_AGAIN_S)
                if not await self.surroundings.reachable(command.node):
                    ending = await self._given_up(command)
                    break
                steps = self._again(command)
            except Exception:
                # Else nobody would ask about it any more, and its run would never end.
                log.exception("attempt %s: a defect of stager; it is looked at again in %.0f s", command.attempt, AFTER_DEFECT_S)
                await asyncio.sleep(AFTER_DEFECT_S)
                steps = self._again(command)
        if isinstance(ending, AttemptResult):
            try:
                await self.before_told(command, ending)
            except Exception:
                log.exception("attempt %s has ended, and what goes before that is told has failed", command.attempt)
        self._told(command, ending)

    async def before_told(self, command: cmd.StartAttempt, ending: AttemptResult) -> None:
        if self.keeper is not None:
            await self.keeper.free_space(ending)

    def _told(self, command: cmd.StartAttempt, ending: Ending) -> None:
        if isinstance(ending, AttemptWaiting):
            granted = self.granted.pop(command.attempt, 0)
            if granted >= ending.needed_bytes:
                self._go_on(command, self.worker.commit(command.attempt, granted))
                return
            self.waiting[command.attempt] = ending.needed_bytes
            self.put(ev.AttemptWaits(at=0.0, cause=command.id, attempt=command.attempt, needed_bytes=ending.needed_bytes))
            return
        self.started.pop(command.attempt, None)
        self.granted.pop(command.attempt, None)
        self.called_off.discard(command.attempt)
        if command.attempt in self.found:
            self.found.discard(command.attempt)
            ending = uncounted(ending)
        if ending.release_fault is not None:
            log.warning("attempt %s of job %s: %s", command.attempt, command.job, ending.release_fault.message)
        event = ended_event(command, ending, self.surroundings.workflow(command.run), self.surroundings.at)
        if NOT_ISOLATED in event.notes:
            event = told_once(event, self.bare)
        self.put(event, lambda: self._ended(command, ending))

    def _ended(self, command: cmd.StartAttempt, ending: AttemptResult) -> None:
        """Its end is in the journal. The sandbox of one that failed is kept before anybody is told."""
        if self.keeper is None or not self.keeper.takes(command, ending):
            self._forget(command.attempt)

    def _forget(self, attempt: str) -> None:
        """In a thread, together with the next: a directory takes longer to remove than an attempt to start."""
        self.over.append(attempt)
        if len(self.over) == 1:
            self.tasks.start("the removal of what attempts left", self._forget_soon())

    async def _forget_soon(self) -> None:
        await asyncio.sleep(FORGET_AFTER_S)
        await self._forget_all()

    async def _forget_all(self) -> None:
        over, self.over = self.over, []
        if over:
            await self.drop(over)

    async def _first(self, command: cmd.StartAttempt) -> Ending:
        origins: dict[str, str] = {}
        direct = {entry.origin: entry.origin_path for entry in command.inputs if entry.access is Access.DIRECT}
        if direct and not self.was_begun(command.attempt):
            killed = await self._mount(command, direct, origins)
            if killed is not None:
                return killed
        workflow = self.surroundings.workflow(command.run)
        env = self.surroundings.env(command.run) or {}
        is_a_tenants = self.surroundings.is_a_tenants(command.run)
        # No tenant may have a shell on the service's machine, so theirs are not kept.
        keeps = self.keeper is not None and not is_a_tenants
        watch = self.watches.begins(command.run, workflow.jobs[command.job].job_type)
        spec = attempt_spec(command, workflow, env, origins, unprivileged=is_a_tenants, keep_failed_sandbox=keeps, watch=watch)
        return await self.worker.run(spec)

    async def _mount(self, command: cmd.StartAttempt, direct: Mapping[str, str], origins: dict[str, str]) -> AttemptResult | None:
        """Mounts the origins from which the attempt reads directly, before it begins. An end: it was called off meanwhile, or cannot be
        had. Raises StagerError where the node could not be asked.
        """
        killed = AttemptResult(attempt_id=command.attempt, outcome=Outcome.KILLED)
        if command.attempt in self.called_off:
            return killed
        self.mounting.add(command.attempt)
        try:
            for origin, path in direct.items():
                origins[origin] = await self.surroundings.mounted(command.node, command.run, origin, path)
        except StagerError as problem:
            if problem.code in UNASKED_CODES:
                raise
            return not_startable(command, problem.fault())
        finally:
            self.mounting.discard(command.attempt)
        return killed if command.attempt in self.called_off else None

    async def _again(self, command: cmd.StartAttempt) -> Ending:
        """One that was still waiting for a mount never began."""
        direct = any(entry.access is Access.DIRECT for entry in command.inputs)
        if direct and not self.was_begun(command.attempt):
            return await self._first(command)
        return await self.worker.adopt(command.attempt)

    async def _given_up(self, command: cmd.StartAttempt) -> Ending:
        """Its node is gone, so that nothing of it can be committed: it ends here, whatever it was about to do."""
        await self.worker.kill(command.attempt)
        return AttemptResult(attempt_id=command.attempt, outcome=Outcome.LOST)


class LocalExecutor(AttemptExecutor):
    """Of attempts on this host."""

    worker: Worker

    def __init__(self, worker: Worker, put: Put, surroundings: Surroundings, kept_sandboxes: KeptSandboxes | None = None) -> None:
        super().__init__(worker, put, surroundings, kept_sandboxes)

    def was_begun(self, attempt: str) -> bool:
        return read_json(Place.of(self.worker.state_dir, attempt).attempt) is not None

    async def drop(self, attempts: Sequence[str]) -> None:
        def forget() -> None:
            for attempt in attempts:
                self.worker.forget(attempt)

        await asyncio.to_thread(forget)

    async def sweep(self, outstanding: Container[str]) -> None:
        """Clears away the leftovers of a crash: attempts whose end is recorded."""
        attempts = self.worker.state_dir / "attempts"
        for attempt in await asyncio.to_thread(os.listdir, attempts) if attempts.is_dir() else ():
            if attempt in outstanding:
                continue
            if self.worker.sight_of(attempt) is Sight.LIVING:
                await self.worker.kill(attempt)
            elif self.keeper is None or not await self.keeper.found(attempt):
                await asyncio.to_thread(self.worker.forget, attempt)
        if self.keeper is not None:
            await self.keeper.trim()


def attempt_spec(
    command: cmd.StartAttempt,
    workflow: Workflow,
    passed: Mapping[str, str],
    origins: Mapping[str, str] = MappingProxyType({}),
    *,
    unprivileged: bool = False,
    keep_failed_sandbox: bool = False,
    watch: bool = False,
) -> AttemptSpec:
    """Declared variables win over passed ones. `origins`: what the node calls those where something is read directly. Raises InvalidInput
    if the job names what lies outside its sandbox.
    """
    job = workflow.jobs[command.job]
    env = {name: passed[name] for name in job.env_pass if name in passed} | dict(job.env)
    declared = {output.path for output in job.outputs}
    origins_here = tuple(directories_of(workflow).values()) if job.isolate else ()
    return AttemptSpec(
        attempt_id=command.attempt,
        run_id=command.run,
        job_id=job.id,
        number=command.number,
        argv=job.command,
        env=env,
        inputs=tuple(
            AttemptInput(entry.file, entry.generation, entry.path, InputAccess(entry.access.value))
            for entry in command.inputs
            if entry.access is not Access.DIRECT
        ),
        direct=tuple(
            DirectInput(entry.path, origins[entry.origin], entry.origin_path, entry.size_bytes, entry.token)
            for entry in command.inputs
            if entry.access is Access.DIRECT and entry.origin in origins
        ),
        outputs=outputs_of(command, job, workflow),
        reservation_id=command.attempt,
        reserve_bytes=command.reserve_bytes,
        stdin=job.stdin,
        stdout=job.stdout if job.stdout in declared else None,
        stderr=job.stderr if job.stderr in declared else None,
        timeout_s=job.timeout_s,
        want_sha256=any(workflow.files[output.lfn].sha256 for output in job.outputs),
        keep_failed_sandbox=keep_failed_sandbox,
        unprivileged=unprivileged,
        isolate=job.isolate,
        origins=origins_here,
        watch=watch and job.isolate,
        memory_limit_bytes=job.memory_limit_bytes,
        members=tuple(MembersIn(each.name, each.over, each.keys, each.form) for each in workflow.scatters if each.maker == job.id),
    )


def outputs_of(command: cmd.StartAttempt, job: Job, workflow: Workflow) -> tuple[AttemptOutput, ...]:
    return tuple(
        AttemptOutput(
            produced_file_id(command.run, output.lfn), command.attempt, output.path, workflow.files[output.lfn].kind, output.optional
        )
        for output in job.outputs
    )


def uncounted(ended: AttemptResult) -> AttemptResult:
    """That the scheduler before this one ended while it was starting a job is no try of the job."""
    not_begun = ended.fault is not None and ended.fault.code == NOT_BEGUN_CODE
    return replace(ended, outcome=Outcome.KILLED) if not_begun else ended


def not_startable(command: cmd.StartAttempt, fault: Fault) -> AttemptResult:
    return AttemptResult(attempt_id=command.attempt, outcome=Outcome.FAILED, fault=fault)


def ended_event(command: cmd.StartAttempt, ended: AttemptResult, workflow: Workflow, at: Callable[[float], float]) -> ev.AttemptEnded:
    """Outputs that turned out void are named too: the Machine has them deleted."""
    lfns: dict[str, str] = {produced_file_id(command.run, output.lfn): output.lfn for output in workflow.jobs[command.job].outputs}
    made = ended.outputs if ended.outcome is Outcome.OK else (*ended.outputs, *ended.void_outputs)
    measures = ended.measures
    cpu_s = None if measures.cpu_user_s is None or measures.cpu_system_s is None else measures.cpu_user_s + measures.cpu_system_s
    return ev.AttemptEnded(
        at=0.0,
        cause=command.id,
        run=command.run,
        job=command.job,
        attempt=command.attempt,
        outcome=ev.Outcome(ended.outcome.value),
        fault=ended.fault,
        exit_code=ended.exit_code,
        outputs=tuple(output_made(lfns, entry) for entry in made),
        measures=ev.Measures(
            wall_s=measures.wall_s,
            cpu_s=cpu_s,
            memory_peak_bytes=measures.memory_peak_bytes,
            read_bytes=first_seen(measures.chars_read, measures.read_bytes),
            written_bytes=first_seen(measures.chars_written, measures.written_bytes),
        ),
        undeclared=ended.undeclared,
        notes=notes_of(ended, workflow.jobs[command.job], workflow),
        fitted_bytes=ended.fitted_bytes,
        members={name: tuple([tuple(values) for values in rows]) for name, rows in ended.members.items()},
        made_at=None if ended.started_at_s is None or measures.wall_s is None else at(ended.started_at_s + measures.wall_s),
    )


def first_seen(*values: int | None) -> int | None:
    """Bytes that went through read calls say more of a job than those that reached a disk."""
    return next((value for value in values if value is not None), None)


def output_made(lfns: Mapping[str, str], entry: Mapping[str, Any]) -> ev.OutputMade:
    return ev.OutputMade(
        lfn=lfns.get(entry["file_id"], ""),
        file=entry["file_id"],
        generation=entry["generation"],
        size_bytes=entry["size_bytes"],
        blake3=entry["blake3"],
        sha256=entry["sha256"] or "",
        executable=entry["executable"],
    )
