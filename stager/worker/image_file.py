"""What an image file is: a Docker or OCI archive, or a SIF file; its layers, its variables, and what it is known by.

May know: the formats, the model's errors. One rule: files come from strangers, so that everything that is read is bounded, and what has a
digest is compared with it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import struct
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from stager.model.errors import InvalidInput

INVALID_CODE, ARCHITECTURE_CODE = "image_invalid", "image_architecture"
KINDS = "a Docker archive, an OCI archive or a SIF file"
# As images call what `uname -m` says.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
DOCUMENT_BYTES_MAX, MEMBERS_MAX, LAYERS_MAX, NESTED_MAX, LINKS_MAX = 8 << 20, 100_000, 1_000, 3, 8
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Of SIF: a header behind a line for the shell, then descriptors of 585 bytes each (sylabs/sif).
SIF_MAGIC, SIF_MAGIC_AT, SIF_HEAD = b"SIF_MAGIC\0", 32, "<32s10s3s3s16s8q"
SIF_DESCRIPTOR, SIF_EXTRA = "<i?IIIqqqqqqq128s384s", "<ii3s"
SIF_DESCRIPTORS_MAX, SIF_PARTITION, SIF_SQUASHFS, SIF_SYSTEM = 4_096, 0x4004, 1, 2
SIF_ARCHITECTURES = {"01": "386", "02": "amd64", "03": "arm", "04": "arm64"}
SIF_HEAD_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class Layer:
    """`member`: its name in the archive. `digest`: sha256 of the tar file that it unpacks to."""

    member: str
    digest: str


@dataclass(frozen=True, slots=True)
class ImageFile:
    """`identity`: of its content, the name of the directory that it is unpacked to. `squashfs`: where that of a SIF file begins."""

    identity: str
    architecture: str
    env: Mapping[str, str]
    layers: tuple[Layer, ...] = ()
    squashfs: int | None = None


def invalid(text: str) -> InvalidInput:
    return InvalidInput(text, code=INVALID_CODE)


def own_architecture() -> str:
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def image_of(path: Path) -> ImageFile:
    """Raises InvalidInput."""
    with path.open("rb") as stream:
        head = stream.read(SIF_HEAD_BYTES)
    if head[SIF_MAGIC_AT : SIF_MAGIC_AT + len(SIF_MAGIC)] == SIF_MAGIC:
        return sif_of(head, path)
    try:
        with tarfile.open(path, "r:") as archive:
            return archived(Archive(archive))
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        packed = "; it is compressed as a whole: unpack it (gunzip)" if head[:2] == b"\x1f\x8b" else ""
        raise invalid(f"this is no image: neither {KINDS}{packed} ({problem})") from problem


def require_architecture(image: ImageFile) -> None:
    if image.architecture != own_architecture():
        text = f"the image is for {image.architecture or 'a machine that it does not name'}, and this host is {own_architecture()}"
        raise InvalidInput(text, code=ARCHITECTURE_CODE)


class Archive:
    """The documents and blobs of a tar file by their names."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self.archive = archive
        self.members: dict[str, tarfile.TarInfo] = {}
        for count, member in enumerate(archive):
            if count >= MEMBERS_MAX:
                raise ValueError(f"it has more than {MEMBERS_MAX} members")
            self.members[plain(member.name)] = member

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def member(self, name: str) -> tarfile.TarInfo:
        """Links are followed, as Docker writes them to layers that two images share."""
        for _ in range(LINKS_MAX):
            found = self.members.get(name)
            if found is None:
                raise ValueError(f"it lacks {name!r}")
            if found.isfile():
                return found
            if not found.issym() and not found.islnk():
                raise ValueError(f"{name!r} in it is no file")
            name = plain(found.linkname if found.islnk() else f"{PurePosixPath(name).parent}/{found.linkname}")
        raise ValueError(f"{name!r} in it is a link that leads to itself")

    def read(self, name: str) -> bytes:
        found = self.member(name)
        if found.size > DOCUMENT_BYTES_MAX:
            raise ValueError(f"{name!r} in it is larger than a document of an image may be")
        stream = self.archive.extractfile(found)
        assert stream is not None
        return stream.read()

    def blob(self, digest: str) -> bytes:
        content = self.read(blob_name(digest))
        if hashlib.sha256(content).hexdigest() != digest.partition(":")[2]:
            raise ValueError(f"{digest} in it has another content than its name says")
        return content


