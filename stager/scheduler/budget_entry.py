"""The Machine's memory of the money of one run: what it has moved, what it owes, what was told.

May know: the budget. One rule: only spending.py changes it, when an event or a command is applied.
"""

from __future__ import annotations

import msgspec

from stager.model.errors import Fault
from stager.model.record import StateEntry
from stager.planning.budget import Moved


class Promise(StateEntry):
    """What one attempt that is under way was expected to come to when it began: finals, their bytes at most, and what it reads directly.
    The run may have another plan when it ends.
    """

    files: int
    size_bytes: int
    reads: Moved


class BudgetEntry(StateEntry):
    """`moved`: by transfers and attempts that ended. `going_home`: finals that exist and are not at their destinations, by file, and the
    sum of their bytes. `promises`: of attempts under way; their sums are `promised`, finals that they will make, `promised_bytes`, as large
    as these may get, and `promised_reads`. `ends`: (when it ends at the latest, negative; attempt) of attempts under way, the last first;
    entries may be out of date. `paused`: why the run takes up no more jobs. `ends_s`: when jobs were to end, by the plan; empty until
    somebody asks. `told_cost` and `told_time`: somebody was told that the forecast is above the amount, or behind the time.
    """

    moved: Moved
    going_home: dict[str, int] = {}
    home_bytes: int = 0  # the sum of `going_home`
    promises: dict[str, Promise] = {}
    promised: int = 0
    promised_bytes: int = 0
    promised_reads: Moved = msgspec.field(default_factory=Moved)
    ends: list[tuple[float, str]] = []
    paused: Fault | None = None
    told_cost: bool = False
    told_time: bool = False
    ends_s: list[float] = []
