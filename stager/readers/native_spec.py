"""A native workflow file as it is written, before anything is listed or expanded: entries with their places.

May know: model, templates. One rule: everything here is as written; nothing was looked up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stager.model.files import OnExists
from stager.model.workflow import Bounds, IoHint, OnFailure, Origin, Parameter, RunTarget
from stager.ports import RegistryImage
from stager.readers.lines import Place
from stager.readers.native_rows import Wildcards
from stager.readers.native_template import Hole, Template

FORMAT_VERSION = 1

TOP_KEYS = (
    "stager",
    "name",
    "engine",
    "include",
    "params",
    "types",
    "origins",
    "files",
    "jobs",
    "defaults",
    "finals",
    "io_hints",
    "on_failure",
    "on_exists",
    "spill",
    "notify",
    "budget",
    "finish_by",
    "objective",
)
ORIGIN_KEYS = {
    "file": ("url", "bandwidth"),
    "sftp": ("url", "credentials", "known_hosts", "host_key_alias", "connections_max", "shell_checksum", "verify_source", "bandwidth"),
    "sshfs": (
        "url",
        "credentials",
        "known_hosts",
        "host_key_alias",
        "connections_max",
        "shell_checksum",
        "verify_source",
        "mount_point",
        "bandwidth",
    ),
    "s3": ("url", "credentials", "endpoint", "region", "addressing", "allow_http", "bandwidth"),
    "http": ("url", "credentials", "ca_file", "allow_http", "queries", "connections_max", "bandwidth"),
}
# Of an included file, and those of them whose entries join the workflow's own.
INCLUDED_KEYS = ("stager", "include", "params", "types", "io_hints")
MERGED_KEYS = INCLUDED_KEYS[2:]
PARAM_KEYS = ("type", "default", "choices", "separator", "description")
FILE_KEYS = ("from", "as", "size", "sha256", "executable", "literal")
SOURCE_KEYS = ("at", "site", "priority")
SHARED_KEYS = (
    "shell",
    "cores",
    "memory",
    "memory_limit",
    "retries",
    "timeout",
    "env",
    "env_pass",
    "isolate",
    "container",
    "venv",
    "conda",
    "idempotent",
    "deterministic",
    "reuse",
    "on_exists",
)
JOB_KEYS = ("when", "foreach", "scatter", "run", "inputs", "outputs", "after", "type", "stdin", "stdout", "stderr", *SHARED_KEYS)
# Of a workflow whose jobs an engine runs: what there is to say of a job that we do not start.
ENGINES_SHARED_KEYS = ("cores", "memory", "on_exists")
ENGINES_JOB_KEYS = ("when", "foreach", "inputs", "outputs", "after", "type", *ENGINES_SHARED_KEYS)
# A job of a type has what the type says, but for its own place in the workflow.
TYPE_KEYS = tuple(key for key in JOB_KEYS if key not in ("type", "when"))
INPUT_KEYS = ("from", "as", "executable", "literal")
SCATTER_KEYS = ("over", "as", "expect")
OUTPUT_KEYS = ("file", "dir", "to", "optional", "size", "on_exists", "executable", "literal")
OUTPUT_VALUE_KEYS = ("to", "optional", "size", "on_exists", "executable", "literal")
FINAL_KEYS = ("to", "on_exists")
# The inputs of a job that stand beside `inputs:`, behind all that it lists.
IMAGE_NUMBER, VENV_NUMBER, CONDA_NUMBER = -1, -2, -3
HINT_KEYS = ("compute", "output", "read_fraction")


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """A parameter as it is declared. `default` None: it must be given. `is_list`: `type` and `choices` are those of its members, and
    `separator` joins them; None: nothing was said.
    """

    name: str
    place: Place
    key: str
    type: str = "string"
    default: str | None = None
    choices: tuple[str, ...] = ()
    is_list: bool = False
    separator: str | None = None

    @property
    def kind(self) -> str:
        """As it is written."""
        return f"list of {self.type}" if self.is_list else self.type


@dataclass(frozen=True, slots=True)
class Reference:
    """A file by name (`origin` empty) or by place. `glob`: wildcards in the literal text count. `directory`: it ends in a slash."""

    path: Template
    origin: str = ""
    glob: bool = False
    directory: bool = False

    @property
    def source(self) -> str:
        return f"{self.origin}:{self.path.source}" if self.origin else self.path.source


@dataclass(frozen=True, slots=True)
class SourceSpec:
    reference: Reference
    place: Place
    key: str
    site: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class FileSpec:
    """An entry of `files:`; with a glob or a directory it names a set."""

    name: str
    place: Place
    key: str
    sources: tuple[SourceSpec, ...]
    put_at: str = ""
    size_bytes: int | None = None
    sha256: str | None = None
    executable: bool = False

    @property
    def is_set(self) -> bool:
        return any(source.reference.glob or source.reference.directory for source in self.sources)


@dataclass(frozen=True, slots=True)
class InputSpec:
    reference: Reference
    place: Place
    key: str
    put_at: Template | None = None
    executable: bool = False


@dataclass(frozen=True, slots=True)
class DestinationSpec:
    """`into`: a directory, the output's name is appended."""

    origin: str
    path: Template
    into: bool
    on_exists: OnExists | None
    place: Place
    key: str


