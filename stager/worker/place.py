"""Where an attempt's files lie, and how they are written.

May know: paths below one state directory. One rule: directories are 0700 and files 0600, and a file counts as there only if it is whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from stager.model.ids import digest_of
from stager.worker.removal import remove_tree
from stager.worker.spec import AttemptSpec, check_id

NAME_LENGTH_MAX = 180
# In the directory of an environment of packages.
TOLD = "environment.json"
# An attempt's logs are named several times while it lives.
NAMES_KEPT = 10_000
READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Place:
    """`<state_dir>/attempts/<attempt_id>/`."""

    directory: str

    @classmethod
    def of(cls, state_dir: Path, attempt_id: str) -> Place:
        check_id(attempt_id)
        return cls(f"{state_dir}/attempts/{attempt_id}")

    @property
    def sandbox(self) -> str:
        return f"{self.directory}/sandbox"

    @property
    def attempt(self) -> str:
        """The file that `adopt` needs; written first."""
        return f"{self.directory}/attempt.json"

    @property
    def result(self) -> str:
        """The reaper's; of an engine's attempt what the engine said."""
        return f"{self.directory}/result.json"

    @property
    def staged(self) -> str:
        """Of an engine's attempt: its inputs are in the sandbox."""
        return f"{self.directory}/staged.json"

    @property
    def container(self) -> str:
        """What the job's container was made of; of one without a container it is not there."""
        return f"{self.directory}/container.json"

    @property
    def members(self) -> str:
        """What its outputs name, over which others scatter; written before they are taken."""
        return f"{self.directory}/members.json"

    @property
    def environment(self) -> str:
        """The environment of packages that the job uses; of one without it is not there."""
        return f"{self.directory}/environment.json"

    @property
    def lock(self) -> str:
        return f"{self.directory}/lock"

    @property
    def outcome(self) -> str:
        """Ours; written last."""
        return f"{self.directory}/outcome.json"

    def make(self) -> None:
        make_directory(self.directory)

    def drop(self) -> None:
        """After a release there are a few files in it, which `remove_tree` takes half as long again to remove."""
        try:
            drop_files(self.directory)
        except OSError:
            remove_tree(self.directory)


def make_directory(directory: str) -> None:
    """With its parents, which are mostly there: os.makedirs looks for them first."""
    try:
        os.mkdir(directory, 0o700)
    except OSError:
        os.makedirs(directory, 0o700, exist_ok=True)


def drop_files(directory: str) -> None:
    """Removes a directory that holds nothing but files. Raises OSError for any other, and leaves what is not its own."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in os.listdir(descriptor):
            os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    os.rmdir(directory)


def packages_noted(place: Place) -> str:
    """The directory of the environment that an attempt had; empty: it had none of its own."""
    said = read_json(place.environment)
    return "" if said is None else str(said["root_dir"])


def packages_told(directory: str) -> dict[str, Any]:
    """What was written down of an environment when it was made."""
    return read_json(f"{directory}/{TOLD}") or {}


def places_in_use(state_dir: Path) -> Iterator[Place]:
    """Of attempts that have not ended or whose sandbox is there, and of sandboxes that are kept. One moves from the first to the second,
    and is met in one of them if each is read before the next is asked for.
    """
    for path in (state_dir / "attempts").glob("*/"):
        place = Place(str(path))
        if os.path.isdir(place.sandbox) or read_json(place.outcome) is None:
            yield place
    for path in (state_dir / "failed").glob("[!.]*/*/"):
        yield Place(str(path))


def log_paths(state_dir: Path, spec: AttemptSpec) -> tuple[str, str]:
    """stdout and stderr, kept whatever becomes of the attempt."""
    directory = f"{state_dir}/logs/{safe_name(spec.run_id)}"
    name = f"{directory}/{safe_name(spec.job_id)}.{spec.number}"
    return f"{name}.out", f"{name}.err"


@lru_cache(maxsize=NAMES_KEPT)
def safe_name(text: str) -> str:
    """One name of a file; ids of jobs may hold anything."""
    name = quote(text, safe=" +,:=@()[]")
    name = "%2E" + name[1:] if name.startswith(".") else name
    return name if 0 < len(name) <= NAME_LENGTH_MAX else f"{name[:100]}~{digest_of(text)}"


def write_json(path: str, value: Mapping[str, Any]) -> None:
    """For what is read only after a later step: cut short by a crash, it counts as not there.

    Not fsynced: after a power cut the attempt is run anew.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, json_bytes(value))
    finally:
        os.close(descriptor)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """By msgspec in a seventh of the time. Python's own also says what is not UTF-8, as variables and names of files may be."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def value_of(content: bytes) -> Any:
    """What `json_bytes` said, or another program. Raises ValueError."""
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return json.loads(content)


def write_all(descriptor: int, content: bytes) -> None:
    """Without a stream, which takes longer to make than a few hundred bytes to write."""
    while content:
        content = content[os.write(descriptor, content) :]


def publish_json(path: str, value: Mapping[str, Any]) -> None:
    """For what others may look for at any instant."""
    fresh = f"{path}.{os.getpid()}.new"
    write_json(fresh, value)
    os.replace(fresh, path)


def read_json(path: str) -> dict[str, Any] | None:
    """None if it is not there, or was cut short by a power cut."""
    try:
        value = value_of(read_all(path))
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def read_all(path: str) -> bytes:
    """Without a stream, as it is written."""
    descriptor, parts = os.open(path, os.O_RDONLY | os.O_CLOEXEC), list[bytes]()
    try:
        while part := os.read(descriptor, READ_BYTES):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)
