"""The images of this host's jobs: each unpacked once, kept for later jobs as far as a limit allows, and used by all that name it.

May know: one directory, the program that unpacks, attempts' directories. One rule: images are read in a process of their own, since
strangers make them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stager.model.errors import ErrorClass, Fault, Transient, error_from
from stager.wire.node import StagedIn
from stager.worker.environment import job_environment, with_packages
from stager.worker.place import Place, read_json, write_json
from stager.worker.spec import AttemptInput, AttemptSpec, InputAccess
from stager.worker.unpack import SANDBOX_AT

if TYPE_CHECKING:
    from stager.worker.kept_directories import KeptDirectories

Key = tuple[str, str]
# Archives that were pulled from registries (adapters/registry_images.py), and when each was asked for last.
PULLED, ASKED = "pulled", ".asked."
KEEP_BYTES = 20_000_000_000


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
    """On the event loop's thread. Known by the replica that an image came as, so that only the first job of each waits. `keep_bytes`: how
    much of them stays when no job uses them.
    """

    def __init__(self, state_dir: Path, keep_bytes: int = KEEP_BYTES) -> None:
        self.state_dir, self.directory, self.keep_bytes = state_dir, state_dir / "images", keep_bytes
        self.known: dict[Key, Container] = {}
        self.locks: dict[Key, asyncio.Lock] = {}

    @cached_property
    def kept(self) -> KeptDirectories:
        # Most workers never see an image.
        from stager.worker.kept_directories import KeptDirectories

        return KeptDirectories(self.directory, self.keep_bytes, lambda: images_in_use(self.state_dir), (PULLED,))

    async def container_of(self, spec: AttemptSpec, image: AttemptInput, place: Place, staged: StagedIn) -> Container:
        """Raises StagerError that names the job."""
        key = (image.file_id, image.generation)
        async with self.locks.setdefault(key, asyncio.Lock()):
            found = self.known.get(key)
            # It may have gone for room, and somebody may have cleared the directory.
            is_there = found is not None and os.path.isdir(found.root_dir)
            if found is None or not is_there:
                with self.kept.being_made():
                    found = self.known[key] = await self._unpacked(spec, image_path(image, place, staged))
                    self._name(found, place)
            else:
                self._name(found, place)
        if not is_there:
            await self.kept.trim()
        return found

    def directories(self) -> dict[str, str]:
        """By the id of the file that an image came as, of those that this process has seen: what its directory is called."""
        return {file_id: directory_of(container) for (file_id, _), container in self.known.items()}

    def _name(self, container: Container, place: Place) -> None:
        """So that it stays; and for who looks into the sandbox afterwards."""
        self.kept.take(os.path.dirname(container.root_dir))
        write_json(place.container, {"root_dir": container.root_dir, "env": dict(container.env)})

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


def images_in_use(state_dir: Path) -> set[str]:
    """The directories that attempts and kept sandboxes name."""
    places = [*(state_dir / "attempts").glob("*/"), *(state_dir / "failed").glob("[!.]*/*/")]
    found = filter(None, (noted(Place(str(place))) for place in places))
    return {directory_of(container) for container in found}


def directory_of(container: Container) -> str:
    return os.path.basename(os.path.dirname(container.root_dir))


def environment_in(
    spec: AttemptSpec, place: Place, inherited: Mapping[str, str], container: Container | None, packages: str = ""
) -> dict[str, str]:
    """The job's, with the variables of its image below its own. `packages`: the directory of its environment of packages; empty: it has
    none.
    """
    if container is None:
        return with_packages(job_environment(spec, place.sandbox, inherited), packages, spec.env)
    return job_environment(spec, SANDBOX_AT, inherited, container.env)


def image_path(image: AttemptInput, place: Place, staged: StagedIn) -> str:
    """The node's own file, where the sandbox has a link to it: the link is there for the reaper alone to make."""
    target = f"{place.sandbox}/{image.path}"
    if image.access is InputAccess.LINK:
        return next((mount.source for mount in staged.mounts if mount.target == target), target)
    return target
