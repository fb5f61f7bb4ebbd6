"""The ports: what the project needs from outside, as Protocols. The docstrings are the contract. Adapters satisfy it, and conformance
suites check that they do.

May know: the pure packages. One rule: ports take values and return values; an adapter never sees the Machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from stager.model.errors import Fault, StagerError
from stager.model.workflow import Origin

if TYPE_CHECKING:
    from stager.scheduler.commands import Command
    from stager.scheduler.events import Event
    from stager.wire import node as said

Body = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class OriginEntry:
    """One file or directory seen at an origin. `token` tells two contents at one path apart; `settled` is False when it was written less
    than 2 s ago.
    """

    path: str
    size_bytes: int
    token: str
    kind: str = "file"
    settled: bool = True
    mtime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry that a listing saw and cannot give as a file; `why` is a word of the wire. `directory`: files may lie below it, unseen."""

    path: str
    why: str
    directory: bool = False


class DirectoryListing(NamedTuple):
    """Both sorted by path."""

    files: list[OriginEntry]
    left_out: list[LeftOut]


@dataclass(frozen=True, slots=True)
class Probe:
    """`file_system`: which one of its host the room is of; empty where that is not known."""

    reachable: bool
    writable: bool | None
    free_bytes: int | None
    findings: tuple[Fault, ...]
    file_system: str = ""


class OriginAccess(Protocol):
    """Metadata of origins, never bytes. Blocking; batched and parallel inside. `secrets` are held by the adapter, not passed around."""

    def stat(self, origin: Origin, paths: Sequence[str]) -> list[OriginEntry | Fault]:
        """In the order asked, one answer a path. Raises only if the origin as a whole cannot be asked."""

    def list(self, origin: Origin, prefix: str, *, recursive: bool = True, limit: int = 1_000_000) -> DirectoryListing:
        """All files below the prefix (a directory, not a string prefix), and what else is there and cannot be read as one. More than
        `limit` is InvalidInput, an unknown directory an empty list.
        """

    def probe(self, origin: Origin, path: str, *, write: bool) -> Probe:
        """Reachable, writable, room; leaves nothing behind."""


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image of a registry. `exact`: its name with the digest that its tag has now. `directory`, `file_name`: where its archive is, or
    will be. `is_here` False: it was not pulled yet, and `size_bytes` is what that takes.
    """

    name: str
    exact: str
    size_bytes: int
    directory: str
    file_name: str
    is_here: bool


class ImageAccess(Protocol):
    """Registries of images."""

    def image(self, text: str) -> RegistryImage:
        """By `docker://HOST/NAME:TAG`. Raises StagerError."""


class Put(Protocol):
    """Tells the Machine a fact, from any thread. Time is stamped on it when it is taken."""

    def __call__(self, event: Event, on_durable: Callable[[], None] | None = None, /) -> None:
        """`on_durable` is called once the journal holds the event."""


class World(Protocol):
    """The world that a Machine lives in. LiveWorld and SimWorld are the only two."""

    def events(self) -> Iterable[Sequence[Event]]:
        """Batches of events, in order, `at` never going back; ends when there is nothing left to wait for. Blocks (live) or moves the
        virtual clock (sim).
        """

    def perform(self, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """Journal both as one fact, then do the commands. Never calls the Machine."""


class Batch(NamedTuple):
    """Numbers grow; `version` is of the code that decided it (runtime/deciding.py)."""

    number: int
    version: str
    events: Sequence[Event]
    commands: Sequence[Command]


class Snapshot(NamedTuple):
    """A state that a replay may begin with instead of the batches up to `number`."""

    number: int
    parts: dict[str, object]


class Journal(Protocol):
    """Batches of events and the commands they led to, in order, durable when `append` returns. Formats carry a version: newer is refused.

    A snapshot is a short cut and never the truth: no batch is dropped because of one.
    """

    def append(self, events: Sequence[Event], commands: Sequence[Command]) -> int:
        """The batch's number."""

    def batches(self, after: int = 0) -> Iterable[Batch]:
        """Those with larger numbers, oldest first."""

    def batch(self, number: int) -> Batch:
        """Raises KeyError if there is none."""

    def snapshot(self, parts: Mapping[str, object]) -> None:
        """Keeps these dataclasses, as of the last batch, in the place of any snapshot before. They may change once it returned.

        It is stored when the journal is closed, or before; what cannot be stored is logged.
        """

    def newest_snapshot(self, kinds: Mapping[str, type]) -> Snapshot | None:
        """Its parts as these classes. None: there is none that this code wrote and that is sound; why one is not taken is logged."""

    def close(self) -> None: ...


class NodeClient(Protocol):
    """Control of one I/O node (docs/formats/ionode-api.md). Questions are written as on the wire. Errors are raised as StagerError with
    the node's class and code.
    """

    async def node(self) -> said.NodeAbout: ...
    async def state(self) -> said.NodeState: ...
    async def put_origin(self, origin_id: str, config: Mapping[str, object]) -> None: ...
    async def allow(
        self, origin_id: str, bytes_per_s: int | None, connections: int | None, lease_s: float | None, *, timeout_s: float
    ) -> int: ...
    async def stat(self, origin_id: str, paths: Sequence[str]) -> list[said.StatEntry]: ...
    async def get_ready(self, origin_id: str, files: int) -> None: ...
    async def put_mount(self, origin_id: str) -> said.MountAnswer: ...
    async def put_transfer(self, transfer_id: str, body: Body, *, command_id: str) -> said.TransferAnswer: ...
    async def put_transfers(self, asked: Sequence[tuple[str, Body, str]]) -> list[said.TransferAnswer | StagerError]: ...
    async def cancel_transfer(self, transfer_id: str, *, command_id: str) -> None: ...
    async def transfers(self) -> list[said.NodeTransfer]: ...
    async def poll_events(self, after: int, *, wait_s: float) -> said.EventPage: ...
    async def ack_events(self, seq: int) -> None: ...
    async def delete_replicas(self, asked: Sequence[tuple[str, str, str]]) -> list[StagerError | None]: ...
    async def erase(self, origin_id: str, path: str, token: str | None, *, command_id: str) -> bool: ...
    async def put_reservation(self, reservation_id: str, size_bytes: int) -> None: ...
    async def stage_in(self, attempt_id: str, body: Body) -> said.StagedIn: ...
    async def stage_out(self, attempt_id: str, body: Body) -> said.StagedOut: ...
    async def release(self, attempt_id: str, body: Body) -> said.Released: ...
    async def shutdown(self, drain_s: float = 0.0) -> None: ...
