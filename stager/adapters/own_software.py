"""Stager as it is installed here, with all that it needs to run on another host: for a virtual environment there of the same Python.

May know: the metadata of installed packages. One rule: each file has a digest, and the name of the whole is made of them: two that have one
name are the same.
"""

from __future__ import annotations

import hashlib
import platform
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import stager
from stager import __version__
from stager.adapters.binary import NAME, find_ionode
from stager.model.errors import Refused

EXTRA = "cluster"
# What a host that is brought up does not need: it reaches no other one by ssh.
NOT_SENT = frozenset({"paramiko"})
# What it needs for jobs that want it, by the module that says that it is here: nobody can install anything there afterwards.
SENT_IF_HERE = {"rattler": "py-rattler"}
NAME_DIGITS = 12
PROGRAM = b'#!/bin/sh\nexec "$(dirname "$0")/python" -m stager.cli "$@"\n'
# Of an installed package: what is true of its place here only.
OF_THIS_PLACE = frozenset({"RECORD", "direct_url.json", "INSTALLER", "REQUESTED"})


@dataclass(frozen=True, slots=True)
class SentFile:
    """`path`: in the virtual environment."""

    path: str
    data: bytes
    mode: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Software:
    """`name`: of its directory there. `python`: the one whose packages these are."""

    name: str
    version: str
    python: tuple[int, int]
    machine: str
    files: list[SentFile]
    digests: list[str]

    @property
    def size_bytes(self) -> int:
        return sum(len(each.data) for each in self.files)


def own_software(environ: Mapping[str, str]) -> Software:
    """All of it, read. Raises Refused where a package is not as pip installs it."""
    version = sys.version_info[:2]
    packages = f"lib/python{version[0]}.{version[1]}/site-packages"
    found = {f"bin/{NAME}": SentFile(f"bin/{NAME}", Path(find_ionode(environ)).read_bytes(), 0o755)}
    found["bin/stager"] = SentFile("bin/stager", PROGRAM, 0o755)
    for path, source in (*own_modules(), *needed_modules()):
        mode = 0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644
        found.setdefault(f"{packages}/{path}", SentFile(f"{packages}/{path}", source.read_bytes(), mode))
    files = [found[path] for path in sorted(found)]
    digests = [each.sha256 for each in files]
    whole = hashlib.sha256("".join(f"{digest} {each.mode:o} {each.path}\n" for each, digest in zip(files, digests, strict=True)).encode())
    name = f"{__version__}-{whole.hexdigest()[:NAME_DIGITS]}"
    return Software(name, __version__, version, platform.machine(), files, digests)


def own_modules() -> Iterator[tuple[str, Path]]:
    root = Path(stager.__file__).parent
    for path in root.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"stager/{path.relative_to(root)}", path


def needed_modules() -> Iterator[tuple[str, Path]]:
    for package in needed_packages():
        if package.files is None:
            text = f"the package {package.name} was not installed by pip here, so it cannot be sent to another host"
            raise Refused(f"{text}; install stager in a virtual environment", code="unsupported", subject=package.name)
        for each in package.files:
            path = Path(str(package.locate_file(each)))
            if each.parts[0] != ".." and each.suffix != ".pyc" and each.name not in OF_THIS_PLACE and path.is_file():
                yield str(each), path


def needed_packages() -> list[metadata.Distribution]:
    """What the metadata of stager ask for, and of these what theirs do. And what else is here that hosts make environments with."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, metadata.Distribution] = {}
    besides = [(package, "") for module, package in SENT_IF_HERE.items() if find_spec(module) is not None]
    left, seen = [("stager", ""), ("stager", EXTRA), *besides], set()
    while left:
        name, extra = asked = left.pop()
        if asked in seen or name in NOT_SENT:
            continue
        seen.add(asked)
        found[name] = metadata.distribution(name)
        for line in found[name].requires or []:
            wanted = Requirement(line)
            if wanted.marker.evaluate({"extra": extra}) if wanted.marker is not None else not extra:
                left += [(canonicalize_name(wanted.name), each) for each in ("", *sorted(wanted.extras))]
    return [package for name, package in found.items() if name != "stager"]
