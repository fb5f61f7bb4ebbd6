"""What jobs need and is made of one of their inputs: an image is unpacked, an environment of packages is made of its lock file. Each is
made once on a host, and used by all jobs that name it.

May know: the kept directories, the programs that make them. One rule: a program of its own makes each, since strangers wrote what it reads,
and an attempt has noted what it uses before its job begins.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stager.model.errors import ErrorClass, Fault, Transient, error_from
from stager.wire.node import StagedIn
from stager.worker.kept_directories import KeptDirectories
from stager.worker.place import Place
from stager.worker.spec import AttemptInput, AttemptSpec, InputAccess

# Where a job finds it, and the replica.
Key = tuple[str, str, str]
Said = Mapping[str, Any]
# Many jobs have the same input, and one that does not do takes each of them seconds to find out.
FAULT_KEPT_S = 30.0
# What was made may go before an attempt names it, where the limit allows nothing.
TRIES = 3


@dataclass(frozen=True, slots=True)
class Maker:
    """`module`: `python -m MODULE [KIND] FILE DIRECTORY` prints JSON with `root_dir`, or a fault. `not_made`, `refused`: how messages begin
    that say so, with {job}. `kinds`: by where a job finds the file.
    """

    module: str
    not_made_code: str
    not_made: str
    refused: str
    kinds: Mapping[str, str] = field(default_factory=dict)

    async def made(self, source: AttemptInput, path: str, directory: str, job: str) -> Said:
        """What it printed. Raises Transient where it printed nothing of the kind."""
        pipe = asyncio.subprocess.PIPE
        kind = [self.kinds[source.path]] if self.kinds else []
        # -P: else Python looks for modules where the scheduler was started first, and runs what is called as one of its own.
        command = [sys.executable, "-P", "-m", self.module, *kind, path, directory]
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        printed, complaint = await process.communicate()
        try:
            said: Said = json.loads(printed)
        except ValueError as problem:
            tail = complaint[-500:].decode(errors="replace").strip().rpartition("\n")[2]
            text = f"{self.not_made.format(job=repr(job))}: {tail or f'ended with {process.returncode}'}"
            raise Transient(text, code=self.not_made_code, subject=job) from problem
        return said


class MadeOfInputs:
    """On the event loop's thread. Known by the replica that an input came as, so that only the first job of each waits."""

    def __init__(self, kept: KeptDirectories, maker: Maker) -> None:
        self.kept, self.maker = kept, maker
        self.known: dict[Key, Said] = {}
        self.faults: dict[Key, tuple[float, Fault]] = {}
        self.locks: dict[Key, asyncio.Lock] = {}

    async def of(self, spec: AttemptSpec, source: AttemptInput, place: Place, staged: StagedIn, write_name: Callable[[Said], None]) -> Said:
        """`write_name`: in a thread. Raises StagerError that names the job."""
        key = key_of(source)
        async with self.locks.setdefault(key, asyncio.Lock()):
            found = self.known.get(key)
            # It may have gone for its room, and somebody may have cleared the directory.
            is_there = found is not None and await self._is_taken(spec, found, write_name)
            if found is None or not is_there:
                with self.kept.being_made():
                    found = await self._made_and_taken(spec, source, input_path(source, place, staged), write_name)
        if not is_there:
            await self.kept.trim()
        return found

    def names(self, files: Set[str]) -> set[str] | None:
        """What the directories are called that were made of these files. None: this process has not seen one of them."""
        known = {file_id for _, file_id, _ in self.known}
        return {self._name_of(said) for (_, file_id, _), said in self.known.items() if file_id in files} if files <= known else None

    async def _made_and_taken(self, spec: AttemptSpec, source: AttemptInput, path: str, write_name: Callable[[Said], None]) -> Said:
        for _ in range(TRIES):
            found = self.known[key_of(source)] = await self._made(spec, source, path)
            if await self._is_taken(spec, found, write_name):
                return found
        text = f"{self.maker.not_made.format(job=repr(spec.job_id))}: it was removed while the job began"
        raise Transient(text, code=self.maker.not_made_code, subject=spec.job_id)

    async def _is_taken(self, spec: AttemptSpec, found: Said, write_name: Callable[[Said], None]) -> bool:
        try:
            return await asyncio.to_thread(self.kept.take, self._name_of(found), partial(write_name, found))
        except OSError as problem:
            text = f"job {spec.job_id!r} could not note what it uses: {problem}"
            raise Transient(text, code=self.maker.not_made_code, subject=spec.job_id) from problem

    def _name_of(self, said: Said) -> str:
        return os.path.relpath(said["root_dir"], self.kept.root).partition("/")[0]

    async def _made(self, spec: AttemptSpec, source: AttemptInput, path: str) -> Said:
        key, now = key_of(source), asyncio.get_running_loop().time
        until, fault = self.faults.get(key, (now(), None))
        if fault is None or until <= now():
            said = await self.maker.made(source, path, str(self.kept.root), spec.job_id)
            if "fault" not in said:
                self.faults.pop(key, None)
                return said
            told = said["fault"]
            fault = Fault(ErrorClass(told["error_class"]), told["code"], told["message"], "")
            if fault.error_class is ErrorClass.INVALID_INPUT:
                self.faults[key] = (now() + FAULT_KEPT_S, fault)
        text = f"{self.maker.refused.format(job=repr(spec.job_id))}: {fault.message}"
        raise error_from(Fault(fault.error_class, fault.code, text, spec.job_id))


def key_of(source: AttemptInput) -> Key:
    return source.path, source.file_id, source.generation


def input_path(source: AttemptInput, place: Place, staged: StagedIn) -> str:
    """The node's own file, where the sandbox has a link to it: the link is there for the reaper alone to make."""
    target = f"{place.sandbox}/{source.path}"
    if source.access is InputAccess.LINK:
        return next((mount.source for mount in staged.mounts if mount.target == target), target)
    return target
