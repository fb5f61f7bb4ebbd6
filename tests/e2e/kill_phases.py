"""The phases of a run of letters in which something is killed: held until it was, however slow the machine is.

One rule: a phase that was reached lasts until `let_go`, or so long that nobody waits that long for a look at it.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import pytest

from tests.testbed.letters import Letters
from tests.testbed.link import Link
from tests.testbed.waiting import wait_until

# All that is fetched takes fifteen seconds, all that is uploaded thirty.
SLOW_BYTES_PER_S = 300_000

ROUNDS = int(os.environ.get("STAGER_KILL_ROUNDS", "1"))


def cells(victims: Collection[str], phases: Collection[str], of_each_day: Collection[tuple[str, str]]) -> list[Any]:
    """Of a matrix of kills, STAGER_KILL_ROUNDS times. Those that are not `of_each_day` are for `make kill-matrix` and `make heavy`.

    Each victim and each phase is met each day.
    """
    assert {victim for victim, _ in of_each_day} == set(victims) and {phase for _, phase in of_each_day} == set(phases)
    return [
        pytest.param(
            victim, phase, number, id=f"{victim}-{phase}-{number}", marks=[] if (victim, phase) in of_each_day else [pytest.mark.heavy]
        )
        for number in range(ROUNDS)
        for victim in victims
        for phase in phases
    ]


class Phase:
    """Made before the workflow is submitted. `fetching`, `running` (its first jobs are done) or `uploading`."""

    def __init__(self, name: str, letters: Letters, line: Link) -> None:
        self.name, self.letters, self.line = name, letters, line
        line.bytes_per_s = SLOW_BYTES_PER_S if name == "fetching" else None
        self.gate = None if name == "fetching" else letters.hold("stamp")

    def begin(self) -> None:
        """After it was submitted."""
        if self.gate is not None:
            wait_until(lambda: len(self.letters.ended()) == self.letters.count, "the first jobs to end")
        if self.name == "uploading" and self.gate is not None:
            self.line.bytes_per_s = SLOW_BYTES_PER_S
            self.gate.touch()

    def let_go(self) -> None:
        self.line.bytes_per_s = None
        if self.gate is not None:
            self.gate.touch()
