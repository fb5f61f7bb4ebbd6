"""`container:` of a job: the file of its image, or an image of a registry, which is a file once it was pulled.

May know: forms, references, the ImageAccess port. One rule: what a tag means is asked once for each reading, so that all jobs of a
workflow have the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from stager.model.errors import InvalidInput
from stager.model.ids import digest_of
from stager.model.units import format_size
from stager.model.workflow import Origin, OriginKind
from stager.ports import ImageAccess, OriginEntry, RegistryImage
from stager.readers.lines import Node
from stager.readers.native_form import Fields
from stager.readers.native_references import Names
from stager.readers.native_spec import InputSpec, Reference
from stager.readers.native_template import Template
from stager.readers.paths import REGISTRY

NO_CONTAINER = "none"
# Of the archives that were pulled.
IMAGES_ORIGIN = "stager-images"


def read_container(fields: Fields, names: Names, base: InputSpec | None) -> InputSpec | None:
    """An input like any other; or none."""
    node, key = fields.get("container"), fields.at("container")
    if node is None:
        return base
    text = node.text if node.kind == "scalar" else ""
    if text == NO_CONTAINER:
        return None
    if REGISTRY.match(text):
        return of_registry(fields, names, node, key)
    reference = names.reference(node, key)
    if reference and (reference.glob or reference.directory):
        fields.form.findings.note(node.place, key, "an image is one file; name it")
        return None
    return InputSpec(reference, node.place, key) if reference else None


def of_registry(fields: Fields, names: Names, node: Node, key: str) -> InputSpec | None:
    """A value of a foreach cannot choose it: it is asked for before there are any."""
    form = fields.form
    text = form.bound(node.text, node, key)
    if text is None:
        return None
    try:
        image = image_of(text, form.images)
        origin = images_origin(image)
        if form.origins.setdefault(IMAGES_ORIGIN, origin) != origin:
            raise InvalidInput(f"{IMAGES_ORIGIN!r} is the origin of images that were pulled; give yours another name")
    except InvalidInput as problem:
        form.findings.note(node.place, key, problem.message)
        return None
    form.pulled[image.file_name] = image
    return InputSpec(Reference(Template((image.file_name,)), IMAGES_ORIGIN), node.place, key)


def image_of(text: str, images: ImageAccess | None) -> RegistryImage:
    """Raises StagerError."""
    if not text.startswith("docker://"):
        raise InvalidInput(f"{text}: of registries stager knows docker:// alone; bring the image as a file")
    if images is None:
        way = f"skopeo copy {text} docker-archive:image.tar"
        raise InvalidInput(f"no images of registries are pulled here; bring it once as a file: {way}", code="image_not_pulled")
    return images.image(text)


class Unasked:
    """The ImageAccess port for who only checks a text: no registry is asked, and nothing can be planned by its answers."""

    def image(self, text: str) -> RegistryImage:
        return RegistryImage(text, text, 0, "/nonexistent", f"{digest_of(text)}.tar", False)


def images_origin(image: RegistryImage) -> Origin:
    return Origin(IMAGES_ORIGIN, OriginKind.FILE, "file://" + quote(image.directory))


def entry_of(image: RegistryImage) -> OriginEntry | None:
    """What a plan takes for its archive before it was pulled. None: it is there and can be asked for."""
    return None if image.is_here else OriginEntry(image.file_name, image.size_bytes, f"pull={image.exact}")


def notes_on(images: dict[str, RegistryImage]) -> Iterator[str]:
    for image in images.values():
        if image.exact == image.name:
            yield f"{image.name}: which image that is now is asked for a plan"
            continue
        how = "pulled before" if image.is_here else f"`submit` pulls it once, {format_size(image.size_bytes)} over the WAN"
        yield f"{image.name} is {image.exact.rpartition('@')[2]} now; {how}"
