"""The spec of one attempt: the command, its files, its limits.

May know: the model. One rule: an AttemptSpec that exists names nothing outside its sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from stager.model.errors import InvalidInput
from stager.model.files import FileKind
from stager.model.scatter import ScatterForm
from stager.model.workflow import CONDA_PATH, IMAGE_PATH, VENV_PATH

ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,128}\Z")
# The job's TMPDIR, dropped before its outputs are taken.
SCRATCH = ".tmp"


class InputAccess(StrEnum):
    """How an input gets into the sandbox: a read-only mount of the store's own file, or a copy."""

    LINK = "link"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class AttemptInput:
    file_id: str
    generation: str
    path: str
    access: InputAccess = InputAccess.LINK

    def to_wire(self) -> dict[str, Any]:
        return {"file_id": self.file_id, "generation": self.generation, "path": self.path, "access": self.access.value}


@dataclass(frozen=True, slots=True)
class DirectInput:
    """Read directly at its origin, which the node knows by this id and has mounted."""

    path: str
    origin_id: str
    origin_path: str
    size_bytes: int
    token: str

    def to_wire(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class AttemptOutput:
    file_id: str
    generation: str
    path: str
    kind: FileKind = FileKind.FILE
    optional: bool = False

    def to_wire(self) -> dict[str, Any]:
        named = {"file_id": self.file_id, "generation": self.generation, "path": self.path}
        return named | {"kind": self.kind.value, "optional": self.optional}


@dataclass(frozen=True, slots=True)
class MembersIn:
    """Jobs of the entry `name` are to be made of what the output at this path names."""

    name: str
    path: str
    keys: tuple[str, ...]
    form: ScatterForm

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "path": self.path, "keys": list(self.keys), "form": self.form.value}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> MembersIn:
        return cls(said["name"], said["path"], tuple(said["keys"]), ScatterForm(said["form"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpec:
    """`argv`: the job's program and its arguments. Paths are relative to the sandbox.

    `stdout`, `stderr`: the declared outputs that are to hold what the job wrote there.

    `reserve_bytes`: the space for outputs that the worker reserves on the node before it starts and frees at the end;
    None: the caller looks after the reservation, whose id is `reservation_id` or else the attempt's.

    `isolate`: it may write in its sandbox alone. `origins`: directories of file origins. `watch`: what it opens below them is told, where
    that can be seen.
    """

    attempt_id: str
    run_id: str
    job_id: str
    number: int = 1
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    inputs: tuple[AttemptInput, ...] = ()
    outputs: tuple[AttemptOutput, ...] = ()
    reservation_id: str = ""
    reserve_bytes: int | None = None
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    timeout_s: float | None = None
    grace_s: float = 5.0
    want_sha256: bool = False
    keep_failed_sandbox: bool = False
    direct: tuple[DirectInput, ...] = ()
    unprivileged: bool = False
    isolate: bool = False
    origins: tuple[str, ...] = ()
    watch: bool = False
    memory_limit_bytes: int | None = None
    members: tuple[MembersIn, ...] = ()

    def __post_init__(self) -> None:
        check_id(self.attempt_id)
        if not self.argv:
            raise InvalidInput(f"job {self.job_id!r} has no command", subject=self.job_id)
        if self.cwd:
            check_path(self.job_id, self.cwd)
        named = [*self.input_paths, *(entry.path for entry in self.outputs)]
        for path in named + [path for path in (self.stdin, self.stdout, self.stderr) if path]:
            check_path(self.job_id, path)
        declared = {output.path for output in self.outputs}
        for stream in (self.stdout, self.stderr):
            if stream and stream not in declared:
                text = f"job {self.job_id!r} sends its output to {stream!r}, which is not among its outputs; declare it there"
                raise InvalidInput(text, subject=stream)

    @property
    def input_paths(self) -> list[str]:
        """In the sandbox, of what is staged and of what is read directly."""
        return [*(entry.path for entry in self.inputs), *(entry.path for entry in self.direct)]

    @property
    def image(self) -> AttemptInput | None:
        """Of its container. None: it runs on the host as it is."""
        return next((entry for entry in self.inputs if entry.path == IMAGE_PATH), None)

    @property
    def lock(self) -> AttemptInput | None:
        """The lock file of its environment, which its path tells the kind of. None: it has none of its own."""
        return next((entry for entry in self.inputs if entry.path in (VENV_PATH, CONDA_PATH)), None)

    @property
    def reservation(self) -> str:
        return self.reservation_id or self.attempt_id

    def to_json(self) -> dict[str, Any]:
        """The fields that are needed to finish the attempt after a crash: not the command, and never the environment, which may hold
        secrets.
        """
        return {
            "version": 1,
            "attempt_id": self.attempt_id,
            "run_id": self.run_id,
            "job_id": self.job_id,
            "number": self.number,
            "program": self.argv[0],
            "inputs": [entry.to_wire() for entry in self.inputs],
            "direct": [entry.to_wire() for entry in self.direct],
            "outputs": [entry.to_wire() for entry in self.outputs],
            "reservation_id": self.reservation,
            "reserve_bytes": self.reserve_bytes,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "want_sha256": self.want_sha256,
            "keep_failed_sandbox": self.keep_failed_sandbox,
            **({"members": [each.to_json() for each in self.members]} if self.members else {}),
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> AttemptSpec:
        """The attempt as far as `to_json` told. Raises KeyError, ValueError or TypeError if it is no such thing."""
        if said["version"] != 1:
            raise ValueError(f"this attempt was written by a newer stager (format {said['version']})")
        return cls(
            attempt_id=said["attempt_id"],
            run_id=said["run_id"],
            job_id=said["job_id"],
            number=said["number"],
            argv=(said["program"],),
            inputs=tuple(AttemptInput(**entry | {"access": InputAccess(entry["access"])}) for entry in said["inputs"]),
            outputs=tuple(AttemptOutput(**entry | {"kind": FileKind(entry["kind"])}) for entry in said["outputs"]),
            reservation_id=said["reservation_id"],
            reserve_bytes=said["reserve_bytes"],
            stdout=said["stdout"],
            stderr=said["stderr"],
            want_sha256=said["want_sha256"],
            keep_failed_sandbox=said["keep_failed_sandbox"],
            direct=tuple(DirectInput(**entry) for entry in said.get("direct", ())),
            members=tuple(MembersIn.from_json(entry) for entry in said.get("members", ())),
        )


def check_id(attempt_id: str) -> None:
    """It becomes the name of a directory."""
    if not ID.match(attempt_id):
        text = f"{attempt_id!r} cannot be the id of an attempt: letters, digits, '.', '_' and '-', at most 128"
        raise InvalidInput(text, subject=attempt_id)


def check_path(job_id: str, path: str) -> None:
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidInput(f"job {job_id!r}: {path!r} must be a path below the sandbox, without '..' or '.'", subject=path)
    if parts[0] == SCRATCH:
        text = f"job {job_id!r}: {path!r} lies in {SCRATCH!r}, which is the job's scratch directory and dropped at its end"
        raise InvalidInput(text, subject=path)
