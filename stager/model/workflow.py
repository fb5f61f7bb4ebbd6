"""A workflow as a value: origins, files, jobs, and the edges that follow from who makes and who reads what.

May know: files, units. One rule: a Workflow that exists is valid as a graph: built by a reader through `validate`, expanded (no globs, no
foreach left).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from stager.model.acyclic import acyclic
from stager.model.files import File
from stager.model.ids import digest_of
from stager.model.places import place_of_url, server_of_url, user_of_url
from stager.model.record import Record
from stager.model.scatter import Scatter, unknown
from stager.model.units import parse_size_bytes


class OriginKind(StrEnum):
    FILE = "file"
    SFTP = "sftp"
    SSHFS = "sshfs"
    S3 = "s3"
    HTTP = "http"


# A larger file that is read back comes while the rest of it is on its way: four requests over ssh (ionode/origins/src/sftp/read.rs).
READ_BEHIND_BYTES = 4 * 255 * 1024
# Options of an origin that say how fast or by which way, not who may see what.
TUNING = frozenset(("bandwidth", "connections_max", "mount_point", "shell_checksum", "verify_source"))


class OnFailure(StrEnum):
    """After a job failed for good: go on with all that does not depend on it, or start nothing more."""

    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where data lives. `url` holds no secret; `credentials` is a reference: `env:PREFIX`, `profile:NAME`, `agent`, `key:PATH`, or empty
    for the kind's default. `beside_workflow`: a directory that is named from where the workflow file lies, so it is on the scheduler's
    host.
    """

    name: str
    kind: OriginKind
    url: str
    credentials: str = ""
    options: tuple[tuple[str, str], ...] = ()
    # Not shown and not compared, since plans and runs of before it could be said are the same ones.
    beside_workflow: bool = field(default=False, repr=False, compare=False)

    @property
    def place(self) -> str:
        """Its directory in one spelling, whoever asks: two origins of one place hold the same files."""
        options = dict(self.options)
        # What is a name at one is a question to a program at the other.
        return place_of_url(self.url, options.get("endpoint", "")) + ("?" if options.get("queries") == "true" else "")

    @property
    def endpoint(self) -> str:
        """The server of a bucket, empty where its URL says all: two servers may have buckets of one name."""
        return dict(self.options).get("endpoint", "").rstrip("/").lower()

    @property
    def identity(self) -> tuple[str, ...]:
        """The subject of a denial: the place, who asks, and how. A name means something only within its workflow."""
        access = (f"{name}={value}" for name, value in sorted(self.options) if name not in TUNING)
        return (self.place, user_of_url(self.url), self.credentials, *access)

    @property
    def link(self) -> str:
        """The name of its link, which all directories of a server share: nothing of a host, a user or a path can be read from it. A
        measurement under a declared bandwidth says nothing of the link without it. What a directory of this machine can carry depends on
        its disk, so each has its own.
        """
        return link_of(self)

    @property
    def link_of_place(self) -> str:
        """What its link was called while each place had its own: measurements of then have this name."""
        return digest_of("link", *self.identity, dict(self.options).get("bandwidth", ""))

    @property
    def is_over_ssh(self) -> bool:
        return self.kind in (OriginKind.SFTP, OriginKind.SSHFS)

    def reads_behind(self, size_bytes: float) -> bool:
        """Whether a file of this size that is read back comes while the rest of it is on its way."""
        return self.is_over_ssh and size_bytes > READ_BEHIND_BYTES

    @property
    def is_read_back(self) -> bool:
        """Whether a file that is written there crosses the WAN once more, to be verified: over ssh, where its host may not be asked for a
        checksum (it may unless the workflow says no).
        """
        return self.is_over_ssh and dict(self.options).get("shell_checksum", "true").lower() not in ("true", "yes", "1")

    @property
    def bytes_per_s_max(self) -> float | None:
        """The rate that `bandwidth` allows; None: nobody said."""
        text = dict(self.options).get("bandwidth")
        return float(parse_size_bytes(text)) if text else None


@lru_cache(maxsize=1000)
def link_of(origin: Origin) -> str:
    """Kept, since it is asked for at each transfer, and takes a fifth of what the scheduler does for a small final's end."""
    if origin.kind is OriginKind.FILE:
        return origin.link_of_place
    options = dict(origin.options)
    server = server_of_url(origin.url, options.get("endpoint", ""))
    return digest_of("link of server", server, user_of_url(origin.url), options.get("bandwidth", ""))


PLAIN_SH = ("/bin/sh", "-c")
# The input of a job that is the image of its container. No workflow can name another file so.
IMAGE_PATH = ".stager-image"
# The one that is the lock file of its environment of Python packages.
VENV_PATH = ".stager-venv"
# The one that is the lock file of its environment of conda packages.
CONDA_PATH = ".stager-conda"


@acyclic
@dataclass(frozen=True, slots=True)
class JobInput:
    lfn: str
    path: str


