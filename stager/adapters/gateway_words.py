"""What the service and the gateway of a tenant's pool say to each other: frames of JSON over TLS, each with its length before it.

May know: the words of hosts. One rule: both sides take plain values of the types that are written here, bounded in size, and nothing that
either says is ever run.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypeVar

import msgspec

from stager.adapters.host_agent import LOG_PIECE_BYTES_MAX
from stager.adapters.host_words import Asked, Call, HostFacts
from stager.worker import AttemptResult
from stager.worker.collecting import Collected

FRAME_BYTES_MAX = 4 << 20
LENGTH_BYTES = 4
# Each second one comes, so that a line that is dead is found out.
BEAT_S = 1.0
SILENT_AFTER_S = 15.0
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(max_length=128)]
# What may be asked of hosts beside what runs there.
ASKABLE = frozenset({Asked.KILL, Asked.FORGET, Asked.SWEEP, Asked.READ_LOG, Asked.COLLECT})

M = TypeVar("M")


class Misspoken(ConnectionError):
    """The other side says what is none of these messages."""


class CallHost(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """A step of an attempt. `key`: one for each step of it, whoever asks and how often."""

    id: int
    key: Name
    host: Name
    cores: Count
    call: Call


class AskHost(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """`args`: of that function of the host's agent."""

    id: int
    host: Name
    what: Asked
    args: list[str | int | list[str]]


class NotWanted(msgspec.Struct, frozen=True, kw_only=True, tag="not_wanted"):
    """Nobody waits for the answer to this any more."""

    id: int


class HostThere(msgspec.Struct, frozen=True, kw_only=True):
    """`met`: how often it was; a host that was met again has not heard which attempts are over."""

    facts: HostFacts
    met: Count


class HostsThere(msgspec.Struct, frozen=True, kw_only=True, tag="hosts"):
    """All that answer now; None: the same as before. `problem`: why the pool itself does not answer; empty: it does."""

    hosts: list[HostThere] | None = None
    problem: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    id: int
    answer: Any


class Unanswered(msgspec.Struct, frozen=True, kw_only=True, tag="unanswered"):
    """Neither Dask nor the host had an answer, which says nothing about the attempt."""

    id: int
    why: Annotated[str, msgspec.Meta(max_length=1000)]


class HostAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """To a CallHost: one of the three. `printed`: how much the attempt has printed, by stream. `now_s`: what the host's clock says."""

    ended: AttemptResult | None = None
    waits_bytes: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    unasked: dict[str, str] | None = None
    printed: dict[str, Count] = {}
    now_s: float | None = None


ToGateway = CallHost | AskHost | NotWanted
FromGateway = HostsThere | Answer | Unanswered
TO_GATEWAY: msgspec.json.Decoder[ToGateway] = msgspec.json.Decoder(ToGateway)
FROM_GATEWAY: msgspec.json.Decoder[FromGateway] = msgspec.json.Decoder(FromGateway)


def frame_of(message: ToGateway | FromGateway) -> bytes:
    """Raises ValueError for one that is too large."""
    data = msgspec.json.encode(message)
    if len(data) > FRAME_BYTES_MAX:
        raise ValueError(f"a message of {len(data)} bytes is more than a gateway takes ({FRAME_BYTES_MAX})")
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Raises Misspoken, or ConnectionError where the other side is gone."""
    try:
        size_bytes = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        if size_bytes > FRAME_BYTES_MAX:
            raise Misspoken(f"it says a message of {size_bytes} bytes, and may say {FRAME_BYTES_MAX}")
        return await reader.readexactly(size_bytes)
    except asyncio.IncompleteReadError as problem:
        raise ConnectionError("it has closed the connection") from problem


def understood(decoder: msgspec.json.Decoder[M], data: bytes) -> M:
    """Raises Misspoken."""
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as problem:
        raise Misspoken(f"it says what is no message of a gateway: {str(problem)[:200]}") from problem


def collected_in(answer: Any) -> Collected:
    """Raises ValueError."""
    return msgspec.convert(answer, Collected)


def piece_in(answer: Any) -> tuple[int, bytes]:
    """Of a log: its size in all, and what was read. Raises ValueError."""
    size_bytes, piece = msgspec.convert(answer, tuple[Count, bytes])
    if len(piece) > LOG_PIECE_BYTES_MAX:
        raise ValueError(f"a piece of {len(piece)} bytes")
    return size_bytes, piece
