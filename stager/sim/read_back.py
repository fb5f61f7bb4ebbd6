"""What comes back of uploads to be verified, in the virtual world: a large one over ssh while it is written, the others afterwards.

May know: links. One rule: an upload ends no sooner than all of it has come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stager.sim.clock import Clock
from stager.sim.links import Flow, Links
from stager.sim.ways import way_back_of

if TYPE_CHECKING:
    from stager.sim.transfers import Moving


@dataclass(slots=True)
class ComingBack:
    """While it is written."""

    moving: Moving
    flow: Flow | None = None


class ReadBacks:
    """`ended`: the transfer table's, for an upload whose bytes have passed and come back."""

    def __init__(self, clock: Clock, links: Links, ended: Callable[[Moving], None]) -> None:
        self._clock = clock
        self._links = links
        self._ended = ended
        self.moved_bytes = 0

    def begin(self, moving: Moving) -> None:
        """Beside its upload, if its bytes are under way and come back meanwhile."""
        back = moving.coming_back
        if back is not None and moving.left_bytes is None:
            back.flow = self._links.start(self._clock.now, way_back_of(moving), moving.command.size_bytes, back)

    def is_back(self, moving: Moving) -> bool:
        """All that was uploaded, if it was to come back. It begins to now unless it has begun before."""
        if not moving.to_read_back:
            return True
        moving.to_read_back, moving.verified = False, "readback"
        self.moved_bytes += moving.command.size_bytes
        if moving.coming_back is not None:
            return moving.coming_back.flow is None
        moving.flow = self._links.start(self._clock.now, way_back_of(moving), moving.command.size_bytes, moving)
        return False

    def passed(self, back: ComingBack) -> None:
        back.flow = None
        if back.moving.flow is None:
            self._ended(back.moving)

    def stop(self, moving: Moving) -> None:
        if moving.coming_back is not None and moving.coming_back.flow is not None:
            self._links.stop(self._clock.now, moving.coming_back.flow)