@acyclic
@dataclass(frozen=True, slots=True)
class JobOutput:
    lfn: str
    path: str
    optional: bool = False


@acyclic
@dataclass(frozen=True, slots=True)
class Job:
    """Either `argv` or `shell`, a text for `interpreter` (a program and its options; empty in runs of before it could be said: plain sh).
    Paths are relative to the sandbox. `env_pass` names variables taken from the submitter's environment. `kept_by`: what its measures are
    kept by, where its type is its workflow's own. `reuse`: what an earlier run made of the same may stand for it. `isolate`: it writes in
    its sandbox alone. `memory_limit_bytes`: it is ended where its processes hold more; None: nothing is watched.
    """

    id: str
    job_type: str
    argv: tuple[str, ...] = ()
    shell: str = ""
    inputs: tuple[JobInput, ...] = ()
    outputs: tuple[JobOutput, ...] = ()
    after: tuple[str, ...] = ()
    cores: int = 1
    memory_bytes: int | None = None
    retries: int = 2
    timeout_s: float | None = None
    env: tuple[tuple[str, str], ...] = ()
    env_pass: tuple[str, ...] = ()
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    idempotent: bool = True
    deterministic: bool = False
    compute_s: float | None = None
    # Not shown, since plans that were written before them keep their digest (planning/digest.py).
    interpreter: tuple[str, ...] = field(default=(), repr=False)
    kept_by: str = field(default="", repr=False)
    reuse: bool = field(default=True, repr=False)
    isolate: bool = field(default=False, repr=False)
    memory_limit_bytes: int | None = field(default=None, repr=False)

    @property
    def profile(self) -> str:
        """The name of the profile that it adds to, and that is expected of it."""
        return self.kept_by or self.job_type

    @property
    def image(self) -> str | None:
        """The file that its container is made of; None: it runs on the host as it is."""
        return next((entry.lfn for entry in self.inputs if entry.path == IMAGE_PATH), None)

    @property
    def venv(self) -> str | None:
        """The lock file of its environment of Python packages; None: it has none."""
        return next((entry.lfn for entry in self.inputs if entry.path == VENV_PATH), None)

    @property
    def conda(self) -> str | None:
        """The lock file of its environment of conda packages; None: it has none."""
        return next((entry.lfn for entry in self.inputs if entry.path == CONDA_PATH), None)

    @property
    def lfns(self) -> tuple[str, ...]:
        """Of all that it reads and makes."""
        return (*[entry.lfn for entry in self.inputs], *[entry.lfn for entry in self.outputs])

    @property
    def command(self) -> tuple[str, ...]:
        if self.argv or not self.shell:
            return self.argv
        return (*(self.interpreter or PLAIN_SH), self.shell)


@dataclass(frozen=True, slots=True)
class IoHint:
    """The user's word on a job type's I/O; measured profiles win. None: nobody said."""

    job_type: str
    compute_s: float | None = None
    output_bytes: int | None = None
    read_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a workflow file and the value that the file was read with. `given`: by its submitter, so that a resume gives it
    again; else it is the default.
    """

    name: str
    value: str
    given: bool = False


class RunTarget(Record):
    """Somebody whom a workflow wants told of its own runs: exactly one of `webhook` (a URL) and `mail` (an address). `secret`: what the
    administrator calls the key that is signed with; empty: nothing is signed. `on`: kinds of notices, sorted.
    """

    webhook: str = ""
    mail: str = ""
    secret: str = ""
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a workflow says of the money and time of its runs, as it is written; empty: nothing. Who submits it may say otherwise.
    `objective`: `time` or `cost`.
    """

    budget: str = ""
    finish_by: str = ""
    objective: str = ""

    @property
    def said(self) -> bool:
        """It says something."""
        return bool(self.budget or self.finish_by or self.objective)


class Derived:
    """Values that follow from a workflow, kept with it once they are known, and no part of its value."""

    __slots__ = ("digest", "graph")


