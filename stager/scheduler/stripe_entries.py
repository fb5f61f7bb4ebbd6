"""The Machine's memory of a file that comes in stripes.

May know: nothing. One rule: the same as for all of the state: only accounting and the apply modules change it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PartEntry:
    """One node's part of a file that comes in stripes; its id is its transfer and its generation. `here`: all of it came."""

    id: str
    assembly: str
    node: str
    file: str
    run: str
    size_bytes: int
    here: bool = False  # then somebody assembles it
    cancelled: bool = False


@dataclass(slots=True)
class StripedFetch:
    """A file that comes to `node` in parts (by node, their transfers); `id`: the transfer that assembles them there."""

    id: str
    file: str
    node: str
    parts: dict[str, str] = field(default_factory=dict)  # each of them comes, or is here