def plain(name: str) -> str:
    """Without `.`, and with `..` taken back, as far as it goes."""
    names: list[str] = []
    for each in name.split("/"):
        if each == "..":
            names = names[:-1]
        elif each not in ("", "."):
            names.append(each)
    return "/".join(names)


def blob_name(digest: str) -> str:
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is no sha256 digest")
    return "blobs/" + digest.replace(":", "/")


def archived(archive: Archive) -> ImageFile:
    if "manifest.json" in archive:
        manifests = json.loads(archive.read("manifest.json"))
        if len(manifests) != 1:
            raise invalid(f"the archive holds {len(manifests)} images; write one into it")
        config, names = archive.read(plain(manifests[0]["Config"])), [plain(name) for name in manifests[0]["Layers"]]
    elif "index.json" in archive:
        manifest = manifest_of(archive, json.loads(archive.read("index.json")), NESTED_MAX)
        config, names = archive.blob(manifest["config"]["digest"]), [blob_name(layer["digest"]) for layer in manifest["layers"]]
    else:
        raise ValueError("it has neither manifest.json nor index.json")
    return configured(config, names)


def manifest_of(archive: Archive, index: Mapping[str, Any], nested: int) -> dict[str, Any]:
    """That for this machine, where there are several."""
    entries = [each for each in index["manifests"] if (each.get("platform") or {}).get("architecture") != "unknown"]
    if len(entries) > 1:
        mine = [each for each in entries if (each.get("platform") or {}).get("architecture") == own_architecture()]
        if not mine:
            there = sorted({str((each.get("platform") or {}).get("architecture")) for each in entries})
            raise InvalidInput(f"the image is for {', '.join(there)}, and this host is {own_architecture()}", code=ARCHITECTURE_CODE)
        entries = mine
    if not entries:
        raise ValueError("its index names no image")
    found: dict[str, Any] = json.loads(archive.blob(entries[0]["digest"]))
    if "manifests" not in found:
        return found
    if nested == 0:
        raise ValueError("its index names another index, and so on")
    return manifest_of(archive, found, nested - 1)


def configured(config: bytes, names: list[str]) -> ImageFile:
    said = json.loads(config)
    digests = said["rootfs"]["diff_ids"]
    if len(names) != len(digests) or len(names) > LAYERS_MAX:
        raise ValueError(f"it has {len(names)} layers, and its configuration names {len(digests)}")
    for digest in digests:
        blob_name(digest)
    env = dict(variables(entry for entry in (said.get("config") or {}).get("Env") or ()))
    layers = tuple(Layer(name, digest.partition(":")[2]) for name, digest in zip(names, digests, strict=True))
    return ImageFile(f"sha256-{hashlib.sha256(config).hexdigest()}", str(said.get("architecture") or ""), env, layers)


def variables(entries: Iterator[str]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        name, sign, value = entry.partition("=")
        if sign and VARIABLE.fullmatch(name) and "\0" not in value:
            yield name, value


def sif_of(head: bytes, path: Path) -> ImageFile:
    """Known by its content: copies that were damaged on their way have the header of the whole one, with the id of its build."""
    try:
        *_, start, _, _, _ = struct.unpack_from(SIF_HEAD, head)
        size = struct.calcsize(SIF_DESCRIPTOR)
        if not 0 <= start <= path.stat().st_size:
            raise invalid("the SIF file is damaged: where it says that its parts are named, it has nothing")
        with path.open("rb") as stream:
            stream.seek(start)
            table = stream.read(size * SIF_DESCRIPTORS_MAX)
        for at in range(0, len(table) - size + 1, size):
            kind, used, _, _, _, offset, *_, extra = struct.unpack_from(SIF_DESCRIPTOR, table, at)
            if not used or kind != SIF_PARTITION:
                continue
            system, part, machine = struct.unpack_from(SIF_EXTRA, extra)
            if part == SIF_SYSTEM:
                if system != SIF_SQUASHFS:
                    raise invalid("the SIF file holds no plain squashfs (it may be encrypted); build it anew")
                machine = machine.rstrip(b"\0").decode(errors="replace")
                with path.open("rb") as stream:
                    identity = f"sif-{hashlib.file_digest(stream, 'sha256').hexdigest()}"
                return ImageFile(identity, SIF_ARCHITECTURES.get(machine, machine), {}, squashfs=offset)
    except struct.error as problem:
        raise invalid(f"the SIF file is cut short ({problem})") from problem
    raise invalid("the SIF file holds no file system to run in")
