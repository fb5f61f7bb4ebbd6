"""The images of this host's jobs: each unpacked once, kept for later jobs as far as a limit allows, and used by all that name it.

May know: one directory, the program that unpacks, attempts' directories. One rule: images are read in a process of their own, since
strangers make them.
"""

from __future__ import annotations

import os
from pathlib import Path

from stager.wire.node import StagedIn
from stager.worker.container import Container, noted
from stager.worker.kept_directories import KeptDirectories
from stager.worker.made_of_inputs import MadeOfInputs, Maker
from stager.worker.place import Place, places_in_use, write_json
from stager.worker.spec import AttemptInput, AttemptSpec
from stager.worker.unpack import TOLD

DIRECTORY = "images"
# Archives that were pulled from registries (adapters/registry_images.py), and when each was asked for last.
PULLED, ASKED = "pulled", ".asked."
MAKER = Maker(
    "stager.worker.unpack", "image_not_unpacked", "the image of job {job} could not be unpacked", "job {job} cannot run in its container"
)


class Images:
    """On the event loop's thread. `keep_bytes`: how much of them stays when no job uses them."""

    def __init__(self, state_dir: Path, keep_bytes: int) -> None:
        self.directory = state_dir / DIRECTORY
        kept = KeptDirectories(self.directory, keep_bytes, TOLD, lambda: images_in_use(state_dir), besides=(PULLED,))
        self.made = MadeOfInputs(kept, MAKER)

    async def container_of(self, spec: AttemptSpec, image: AttemptInput, place: Place, staged: StagedIn) -> Container:
        """Raises StagerError that names the job."""
        said = await self.made.of(spec, image, place, staged, lambda said: write_json(place.container, said))
        return Container(said["root_dir"], said["env"])


def images_in_use(state_dir: Path) -> set[str]:
    """The directories that attempts and kept sandboxes name."""
    found = filter(None, map(noted, places_in_use(state_dir)))
    return {os.path.basename(os.path.dirname(container.root_dir)) for container in found}
