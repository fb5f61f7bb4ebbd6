"""The checker that checks nothing. One rule: others override what they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stager.sim.world import SimWorld


class QuietChecker:
    def heard(self, world: SimWorld, events: Sequence[Any]) -> None:
        """The Machine has been told these."""

    def about_to(self, world: SimWorld, command: Any) -> None:
        """This command is about to be done."""

    def after(self, world: SimWorld) -> None:
        """All commands of a batch have been done."""

    def at_end(self, world: SimWorld) -> None:
        """Nothing more will happen."""
