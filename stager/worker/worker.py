"""Runs attempts: stage in, run under the reaper, stage out, release; and finds them again after a crash.

May know: everything in this room. One rule: every step can be repeated. It reads from the attempt's directory what was done, in the order
outcome, result, lock, so that two calls for one attempt never run its job twice.

Errors: what befell the attempt is in its AttemptResult. A StagerError that is raised says that the node could not be asked;
`adopt` goes on once it can be.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stager.model.errors import SANDBOX_FULL_CODE, ErrorClass, Fault, InvalidInput, Refused, StagerError
from stager.model.keep_limits import KeepLimits
from stager.wire.node import Released
from stager.worker import direct_access, reaper
from stager.worker.attempt import AttemptResult, AttemptWaiting, Outcome, changed_fault, fault_of, lost_fault, measures_of
from stager.worker.captured import put_log
from stager.worker.container import environment_in
from stager.worker.environment import activation
from stager.worker.fullness import NO_SPACE, if_full, if_left_without_space, with_full
from stager.worker.hints import end_of, with_hint
from stager.worker.leftover import with_found
from stager.worker.members import members_of
from stager.worker.node_port import UNASKED_CODES, NodePort
from stager.worker.place import Place, log_paths, make_directory, packages_noted, publish_json, read_json, write_json
from stager.worker.reaper import Reaper
from stager.worker.removal import remove_tree
from stager.worker.spec import SCRATCH, AttemptSpec, InputAccess

if TYPE_CHECKING:
    from stager.worker.environments import Environments
    from stager.worker.images import Images

# Larger logs are copied in a thread, so that other attempts go on meanwhile.
INLINE_COPY_BYTES = 1 << 20
Ending = AttemptResult | AttemptWaiting


class Sight(StrEnum):
    """The state of an attempt as its directory alone shows it."""

    LIVING = "living"
    FINISHED = "finished"
    GONE = "gone"


class Worker:
    """`binary`: the absolute path of stager-ionode. `inherited`: what every job gets of our starter's environment (the allow-listed).
    `cgroup`: of reapers. `keep`: how much stays of what was made for jobs.
    """

    def __init__(
        self,
        state_dir: Path,
        node: NodePort,
        *,
        binary: str,
        inherited: Mapping[str, str],
        epoch: int = 0,
        cgroup: str = "",
        keep: KeepLimits | None = None,
    ) -> None:
        self.state_dir, self.node, self.binary, self.inherited, self.epoch = state_dir, node, binary, dict(inherited), epoch
        self.cgroup, self.keep = cgroup, keep or KeepLimits()
        self.reapers: dict[str, Reaper] = {}
        # Attempts between their first step and the start of their reaper; True: to be ended.
        self.starting: dict[str, bool] = {}

    async def run(self, spec: AttemptSpec) -> Ending:
        """From the start to the end, or to the wait for space. The same attempt again is `adopt`."""
        place = Place.of(self.state_dir, spec.attempt_id)
        if spec.attempt_id in self.starting or spec.attempt_id in self.reapers:
            raise Refused(f"attempt {spec.attempt_id} is running already", code="attempt_running", subject=spec.attempt_id)
        if read_json(place.attempt) is not None:
            return await self.adopt(spec.attempt_id)
        self.starting[spec.attempt_id] = False
        try:
            place.make()
            write_json(place.attempt, spec.to_json())
            started = await self._start(spec, place)
        finally:
            del self.starting[spec.attempt_id]
        if isinstance(started, AttemptResult):
            return await self.release(spec, place, started)
        try:
            code = await started.wait()
        finally:
            del self.reapers[spec.attempt_id]
        return await self._judge(spec, place, started, code)

    async def commit(self, attempt_id: str, reserve_bytes: int) -> Ending:
        """After AttemptWaiting: sets the reservation to this and goes on with the stage-out."""
        spec, place = self._known(attempt_id)
        done = read_json(place.outcome)
        if done is not None:
            return AttemptResult.from_json(done)
        result = read_json(place.result)
        if result is None:
            text = f"attempt {attempt_id} has no result yet, so nothing can be committed"
            raise Refused(text, code="attempt_unfinished", subject=attempt_id)
        await self.node.put_reservation(spec.reservation, reserve_bytes)
        return await self.finish(spec, place, result)

    def sight_of(self, attempt_id: str) -> Sight:
        """Without waiting and without changing anything."""
        place = Place.of(self.state_dir, attempt_id)
        if read_json(place.outcome) is not None or read_json(place.result) is not None:
            return Sight.FINISHED
        return Sight.LIVING if reaper.is_held(place.lock) else Sight.GONE

    async def adopt(self, attempt_id: str) -> Ending:
        """Takes up an attempt begun before a crash.

        Waits for a living one, finishes an ended one, gives up one that is gone and makes sure that it stays so.
        """
        place = Place.of(self.state_dir, attempt_id)
        done = read_json(place.outcome)
        if done is not None:
            return AttemptResult.from_json(done)
        if read_json(place.attempt) is None:
            return AttemptResult(attempt_id=attempt_id, outcome=Outcome.LOST, fault=lost_fault(attempt_id))
        spec, place = self._known(attempt_id)
        result = None
        while result is None:
            result = read_json(place.result) or await asyncio.to_thread(reaper.fence, place)
            if result is None:
                await reaper.wait_until_free(place.lock)
        return await self.finish(spec, place, result)

    async def kill(self, attempt_id: str) -> bool:
        """Asks the attempt's job to end; how it ended comes from `run` or `adopt`. False if there is nothing to end."""
        if attempt_id in self.starting:
            self.starting[attempt_id] = True
            return True
        mine = self.reapers.get(attempt_id)
        if mine is not None:
            mine.terminate()
            return True
        return await reaper.terminate_holder(Place.of(self.state_dir, attempt_id).lock)

    def end_all(self) -> None:
        """Of those that this process started: asks their jobs to end. For an end after which nobody takes up any of them."""
        for mine in self.reapers.values():
            mine.terminate()

    async def abandon(self, attempt_id: str) -> AttemptResult:
        """For an attempt that waits for space and shall not get it: its outputs go with its sandbox."""
        spec, place = self._known(attempt_id)
        done = read_json(place.outcome)
        if done is not None:
            return AttemptResult.from_json(done)
        if reaper.is_held(place.lock) or attempt_id in self.starting or attempt_id in self.reapers:
            raise Refused(f"attempt {attempt_id} is running; end it first", code="attempt_running", subject=attempt_id)
        return await self.release(spec, place, self._result(spec, {"outcome": "killed"}, None))

    def forget(self, attempt_id: str) -> None:
        """Drops the attempt's directory, not its logs. For an attempt whose end is recorded elsewhere."""
        Place.of(self.state_dir, attempt_id).drop()

    def _known(self, attempt_id: str) -> tuple[AttemptSpec, Place]:
        place = Place.of(self.state_dir, attempt_id)
        said = read_json(place.attempt)
        try:
            return AttemptSpec.from_json(said or {}), place
        except (KeyError, TypeError, ValueError) as problem:
            text = f"nothing is known of attempt {attempt_id} in {self.state_dir}: {problem}"
            raise InvalidInput(text, code="attempt_unknown", subject=attempt_id) from problem

    async def _start(self, spec: AttemptSpec, place: Place) -> Reaper | AttemptResult:
        try:
            staged = await self.node.stage_in(spec.attempt_id, stage_in_body(spec, place))
        except StagerError as problem:
            return failed(spec, direct_access.not_staged(spec, problem) or unless_unasked(problem))
        if self.starting[spec.attempt_id]:
            return self._result(spec, {"outcome": "killed"}, staged.copied_bytes)
        container, packages = None, ""
        if spec.image is not None or spec.lock is not None:
            try:
                if spec.image is not None:
                    container = await self.images.container_of(spec, spec.image, place, staged)
                if spec.lock is not None:
                    packages = await self.environments.environment_of(spec, spec.lock, place, staged)
            except StagerError as problem:
                return failed(spec, problem.fault())
            if self.starting[spec.attempt_id]:
                return self._result(spec, {"outcome": "killed"}, staged.copied_bytes)
        try:
            logs = self._prepare(spec, place)
            env = environment_in(spec, place, self.inherited, container, packages)
            mounts = msgspec.to_builtins(staged.mounts)
            activated = replace(spec, argv=(*activation(packages), *spec.argv)) if packages else spec
            orders = reaper.reaper_spec(activated, place, env, mounts, logs, self.epoch, container)
            started = self.reapers[spec.attempt_id] = Reaper(self.binary, orders, logs[1], self.cgroup)
            started.copied_bytes = staged.copied_bytes
        except OSError as problem:
            text = f"job {spec.job_id!r} could not be started: {problem}"
            return failed(spec, Fault(ErrorClass.TRANSIENT, "start_failed", text, spec.job_id))
        return started

    @cached_property
    def images(self) -> Images:
        # Few jobs have any, and others begin sooner without this.
        from stager.worker.images import Images

        return Images(self.state_dir, self.keep.images_bytes)

    @cached_property
    def environments(self) -> Environments:
        # As with images.
        from stager.worker.environments import Environments

        return Environments(self.state_dir, self.keep.environments_bytes)

    def _prepare(self, spec: AttemptSpec, place: Place) -> tuple[str, str]:
        os.mkdir(f"{place.sandbox}/{SCRATCH}", 0o700)
        # What outputs go into is there, as in other workflow systems; a directory that is itself an output is not.
        parents = {os.path.dirname(entry.path) for entry in spec.outputs} | {spec.cwd}
        for directory in sorted(filter(None, parents)):
            make_directory(f"{place.sandbox}/{directory}")
        logs = log_paths(self.state_dir, spec)
        directory = os.path.dirname(logs[0])
        if not os.path.isdir(directory):
            os.makedirs(directory, 0o700, exist_ok=True)
        return logs

    async def _judge(self, spec: AttemptSpec, place: Place, started: Reaper, code: int) -> Ending:
        """Judges by the reaper's own exit code; its result says the rest."""
        if code == reaper.EXIT_TAKEN:
            return await self.adopt(spec.attempt_id)
        result = read_json(place.result)
        if result is not None:
            return await self.finish(spec, place, result, started.copied_bytes)
        if code in (reaper.EXIT_USAGE, reaper.EXIT_NO_RESULT):
            kind = ErrorClass.INVALID_INPUT if code == reaper.EXIT_USAGE else ErrorClass.TRANSIENT
            said = last_line(log_paths(self.state_dir, spec)[1])
            ended = failed(spec, Fault(kind, "start_failed", said, spec.job_id))
            if code == reaper.EXIT_NO_RESULT:
                # Its job has run, and most often filled the disk.
                ended = await asyncio.to_thread(if_left_without_space, spec, place, ended)
            return await self.release(spec, place, ended)
        # Killed; a TERM right at its start ends it before it waits for any.
        result = {"outcome": "killed"} if started.asked_to_end else reaper.FENCED
        return await self.finish(spec, place, result)

    async def finish(self, spec: AttemptSpec, place: Place, result: Mapping[str, Any], copied_bytes: int | None = None) -> Ending:
        """The job has ended. Repeatable: stage-out and release are idempotent on the node."""
        ended = self._result(spec, result, copied_bytes)
        if ended.outcome is not Outcome.OK:
            ended = with_hint(spec, ended, result, packages_noted(place))
            return await self.release(spec, place, await asyncio.to_thread(if_full, spec, place, result, ended))
        try:
            await self._settle_sandbox(spec, place)
            members = await asyncio.to_thread(members_of, spec, place) if spec.members else {}
        except (StagerError, OSError) as problem:
            text = f"the outputs of job {spec.job_id!r} could not be gathered: {problem}"
            fault = problem.fault() if isinstance(problem, StagerError) else Fault(ErrorClass.TRANSIENT, "io_error", text, spec.job_id)
            if isinstance(problem, OSError) and problem.errno in NO_SPACE:
                return await self.release(spec, place, with_full(spec, place, ended, text))
            return await self.release(spec, place, replace(ended, outcome=Outcome.FAILED, fault=fault))
        try:
            taken = await self.node.stage_out(spec.attempt_id, stage_out_body(spec, place))
        except StagerError as problem:
            if problem.code == "exceeds_reservation":
                return AttemptWaiting(spec.attempt_id, int(str(problem.details["needed_bytes"])), ended.measures)
            fault = unless_unasked(problem)
            if fault.code == "outputs_missing":
                fault = await asyncio.to_thread(with_found, fault, spec, place)
            return await self.release(spec, place, replace(ended, outcome=Outcome.FAILED, fault=fault))
        outputs, undeclared = tuple(msgspec.to_builtins(each) for each in taken.outputs), tuple(taken.undeclared)
        ended = replace(ended, outputs=outputs, undeclared=undeclared, undeclared_count=taken.undeclared_count, members=members)
        return await self.release(spec, place, ended, taken.released)

    async def _settle_sandbox(self, spec: AttemptSpec, place: Place) -> None:
        """Scratch goes, captured output comes. After a crash past the commit the sandbox may be gone; the node knows."""
        if not os.path.isdir(place.sandbox):
            return
        scratch = f"{place.sandbox}/{SCRATCH}"
        try:
            os.rmdir(scratch)
        except OSError:
            await asyncio.to_thread(remove_tree, scratch)
        for log, path in zip(log_paths(self.state_dir, spec), (spec.stdout, spec.stderr), strict=True):
            if path and os.path.getsize(log) > INLINE_COPY_BYTES:
                await asyncio.to_thread(put_log, log, place.sandbox, path)
            elif path:
                put_log(log, place.sandbox, path)

    async def release(self, spec: AttemptSpec, place: Place, ended: AttemptResult, released: Released | None = None) -> AttemptResult:
        """Ends the leases, unless the stage-out did, and the sandbox if nobody wants to look at it; then the attempt is over."""
        keep = spec.keep_failed_sandbox and ended.outcome is Outcome.FAILED and not is_full(ended)
        try:
            if released is None:
                released = await self.node.release(spec.attempt_id, release_body(spec, place, keep_sandbox=keep))
            changed, direct = released.changed, released.direct
        except StagerError as problem:
            changed, direct, ended = [], None, replace(ended, release_fault=unless_unasked(problem))
        if is_full(ended):
            # The next try begins without what no job uses. Few disks are full.
            from stager.worker.collecting import give_way

            await give_way(self)
        ended = direct_access.judged(spec, ended, direct)
        if changed:
            ended = self._tainted(spec, ended, tuple((entry.file_id, entry.generation) for entry in changed))
        publish_json(place.outcome, ended.to_json())
        return ended

    def _tainted(self, spec: AttemptSpec, ended: AttemptResult, changed: tuple[tuple[str, str], ...]) -> AttemptResult:
        paths = {(entry.file_id, entry.generation): entry.path for entry in spec.inputs}
        fault = changed_fault(spec.job_id, [paths.get(key, key[0]) for key in changed])
        return replace(
            ended, outcome=Outcome.FAILED, fault=fault, outputs=(), void_outputs=ended.void_outputs or ended.outputs, changed_inputs=changed
        )

    def _result(self, spec: AttemptSpec, result: Mapping[str, Any], copied_bytes: int | None) -> AttemptResult:
        stdout, stderr = log_paths(self.state_dir, spec)
        outcome, fault = fault_of(result, spec.job_id, spec.run_id)
        return AttemptResult(
            attempt_id=spec.attempt_id,
            outcome=outcome,
            fault=fault,
            exit_code=result.get("exit_code"),
            signal=result.get("signal"),
            measures=measures_of(result, copied_bytes),
            stdout_path=stdout,
            stderr_path=stderr,
            started_at_s=result.get("started_at_s"),
            isolation=result.get("isolation") or "",
            opened=tuple(result.get("opened", ())),
            opened_count=result.get("opened_count") or 0,
        )


