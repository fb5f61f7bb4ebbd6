"""Attempts on the hosts of a pool that the scheduler has no more: each is closed at its node, and lost.

May know: the executor of attempts on hosts. One rule: an attempt is lost once nothing of it can be committed any more; one that was
committed before has ended well.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

from stager.adapters.attempt_tickets import COMMITTED, made_of
from stager.adapters.executor_dask import Surroundings
from stager.adapters.executor_local import AttemptExecutor, AttemptWorker
from stager.ports import Put
from stager.scheduler import commands as cmd
from stager.tasks import tried_until_done
from stager.worker import AttemptResult, Outcome
from stager.worker.attempt import lost_fault

log = logging.getLogger(__name__)


class HostlessExecutor(AttemptExecutor):
    """On the event loop's thread. No worker of these hosts can be asked."""

    surroundings: Surroundings

    def __init__(self, put: Put, surroundings: Surroundings) -> None:
        super().__init__(cast(AttemptWorker, None), put, surroundings)

    def start(self, command: cmd.StartAttempt) -> None:
        if command.attempt not in self.started:
            self.started[command.attempt] = command
            log.warning(
                "attempt %s is on host %s of a pool that this scheduler does not have: it is given up", command.attempt, command.host
            )
            name = f"the end of attempt {command.attempt}"
            self.tasks.start(name, tried_until_done(name, lambda: self._close_lost(command)))

    def grant(self, command: cmd.GrantSpace) -> None:
        """It is on its way to its end."""

    def kill(self, command: cmd.KillAttempt) -> None:
        """It is on its way to its end."""

    def was_begun(self, attempt: str) -> bool:
        return True

    async def drop(self, attempts: Sequence[str]) -> None:
        """Their hosts have what they left."""

    async def _close_lost(self, command: cmd.StartAttempt) -> None:
        """Nobody remembers here whether it had a ticket."""
        closed = await self.surroundings.close_attempt(command, ticketed=True)
        if closed is not None and closed.state == COMMITTED:
            self._told(command, made_of(command, closed))
            return
        await self.surroundings.close_attempt(command, ticketed=False)
        self._told(command, AttemptResult(attempt_id=command.attempt, outcome=Outcome.LOST, fault=lost_fault(command.job)))
