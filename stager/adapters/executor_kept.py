"""The sandboxes of jobs that ended: those of failed ones are kept, and go when their jobs succeed or room is wanted.

May know: the kept sandboxes, the Machine's commands. One rule: nobody waits for what takes long. Threads do that, beside the attempts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from stager.model.errors import SANDBOX_FULL_CODE
from stager.scheduler import commands as cmd
from stager.tasks import Tasks
from stager.worker import AttemptResult, KeptSandboxes, Outcome

log = logging.getLogger(__name__)


class Surroundings(Protocol):
    async def owed_bytes(self) -> int:
        """The bytes that the I/O node may still take of the disk of the state directory."""


class Keeper:
    """On the event loop's thread."""

    def __init__(self, kept_sandboxes: KeptSandboxes, surroundings: Surroundings, tasks: Tasks) -> None:
        self.kept_sandboxes, self.surroundings, self.tasks = kept_sandboxes, surroundings, tasks

    async def free_space(self, ending: AttemptResult) -> None:
        """Before the end of this attempt is told: where it found the disk full, its next try begins without what was kept."""
        if not is_full(ending) or not self.kept_sandboxes.kept:
            return
        try:
            await asyncio.to_thread(self.kept_sandboxes.clear)
        except OSError as problem:
            log.warning("the kept sandboxes of failed jobs cannot be removed: %s", problem)

    def takes(self, command: cmd.StartAttempt, ending: AttemptResult) -> bool:
        """The end of this attempt is in the journal. Whether its directory is kept now."""
        kept_sandboxes = self.kept_sandboxes
        if is_full(ending):
            return False
        if ending.outcome is Outcome.OK and (command.run, command.job) in kept_sandboxes.kept:
            self.tasks.start(f"the removal of what is kept of job {command.job}", self._drop(command))
        elif ending.outcome is Outcome.FAILED and self._take(command.attempt):
            self.tasks.start("the look through what is kept", self.trim())
            return True
        return False

    async def found(self, attempt: str) -> bool:
        """A crash left the directory of this attempt, whose end was recorded. Whether it is kept now."""
        return await asyncio.to_thread(self._take, attempt)

    async def trim(self) -> None:
        if not self.kept_sandboxes.kept:
            return
        owed_bytes = await self.surroundings.owed_bytes()
        try:
            await asyncio.to_thread(self.kept_sandboxes.trim, owed_bytes)
        except OSError as problem:
            log.warning("the kept sandboxes of failed jobs cannot be read: %s", problem)

    def _take(self, attempt: str) -> bool:
        try:
            return self.kept_sandboxes.take(attempt)
        except OSError as problem:
            log.warning("the sandbox of attempt %s cannot be kept: %s", attempt, problem)
            return False

    async def _drop(self, command: cmd.StartAttempt) -> None:
        await asyncio.to_thread(self.kept_sandboxes.drop, command.run, command.job)


def is_full(ending: AttemptResult) -> bool:
    return ending.fault is not None and ending.fault.code == SANDBOX_FULL_CODE
