"""The effect of a failed try of a transfer: counts, the time since which its origin has been away, sources without hope.

May know: the state. One rule: it counts; what follows from the counts is decided in retries.py.
"""

from __future__ import annotations

from stager.model.errors import Fault, is_permanent, is_unreachable
from stager.scheduler.state import FileEntry, Retries, State, TransferEntry


def note_failure(state: State, file: FileEntry, retries: Retries, transfer: TransferEntry, fault: Fault) -> None:
    """An answer, even a bad one, ends a row of tries that met nobody, unless it is another source that gave it."""
    retries.last, retries.origin, retries.last_at = fault, transfer.origin, state.now
    if transfer.source:
        retries.copies_failed += 1
        return
    if is_unreachable(fault):
        retries.outages, retries.outages_here = retries.outages + 1, retries.outages_here + 1
        retries.away_since = state.now if retries.away_since is None else retries.away_since
        identity = state.origin_identity(transfer.run, transfer.origin)
        if state.now - state.reached.get(identity, -state.policy.retry_delay_s_max) >= state.policy.retry_delay_s_max:
            # Where others have just been answered, it is this file's own trouble, and its pauses grow.
            state.away[identity] = None
        return
    retries.failures += 1
    if is_permanent(fault) or retries.failures >= state.policy.transfer_attempts_max:
        retries.hopeless.append(file.source_at)
    if len(file.sources) < 2:
        retries.outages, retries.away_since = 0, None