@dataclass(frozen=True, slots=True)
class OutputSpec:
    path: Template
    place: Place
    key: str
    directory: bool = False
    optional: bool = False
    size_bytes: int | None = None
    destination: DestinationSpec | None = None
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """One source of foreach values. Exactly one of: rows written out, or a reference to files. `group` joins what is zipped. `wildcards`:
    the values are what stands in the names of these files.
    """

    keys: tuple[str, ...]
    place: Place
    key: str
    group: int
    rows: tuple[tuple[str, ...], ...] = ()
    reference: Reference | None = None
    wildcards: Wildcards | None = None


@dataclass(frozen=True, slots=True)
class ScatterSpec:
    """The values of the job's last axis stand for what the output `over` will name. `each`: its name for each of the values of the foreach
    beside it; None: it is one for all. `said`: somebody says how many to expect.
    """

    over: str
    directory: bool
    place: Place
    key: str
    said: bool = False
    each: Template | None = None


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The keys that `defaults:` and a job may both have. `shell` empty: nothing was said, the strict one is taken. `memory_limit_bytes`
    None: as much as is declared; 0: any.
    """

    shell: tuple[str, ...] = ()
    cores: int = 1
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    retries: int = 2
    timeout_s: float | None = None
    env: tuple[tuple[str, Template], ...] = ()
    env_pass: tuple[str, ...] = ()
    isolate: bool = True
    idempotent: bool = True
    deterministic: bool = False
    reuse: bool = True
    on_exists: OnExists | None = None
    container: InputSpec | None = None
    venv: InputSpec | None = None
    conda: InputSpec | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """`shell_holes`: foreach values that the text of `run` takes from the environment; `shell_params`: the variables of the parameters
    that it does. `when`: the condition that keeps the job out of the workflow; empty: none does.
    """

    name: str
    place: Place
    key: str
    job_type: str
    type_is_shared: bool
    axes: tuple[Axis, ...]
    argv: tuple[Template, ...]
    shell: str
    shell_holes: tuple[Hole, ...]
    shell_params: tuple[tuple[str, str], ...]
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    after: tuple[tuple[Template, Place, str], ...]
    streams: tuple[Template | None, Template | None, Template | None]
    settings: JobSettings
    when: str = ""
    scatter: ScatterSpec | None = None

    def input_at(self, number: int) -> InputSpec | None:
        """A line of `inputs:`, or what stands beside them."""
        if number >= 0:
            return self.inputs[number]
        beside = {IMAGE_NUMBER: self.settings.container, VENV_NUMBER: self.settings.venv, CONDA_NUMBER: self.settings.conda}
        return beside[number]

    @property
    def outer(self) -> tuple[Axis, ...]:
        """Those of its foreach."""
        return self.axes if self.scatter is None else self.axes[:-1]

    @property
    def holes(self) -> set[Hole]:
        """Of all its texts: the places that its foreach values are put in."""
        places = [item.reference.path for item in self.inputs] + [item.put_at for item in self.inputs if item.put_at is not None]
        places += [output.path for output in self.outputs]
        places += [output.destination.path for output in self.outputs if output.destination is not None]
        places += [template for _, template in self.settings.env] + [template for template, _, _ in self.after]
        places += [each.reference.path for each in (self.settings.container, self.settings.venv, self.settings.conda) if each is not None]
        places += [self.scatter.each] if self.scatter is not None and self.scatter.each is not None else []
        places += [*self.argv, *(stream for stream in self.streams if stream is not None)]
        return {hole for template in places for hole in template.holes} | set(self.shell_holes)


@dataclass(frozen=True, slots=True)
class FinalSpec:
    name: str
    glob: bool
    destination: DestinationSpec
    place: Place
    key: str


@dataclass(slots=True)
class WorkflowSpec:
    name: str = ""
    engine: str = ""
    origins: dict[str, Origin] = field(default_factory=dict)
    files: dict[str, FileSpec] = field(default_factory=dict)
    jobs: dict[str, JobSpec] = field(default_factory=dict)
    left_out: dict[str, JobSpec] = field(default_factory=dict)
    finals: list[FinalSpec] = field(default_factory=list)
    hints: dict[str, tuple[IoHint, Place, str]] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.CONTINUE
    on_exists: OnExists = OnExists.FAIL
    spill_origin: str | None = None
    params: tuple[Parameter, ...] = ()
    unused_params: tuple[str, ...] = ()
    images: dict[str, RegistryImage] = field(default_factory=dict)
    notify: tuple[RunTarget, ...] = ()
    bounds: Bounds = Bounds()
