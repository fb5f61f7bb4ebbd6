"""Parts of files in the virtual world: what a node makes of those that it and others fetch, while they come.

May know: nodes and links. One rule: a node has the whole when every part has come to its own node and has passed on from there; when one
part ends in any other way, there is no whole.

A hop follows its part: it is as slow as its own way, and ends no sooner than the part does. What it would wait for its part on the way is
not taken off the links of the inside.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stager.model.errors import ErrorClass, Fault
from stager.scheduler import commands as cmd
from stager.sim.clock import Clock
from stager.sim.links import Flow, Links
from stager.sim.node import Replica, SimNode
from stager.sim.ways import way_between

if TYPE_CHECKING:
    from stager.sim.transfers import Moving

LOST_PART = Fault(ErrorClass.TRANSIENT, "connection_lost", "a part of it will not come")


@dataclass(slots=True)
class Hop:
    """One part on its way from the node that fetches it to the one that assembles."""

    moving: Moving
    part: cmd.Part
    source: SimNode
    flow: Flow | None = None
    passed: bool = False


def part_content(whole: str) -> str:
    """No job may take a part for the file."""
    return f"part of {whole}"


def whole_content(parts: list[Replica]) -> str | None:
    """None: they are not parts of the same."""
    contents = {part.content for part in parts}
    return contents.pop().removeprefix("part of ") if len(contents) == 1 else None


class Assemblies:
    """Those under way. `made` and `fail` are the transfer table's."""

    def __init__(self, clock: Clock, links: Links, made: Callable[[Moving, str, int], None], fail: Callable[[Moving, Fault], None]) -> None:
        self._clock, self._links, self._made, self._fail = clock, links, made, fail
        self._by_part: dict[str, Hop] = {}

    def fault_of(self, moving: Moving, under_way: Container[str]) -> Fault | None:
        """Each part must have come or be under way."""
        for hop in moving.hops:
            if not hop.source.up or not (self._there(hop) or hop.part.transfer in under_way):
                return LOST_PART
        return None

    def begin(self, moving: Moving) -> None:
        """All its hops at once."""
        for hop in moving.hops:
            self._by_part[hop.part.transfer] = hop
            hop.flow = self._links.start(self._clock.now, way_between(hop.source, moving.node), hop.part.size_bytes, hop)

    def passed(self, hop: Hop) -> None:
        """All its bytes have."""
        if hop.moving.state != "moving":
            return
        hop.flow, hop.passed = None, True
        if hop.moving.fault is not None:
            self._fail(hop.moving, hop.moving.fault)
        else:
            self._try_end(hop.moving)

    def part_ended(self, transfer: str, well: bool) -> None:
        """Its fetch is over."""
        hop = self._by_part.get(transfer)
        if hop is not None and well:
            self._try_end(hop.moving)
        elif hop is not None:
            self._fail(hop.moving, LOST_PART)

    def node_died(self, node: SimNode) -> None:
        for hop in [hop for hop in self._by_part.values() if hop.source is node and not hop.passed]:
            if hop.moving.state != "ended":
                self._fail(hop.moving, LOST_PART)

    def stop(self, moving: Moving) -> None:
        """Nothing passes for it any more."""
        for hop in moving.hops:
            if hop.flow is not None:
                self._links.stop(self._clock.now, hop.flow)
            self._by_part.pop(hop.part.transfer, None)

    def _there(self, hop: Hop) -> Replica | None:
        return hop.source.sound(hop.moving.command.file, hop.part.transfer)

    def _try_end(self, moving: Moving) -> None:
        parts = [part for hop in moving.hops if hop.passed and (part := self._there(hop)) is not None]
        if len(parts) < len(moving.hops):
            if all(hop.passed for hop in moving.hops) and not self._is_coming(moving):
                self._fail(moving, LOST_PART)
            return
        content = whole_content(parts)
        if content is None:
            self._fail(moving, Fault(ErrorClass.CORRUPT, "checksum_mismatch", "its parts are of different contents"))
        else:
            self._made(moving, content, sum(part.size_bytes for part in parts))

    def _is_coming(self, moving: Moving) -> bool:
        return any(hop.part.transfer in hop.source.reservations for hop in moving.hops)
