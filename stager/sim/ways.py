"""The links that bytes pass in the virtual world, by where they come from and go to.

May know: nodes. One rule: a way is the names of its links alone, the ones towards the origin first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from stager.sim.node import SimNode

if TYPE_CHECKING:
    from stager.sim.transfers import Moving

# Of a way, those that lead to the origin: the link and the node's line.
LINES = 2
WAYS_KEPT = 10_000


def way_of(moving: Moving) -> tuple[str, ...]:
    """Of the bytes of a transfer."""
    if moving.source is not None:
        return way_between(moving.source, moving.node)
    assert moving.origin is not None
    return way_to(moving.origin.url, moving.node.id, moving.is_incoming)


def way_back_of(moving: Moving) -> tuple[str, ...]:
    """Of what is read back of an upload: into its node, where it is hashed and passes no disk."""
    assert moving.origin is not None, "only uploads are read back"
    return (f"fetch:{moving.origin.url}", f"line:fetch:{moving.origin.url}:{moving.node.id}", f"in:{moving.node.id}")


@lru_cache(maxsize=WAYS_KEPT)
def way_to(url: str, node: str, incoming: bool) -> tuple[str, ...]:
    """The same few again and again, and what is made once is looked up faster."""
    way, network = ("fetch", "in") if incoming else ("upload", "out")
    return (f"{way}:{url}", f"line:{way}:{url}:{node}", f"{network}:{node}", f"disk:{node}")


def way_between(source: SimNode, node: SimNode) -> tuple[str, ...]:
    """A part that the node has itself passes its disk once."""
    if source is node:
        return (f"disk:{node.id}",)
    return (f"disk:{source.id}", f"out:{source.id}", f"in:{node.id}", f"disk:{node.id}")
