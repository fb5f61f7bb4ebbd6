"""Images of containers, made of this host's own programs: Docker and OCI archives, and SIF files.

May know: the formats, the programs of the system. One rule: an image of these holds nothing that the test did not put in, so that what a
job finds in it comes from there.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stager.worker.image_file import own_architecture

Layer = Mapping[str, Any]
PROGRAMS = ("sh", "cat", "ls", "env", "sleep", "id", "head", "touch")
SIF_NUMBER = {"386": b"01\0", "amd64": b"02\0", "arm": b"03\0", "arm64": b"04\0"}


def programs(*names: str) -> dict[str, bytes]:
    """What lies at which path, for these programs to run: they, and the libraries that they load."""
    found: dict[str, bytes] = {}
    for name in names or PROGRAMS:
        program = shutil.which(name)
        assert program is not None, f"{name} is not on PATH"
        found[f"bin/{name}"] = Path(program).read_bytes()
        loaded = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", loaded):
            found[library.lstrip("/")] = Path(library).read_bytes()
    return found


def layer(files: Layer) -> bytes:
    """A tar file. Of each path: bytes of a program or file; a text is where a symlink leads; None is a directory; a TarInfo is itself."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path, content in files.items():
            entry = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(path)
            if isinstance(content, bytes):
                entry.size, entry.mode = len(content), 0o755
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
            elif content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return stream.getvalue()


def config_of(layers: list[bytes], env: Mapping[str, str], architecture: str) -> bytes:
    digests = [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]
    variables = [f"{name}={value}" for name, value in env.items()]
    said = {"architecture": architecture or own_architecture(), "os": "linux", "config": {"Env": variables}}
    return json.dumps(said | {"rootfs": {"type": "layers", "diff_ids": digests}}).encode()


def written(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def docker_archive(path: Path, *layers: Layer, env: Mapping[str, str] | None = None, architecture: str = "") -> Path:
    """As `docker save` and `podman save` write it."""
    blobs = [layer(files) for files in layers]
    config = config_of(blobs, env or {"PATH": "/bin"}, architecture)
    names = [f"{hashlib.sha256(blob).hexdigest()}.tar" for blob in blobs]
    manifest = [{"Config": "config.json", "RepoTags": ["test:1"], "Layers": names}]
    members = dict(zip(names, blobs, strict=True)) | {"config.json": config, "manifest.json": json.dumps(manifest).encode()}
    return written(path, members)


def oci_archive(path: Path, *layers: Layer, env: Mapping[str, str] | None = None, architecture: str = "") -> Path:
    """As `skopeo copy … oci-archive:` writes it, with compressed layers."""
    blobs = [layer(files) for files in layers]
    config = config_of(blobs, env or {"PATH": "/bin"}, architecture)
    members: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def put(content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        members[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    manifest = json.dumps({"schemaVersion": 2, "config": put(config), "layers": [put(gzip.compress(blob)) for blob in blobs]})
    members["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [put(manifest.encode())]}).encode()
    return written(path, members)


def sif(path: Path, files: Layer, architecture: str = "") -> Path:
    """With one system partition of squashfs."""
    tree, squashed = path.with_name(f"{path.name}.tree"), path.with_name(f"{path.name}.squashfs")
    tree.mkdir()
    with tarfile.open(fileobj=io.BytesIO(layer(files))) as archive:
        archive.extractall(tree, filter="tar")
    subprocess.run(["mksquashfs", str(tree), str(squashed), "-no-progress", "-quiet", "-noappend"], check=True, capture_output=True)
    content, start, offset = squashed.read_bytes(), 128, 4096
    machine = SIF_NUMBER[architecture or own_architecture()]
    numbers = (0, 0, 1, 1, start, 585, offset, len(content))
    head = struct.pack("<32s10s3s3s16s8q", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC\0", b"01\0", machine, os.urandom(16), *numbers)
    extra = struct.pack("<ii3s", 1, 2, machine)
    places = (offset, len(content), len(content), 0, 0, 0, 0)
    entry = struct.pack("<i?IIIqqqqqqq128s384s", 0x4004, True, 1, 0, 0, *places, b"root", extra)
    path.write_bytes((head + entry).ljust(offset, b"\0") + content)
    shutil.rmtree(tree)
    squashed.unlink()
    return path
