"""The environments of packages of this host's jobs: each made once of its lock file, kept from then on, and used by all jobs that name it.

May know: one directory, the program that makes them. One rule: an attempt has noted that it uses one before its job begins.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from stager.model.errors import ErrorClass, Fault, Transient, error_from
from stager.model.workflow import CONDA_PATH, VENV_PATH
from stager.wire.node import StagedIn
from stager.worker.environment_tree import DIRECTORY, taken
from stager.worker.images import image_path
from stager.worker.installing import NOT_MADE_CODE
from stager.worker.place import Place
from stager.worker.spec import AttemptInput, AttemptSpec

Key = tuple[str, str, str]
# As make_environment calls what a lock file is for, by where the job finds it.
KINDS = {VENV_PATH: "venv", CONDA_PATH: "conda"}
# Many jobs have the same lock file, and one that does not do takes each of them seconds to find out.
FAULT_KEPT_S = 30.0


class Environments:
    """On the event loop's thread. Known by the replica that a lock file came as, so that only the first job of each waits."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = state_dir / DIRECTORY
        self.known: dict[Key, str] = {}
        self.faults: dict[Key, tuple[float, Fault]] = {}
        self.locks: dict[Key, asyncio.Lock] = {}

    async def environment_of(self, spec: AttemptSpec, lock: AttemptInput, place: Place, staged: StagedIn) -> str:
        """Its directory. Raises StagerError that names the job."""
        key = (KINDS[lock.path], lock.file_id, lock.generation)
        async with self.locks.setdefault(key, asyncio.Lock()):
            found = self.known.get(key)
            # Somebody may have removed it.
            if found is None or not await asyncio.to_thread(taken, Path(found), place):
                found = self.known[key] = await self._made(spec, key, image_path(lock, place, staged))
                if not await asyncio.to_thread(taken, Path(found), place):
                    text = f"the environment of job {spec.job_id!r} was removed while the job began"
                    raise Transient(text, code="environment_removed", subject=spec.job_id)
        return found

    async def _made(self, spec: AttemptSpec, key: Key, path: str) -> str:
        now = asyncio.get_running_loop().time()
        until, fault = self.faults.get(key, (now, None))
        if fault is None or until <= now:
            said = await self._asked(spec, key[0], path)
            if "root_dir" in said:
                self.faults.pop(key, None)
                return str(said["root_dir"])
            fault = Fault(ErrorClass(said["error_class"]), said["code"], said["message"], "")
            if fault.error_class is ErrorClass.INVALID_INPUT:
                self.faults[key] = (asyncio.get_running_loop().time() + FAULT_KEPT_S, fault)
        text = f"job {spec.job_id!r} has no environment to run in: {fault.message}"
        raise error_from(Fault(fault.error_class, fault.code, text, spec.job_id))

    async def _asked(self, spec: AttemptSpec, kind: str, path: str) -> Mapping[str, str]:
        """`root_dir`, or a fault."""
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "stager.worker.make_environment", kind, path, str(self.directory)]
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        printed, complaint = await process.communicate()
        try:
            said = json.loads(printed)
        except ValueError as problem:
            tail = complaint[-500:].decode(errors="replace").strip().rpartition("\n")[2]
            text = f"the environment of job {spec.job_id!r} could not be made: {tail or f'ended with {process.returncode}'}"
            raise Transient(text, code=NOT_MADE_CODE, subject=spec.job_id) from problem
        found: Mapping[str, str] = said.get("fault", said)
        return found
