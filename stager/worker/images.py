"""The images of this host's jobs: each unpacked once, kept from then on, and used by all jobs that name it.

May know: one directory, the program that unpacks. One rule: images are read in a process of their own, since strangers make them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stager.model.errors import ErrorClass, Fault, Transient, error_from
from stager.wire.node import StagedIn
from stager.worker.environment import job_environment
from stager.worker.place import Place, read_json, write_json
from stager.worker.spec import AttemptInput, AttemptSpec, InputAccess
from stager.worker.unpack import SANDBOX_AT

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Container:
    """`root_dir`: an unpacked image. `env`: the variables that it sets."""

    root_dir: str
    env: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> dict[str, str]:
        return {"root_dir": self.root_dir, "sandbox_at": SANDBOX_AT}


def noted(place: Place) -> Container | None:
    """The container that an attempt had, as `Images.container_of` wrote it down."""
    said = read_json(place.container)
    return None if said is None else Container(said["root_dir"], said["env"])


class Images:
    """On the event loop's thread. Known by the replica that an image came as, so that only the first job of each waits."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = state_dir / "images"
        self.known: dict[Key, Container] = {}
        self.locks: dict[Key, asyncio.Lock] = {}

    async def container_of(self, spec: AttemptSpec, image: AttemptInput, place: Place, staged: StagedIn) -> Container:
        """Raises StagerError that names the job."""
        key = (image.file_id, image.generation)
        async with self.locks.setdefault(key, asyncio.Lock()):
            found = self.known.get(key)
            # Somebody may have cleared the directory.
            if found is None or not os.path.isdir(found.root_dir):
                found = self.known[key] = await self._unpacked(spec, image_path(image, place, staged))
        # For who looks into its sandbox afterwards.
        write_json(place.container, {"root_dir": found.root_dir, "env": dict(found.env)})
        return found

    async def _unpacked(self, spec: AttemptSpec, path: str) -> Container:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "stager.worker.unpack", path, str(self.directory)]
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        printed, complaint = await process.communicate()
        try:
            said = json.loads(printed)
        except ValueError as problem:
            tail = complaint[-500:].decode(errors="replace").strip().rpartition("\n")[2]
            text = f"the image of job {spec.job_id!r} could not be unpacked: {tail or f'ended with {process.returncode}'}"
            raise Transient(text, code="image_not_unpacked", subject=spec.job_id) from problem
        if "fault" in said:
            fault = said["fault"]
            text = f"job {spec.job_id!r} cannot run in its container: {fault['message']}"
            raise error_from(Fault(ErrorClass(fault["error_class"]), fault["code"], text, spec.job_id))
        return Container(said["root_dir"], said["env"])


def environment_in(spec: AttemptSpec, place: Place, inherited: Mapping[str, str], container: Container | None) -> dict[str, str]:
    """The job's, with the variables of its image below its own."""
    if container is None:
        return job_environment(spec, place.sandbox, inherited)
    return job_environment(spec, SANDBOX_AT, inherited, container.env)


def image_path(image: AttemptInput, place: Place, staged: StagedIn) -> str:
    """The node's own file, where the sandbox has a link to it: the link is there for the reaper alone to make."""
    target = f"{place.sandbox}/{image.path}"
    if image.access is InputAccess.LINK:
        return next((mount.source for mount in staged.mounts if mount.target == target), target)
    return target
