"""The phases of a run of letters in which something is killed: held until it was, however slow the machine is.

One rule: a phase that was reached lasts until `let_go`, or so long that nobody waits that long for a look at it.
"""

from __future__ import annotations

from tests.testbed.letters import Letters
from tests.testbed.link import Link
from tests.testbed.waiting import wait_until

# All that is fetched takes fifteen seconds, all that is uploaded thirty.
SLOW_BYTES_PER_S = 300_000


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
