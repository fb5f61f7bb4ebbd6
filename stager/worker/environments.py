"""The environments of packages of this host's jobs: each made once of its lock file, kept for later jobs as far as a limit allows, and used
by all that name it.

May know: one directory, the program that makes them, attempts' directories. One rule: an attempt has noted that it uses one before its job
begins.
"""

from __future__ import annotations

import os
from pathlib import Path

from stager.model.workflow import CONDA_PATH, VENV_PATH
from stager.wire.node import StagedIn
from stager.worker.environment_tree import DIRECTORY, is_changed
from stager.worker.installing import NOT_MADE_CODE
from stager.worker.kept_directories import KeptDirectories
from stager.worker.made_of_inputs import MadeOfInputs, Maker
from stager.worker.place import TOLD, Place, packages_noted, places_in_use, write_json
from stager.worker.spec import AttemptInput, AttemptSpec

# As make_environment calls what a lock file is for, by where the job finds it.
KINDS = {VENV_PATH: "venv", CONDA_PATH: "conda"}
MAKER = Maker(
    "stager.worker.make_environment",
    NOT_MADE_CODE,
    "the environment of job {job} could not be made",
    "job {job} has no environment to run in",
    KINDS,
)


class Environments:
    """On the event loop's thread. `keep_bytes`: how much of them stays when no job uses them."""

    def __init__(self, state_dir: Path, keep_bytes: int) -> None:
        directory = state_dir / DIRECTORY
        kept = KeptDirectories(directory, keep_bytes, TOLD, lambda: environments_in_use(state_dir), is_changed=is_changed)
        self.made = MadeOfInputs(kept, MAKER)

    async def environment_of(self, spec: AttemptSpec, lock: AttemptInput, place: Place, staged: StagedIn) -> str:
        """Its directory. Raises StagerError that names the job."""
        said = await self.made.of(spec, lock, place, staged, lambda said: write_json(place.environment, {"root_dir": said["root_dir"]}))
        return str(said["root_dir"])


def environments_in_use(state_dir: Path) -> set[str]:
    """The directories that attempts and kept sandboxes name."""
    return {os.path.basename(noted) for place in places_in_use(state_dir) if (noted := packages_noted(place))}
