"""The workers of a tenant's hosts. What they say of an attempt is a tenant's word: what it made is what its I/O node says.

May know: the workers of hosts, the words of gateways. One rule: an attempt is closed at its node before it ends here, so nothing of it is
committed later, and it has made what the node has taken.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec

from stager.adapters.attempt_tickets import COMMITTED, AttemptTickets, made_of
from stager.adapters.gateway_pool import Budget, GatewayPool
from stager.adapters.gateway_words import HostAnswer
from stager.adapters.host_words import by_our_clock
from stager.adapters.host_workers import Ending, Given, HostPlaces, HostWorkers
from stager.model.errors import UNKNOWN_CODE, ErrorClass, Fault, InvalidInput, StagerError, error_from
from stager.scheduler import commands as cmd
from stager.wire.node import ClosedAttempt
from stager.worker import AttemptResult, AttemptWaiting, Outcome
from stager.worker.attempt import NOT_BEGUN_CODE, Measures, fault_from
from stager.worker.node_port import UNASKED_CODES

ANSWER_CODE, NOT_COMMITTED_CODE = "pool_answer", "not_committed"
# Ends that are no tries of their jobs, which begin again at once.
UNCOUNTED_PER_S, UNCOUNTED_AT_ONCE = 1.0, 100.0
TEXT_MAX, NAMES_MAX, NUMBER_MAX = 4000, 100, 2**53


class TenantWorkers(HostWorkers):
    """On the event loop's thread. There is no socket of briefs: each attempt has a ticket."""

    pool: GatewayPool

    def __init__(self, pool: GatewayPool, places: HostPlaces, tickets: AttemptTickets, epoch: int) -> None:
        super().__init__(pool, None, places, tickets, epoch)
        self.uncounted = Budget(UNCOUNTED_PER_S, UNCOUNTED_AT_ONCE)
        self.abandoned: set[str] = set()

    async def abandon(self, attempt_id: str) -> AttemptResult:
        self.abandoned.add(attempt_id)
        try:
            return await super().abandon(attempt_id)
        finally:
            self.abandoned.discard(attempt_id)

    def noted(self, command: cmd.StartAttempt) -> Given:
        """Nothing else is ever given to it, whatever a note says."""
        return replace(super().noted(command), ticketed=True)

    async def ending_in(self, command: cmd.StartAttempt, answer: dict[str, Any]) -> Ending:
        try:
            told = msgspec.convert(answer, HostAnswer)
            if told.waits_bytes is not None:
                return AttemptWaiting(command.attempt, told.waits_bytes)
            if told.unasked is not None:
                raise error_from(clipped(fault_from(told.unasked)))
            if told.ended is None:
                raise ValueError("it says nothing")
            said = checked(command, told.ended, is_to_end=command.attempt in self.called_off | self.abandoned)
            said = by_our_clock(said, number(told.now_s))
            self.printed[command.attempt] = told.printed
        except InvalidInput as problem:
            said = failed(command, problem.fault())
        except (ValueError, KeyError, RecursionError) as problem:
            text = f"the pool of its tenant answers what is no end of job {command.job!r}: {str(problem)[:200]}"
            said = failed(command, Fault(ErrorClass.TRANSIENT, ANSWER_CODE, text, command.job))
        if said.fault is not None and said.fault.code == NOT_BEGUN_CODE:
            await self.uncounted.taken()
        return as_node_says(command, said, await self._closed(command))

    async def _closed(self, command: cmd.StartAttempt) -> ClosedAttempt | None:
        """None: its node knows nothing of it. Raises StagerError where that cannot be asked now."""
        try:
            return await self.tickets.close(command)
        except StagerError as problem:
            if problem.code in UNASKED_CODES:
                raise
            return None


def as_node_says(command: cmd.StartAttempt, said: AttemptResult, closed: ClosedAttempt | None) -> AttemptResult:
    """Outputs of an attempt that failed are to be deleted."""
    made = made_of(command, closed).outputs if closed is not None and closed.state == COMMITTED else None
    if said.outcome is not Outcome.OK:
        return replace(said, void_outputs=made or ())
    if made is None:
        text = f"job {command.job!r} has ended well by the word of its host, and its I/O node has nothing of it"
        return failed(command, Fault(ErrorClass.TRANSIENT, NOT_COMMITTED_CODE, text, command.job))
    return replace(said, outputs=made)


def failed(command: cmd.StartAttempt, fault: Fault) -> AttemptResult:
    return AttemptResult(attempt_id=command.attempt, outcome=Outcome.FAILED, fault=clipped(fault))


def checked(command: cmd.StartAttempt, told: AttemptResult, *, is_to_end: bool = False) -> AttemptResult:
    """What a host can know of its own job, and no more: no outputs, no paths. `is_to_end`: somebody asked for its end. Raises ValueError
    for another attempt's, and for an end that nobody asked for.
    """
    if told.outcome is Outcome.KILLED and not is_to_end:
        raise ValueError("it was ended, and nobody asked for that")
    if told.attempt_id != command.attempt:
        raise ValueError(f"it is about another attempt: {told.attempt_id[:200]!r}")
    return AttemptResult(
        attempt_id=command.attempt,
        outcome=told.outcome,
        fault=clipped(told.fault) if told.fault is not None else None,
        exit_code=whole(told.exit_code),
        signal=whole(told.signal),
        measures=measured(told.measures),
        undeclared=tuple(plain_text(name, TEXT_MAX) for name in told.undeclared[:NAMES_MAX]),
        undeclared_count=whole(told.undeclared_count) or 0,
        started_at_s=number(told.started_at_s),
        fitted_bytes=whole(told.fitted_bytes),
        isolation="none" if told.isolation == "none" else "",
        opened=tuple(plain_text(name, TEXT_MAX) for name in told.opened[:NAMES_MAX]),
        opened_count=whole(told.opened_count) or 0,
    )


def measured(told: Measures) -> Measures:
    counts = {name: whole(getattr(told, name)) for name in Measures.__slots__ if not name.endswith("_s")}
    known = Measures(wall_s=number(told.wall_s), cpu_user_s=number(told.cpu_user_s), cpu_system_s=number(told.cpu_system_s))
    return replace(known, **counts)


def number(said: float | None) -> float | None:
    return said if said is not None and math.isfinite(said) and 0.0 <= said <= NUMBER_MAX else None


def whole(said: int | None) -> int | None:
    return said if said is not None and 0 <= said <= NUMBER_MAX else None


def clipped(fault: Fault) -> Fault:
    """Which replicas a node has is not for a host to say."""
    code = ANSWER_CODE if fault.code == UNKNOWN_CODE else plain_text(fault.code, 100)
    return Fault(fault.error_class, code, plain_text(fault.message, TEXT_MAX), plain_text(fault.subject, TEXT_MAX))


def plain_text(text: str, most: int) -> str:
    """As it may stand on somebody's screen."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text[:most])