@dataclass(frozen=True, slots=True)
class Workflow(Derived):
    """`notes` are what a reader saw and did not use, for `validate` to show; nothing decides by them. `engine`: the foreign program that
    runs the jobs itself; empty: we do. Jobs of an engine have no command of stager's. `source_digest`: of the workflow file as it was read;
    empty: nobody kept it. `until`: what it was asked for as far as, of a larger one; empty: all of it. `params`: what its texts were
    filled in with; told, and nothing decides by them. `anew`: a mark of one run, whose inputs are fetched whatever is cached; empty: what
    is cached under the same token is as good. `notify`: who is told of its runs, where the administrator allows it. `bounds`: what is
    taken of money and time where its submitter says nothing. `scatters`: entries whose jobs follow from what another job makes, and
    `scatter_book`: how they follow, for its reader alone.
    """

    name: str
    files: dict[str, File]
    jobs: dict[str, Job]
    origins: dict[str, Origin] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.CONTINUE
    spill_origin: str | None = None
    hints: dict[str, IoHint] = field(default_factory=dict)
    source_path: str = ""
    notes: tuple[str, ...] = ()
    engine: str = ""
    source_digest: str = ""
    until: tuple[str, ...] = ()
    params: tuple[Parameter, ...] = ()
    notify: tuple[RunTarget, ...] = ()
    anew: str = ""
    bounds: Bounds = Bounds()
    scatters: tuple[Scatter, ...] = ()
    scatter_book: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Edges of a workflow, derived once. `order` is a topological order, ties in the order of writing."""

    producer: dict[str, str]
    readers: dict[str, tuple[str, ...]]
    parents: dict[str, tuple[str, ...]]
    children: dict[str, tuple[str, ...]]
    order: tuple[str, ...]


class CycleFound(ValueError):
    """The jobs on one cycle, in order, the first repeated at the end."""

    def __init__(self, jobs: list[str]) -> None:
        super().__init__("jobs wait for each other: " + " -> ".join(jobs))
        self.jobs = jobs


def final_places(workflow: Workflow) -> Iterator[tuple[str, str]]:
    """(lfn, place of its destination) of each final, in the order of writing."""
    roots = {name: origin.place for name, origin in workflow.origins.items()}
    for lfn, file in workflow.files.items():
        if file.destination is not None:
            location = file.destination.location
            yield lfn, f"{roots.get(location.origin, location.origin)}/{location.path}"


def graph_of(workflow: Workflow) -> Graph:
    """Unites data edges with declared ones, once: a workflow that exists does not change, and its readers, its plan, its run and its
    estimate all ask. Raises CycleFound, or ValueError on two producers of one file.
    """
    graph: Graph | None = getattr(workflow, "graph", None)
    if graph is None:
        graph = united(workflow)
        object.__setattr__(workflow, "graph", graph)
    return graph


def united(workflow: Workflow) -> Graph:
    producer: dict[str, str] = {}
    for job in workflow.jobs.values():
        for output in job.outputs:
            if producer.setdefault(output.lfn, job.id) != job.id:
                raise ValueError(f"file {output.lfn!r} has two producers: {producer[output.lfn]!r} and {job.id!r}")
    parents: dict[str, tuple[str, ...]] = {}
    readers: dict[str, tuple[str, ...]] = dict.fromkeys(workflow.files, ())
    children: dict[str, tuple[str, ...]] = dict.fromkeys(workflow.jobs, ())
    # Most have one reader, or one child: lists are made of the others only.
    more_readers: dict[str, list[str]] = {}
    more_children: dict[str, list[str]] = {}
    for job in workflow.jobs.values():
        own, reads = (job.id,), [entry.lfn for entry in job.inputs]
        if len(reads) > 1:
            reads = list(dict.fromkeys(reads))
        for lfn in reads:
            if readers.get(lfn):
                more_readers.setdefault(lfn, []).append(job.id)
            else:
                readers[lfn] = own
        above = tuple([producer[lfn] for lfn in reads if lfn in producer] + [*job.after])
        if len(above) > 1:
            above = tuple(dict.fromkeys(above))
        for parent in above:
            if children[parent]:
                more_children.setdefault(parent, []).append(job.id)
            else:
                children[parent] = own
        parents[job.id] = above
    for firsts, more in ((readers, more_readers), (children, more_children)):
        for name, others in more.items():
            firsts[name] += tuple(others)
    return Graph(producer, readers, parents, children, topological_order(parents, children))


def topological_order(parents: Mapping[str, Sequence[str]], children: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Kahn's order, stable. Raises CycleFound with one cycle."""
    waiting = {job: len(above) for job, above in parents.items()}
    order = [job for job, count in waiting.items() if count == 0]
    for job in order:
        for child in children[job]:
            waiting[child] -= 1
            if waiting[child] == 0:
                order.append(child)
    if len(order) < len(parents):
        raise CycleFound(find_cycle({job for job, count in waiting.items() if count > 0}, parents))
    return tuple(order)


def find_cycle(stuck: set[str], parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Walks up from any stuck job until one comes twice."""
    job = min(stuck)
    seen: dict[str, int] = {}
    path: list[str] = []
    while job not in seen:
        seen[job] = len(path)
        path.append(job)
        job = min(parent for parent in parents[job] if parent in stuck)
    return list(reversed(path[seen[job] :] + [job])) if len(path) > seen[job] else [job, job]


def as_assumed(workflow: Workflow) -> Workflow:
    """As if the members were known: what stands for them runs."""
    return replace(workflow, scatters=()) if unknown(workflow.scatters) else workflow


def values_of(workflow: Workflow) -> dict[str, str]:
    """Of its parameters, by name."""
    return {each.name: each.value for each in workflow.params}


def bandwidths_of(workflow: Workflow) -> dict[str, float]:
    """By origin that has one."""
    return {name: most for name, origin in workflow.origins.items() if (most := origin.bytes_per_s_max) is not None}
