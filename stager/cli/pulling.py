"""Images of registries for a command that reads a workflow: asked for by all, pulled by those that run it.

May know: the adapter of registries. One rule: nothing of it is imported before a workflow names such an image.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stager.model.units import format_size
from stager.ports import RegistryImage
from stager.readers.sniff import WorkflowFormat, sniff
from stager.service.settings import Settings

READERS = (WorkflowFormat.NATIVE, WorkflowFormat.PEGASUS)


class Registries:
    """The ImageAccess port. `pulls`: what is not here is brought, and said before."""

    def __init__(self, settings: Settings, pulls: bool) -> None:
        self.settings, self.pulls = settings, pulls
        self.inner: Any = None

    def image(self, text: str) -> RegistryImage:
        if self.inner is None:
            from stager.adapters.registry_images import RegistryImages

            self.inner = RegistryImages(self.settings.state_dir, self.settings.environ, tell_pull if self.pulls else None)
        found: RegistryImage = self.inner.image(text)
        return found


def tell_pull(image: RegistryImage) -> None:
    click.echo(f"pulling {image.name}: {format_size(image.size_bytes)}", err=True)


def images_for(settings: Settings, file: Path, *, pulls: bool = False) -> dict[str, Any]:
    """The option of the readers that know them."""
    return {"images": Registries(settings, pulls)} if sniff(file) in READERS else {}