def stage_in_body(spec: AttemptSpec, place: Place) -> dict[str, Any]:
    """With the reservation for the outputs; none where nothing is to be kept free, or where the caller looks after it."""
    reservation = {"id": spec.reservation, "bytes": spec.reserve_bytes} if spec.reserve_bytes else None
    inputs, direct = [entry.to_wire() for entry in spec.inputs], [entry.to_wire() for entry in spec.direct]
    return {"sandbox_dir": place.sandbox, "inputs": inputs, "direct": direct, "reservation": reservation}


def stage_out_body(spec: AttemptSpec, place: Place) -> dict[str, Any]:
    """With the release: an attempt whose outputs are taken has no more use for its sandbox."""
    return {
        "sandbox_dir": place.sandbox,
        "reservation_id": spec.reservation,
        "outputs": [entry.to_wire() for entry in spec.outputs],
        "mounts": [*(entry.path for entry in spec.inputs if entry.access is InputAccess.LINK), *(entry.path for entry in spec.direct)],
        # What the job was given is no output that somebody forgot to declare.
        "keep": [entry.path for entry in spec.inputs if entry.access is InputAccess.COPY],
        "want_sha256": spec.want_sha256,
        "release": release_body(spec, place, keep_sandbox=False),
    }


def release_body(spec: AttemptSpec, place: Place, *, keep_sandbox: bool) -> dict[str, Any]:
    reservation = spec.reservation if spec.reserve_bytes is not None else None
    return {"sandbox_dir": place.sandbox, "remove_sandbox": not keep_sandbox, "reservation_id": reservation}


def failed(spec: AttemptSpec, fault: Fault) -> AttemptResult:
    """Before the job could run."""
    return AttemptResult(attempt_id=spec.attempt_id, outcome=Outcome.FAILED, fault=fault)


def unless_unasked(problem: StagerError) -> Fault:
    """The fault of an answer; raised again if there was none, since then nothing is known of the attempt's end."""
    if problem.code in UNASKED_CODES:
        raise problem
    return problem.fault()


def is_full(ended: AttemptResult) -> bool:
    """The next try needs the space of its sandbox."""
    return ended.fault is not None and ended.fault.code == SANDBOX_FULL_CODE


def last_line(path: str) -> str:
    """A job may have written any amount before it."""
    return end_of(path).decode(errors="replace").strip().rpartition("\n")[2] or "the reaper ended without a word"
