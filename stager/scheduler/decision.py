"""One decision: the event that is answered and the commands emitted so far. One rule: a command is applied when it is emitted, so that
the next decision sees it.
"""

from __future__ import annotations

import hashlib
from typing import Any

from stager.scheduler.apply_commands import apply_command
from stager.scheduler.commands import Command
from stager.scheduler.state import State

# Far beyond any longest delay; and what is tried for days must not grow beyond what a float holds.
DOUBLINGS_MAX = 32


class Decision:
    """`rehomed`: jobs went to other nodes, which may have been worked already."""

    __slots__ = ("cause", "commands", "rehomed", "state")

    def __init__(self, state: State, cause: str) -> None:
        self.state, self.cause, self.rehomed = state, cause, False
        self.commands: list[Command] = []

    def emit(self, kind: type, **facts: Any) -> None:
        """Makes the command, and gives it."""
        facts["id"], facts["at"], facts["cause"] = self.next_id(), self.state.now, self.cause
        self.give(kind(**facts))

    def give(self, command: Command) -> None:
        """Applies it, keeps it. What every job needs is made where it is given, which takes half of the time."""
        apply_command(self.state, command)
        self.commands.append(command)

    def next_id(self) -> str:
        """Of the command that is given next."""
        return f"c{self.state.epoch}-{self.state.commands_made}"

    def new_transfer(self) -> str:
        return f"t{self.state.epoch}-{self.state.commands_made}"

    def retry_at(self, failures: int, subject: str) -> float:
        """Doubling delay with jitter from what is retried, so that a replay waits the same."""
        policy = self.state.policy
        doublings = min(max(0, failures - 1), DOUBLINGS_MAX)
        delay_s = min(policy.retry_delay_s * 2.0**doublings, policy.retry_delay_s_max)
        fraction = int.from_bytes(hashlib.blake2b(f"{subject}/{failures}".encode(), digest_size=4).digest(), "big") / 2**32
        return self.state.now + delay_s * (0.5 + fraction / 2)
