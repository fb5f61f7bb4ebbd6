"""The state that a start finds: the Machine as it was when the last scheduler ended, from the journal.

May know: the stores. One rule: a journal that tells only of what is over is not replayed for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from stager.planning.policy import Limits, Policy
from stager.runtime.deciding import deciding_digest
from stager.runtime.outstanding import Outstanding
from stager.runtime.past import Past
from stager.runtime.recovery import recover
from stager.scheduler.machine import Machine
from stager.scheduler.state import OVER
from stager.service.counters import Counters
from stager.service.stores import Stores

FOLD_OVER_BATCHES = 20_000


@dataclass(frozen=True, slots=True)
class Replayed:
    """`past` is fed on the driving thread, `outstanding` on the event loop's. `epoch`: of the scheduler that begins with it."""

    past: Past
    counters: Counters
    outstanding: Outstanding
    epoch: int

    @property
    def machine(self) -> Machine:
        return self.past.machine


def replayed(stores: Stores, limits: Limits) -> Replayed:
    """Long for a long journal."""
    fold_away(stores)
    past = recover(stores.journal, deciding_digest(), lambda: Machine(Policy(), limits), Counters)
    assert isinstance(past.watch, Counters)
    outstanding = past.outstanding.twin()
    return Replayed(past, past.watch, outstanding, next_epoch(stores, outstanding.epoch))


def fold_away(stores: Stores) -> None:
    """A journal that tells only of runs that are over, or that were removed, need not be replayed for ever: their records are kept."""
    records = stores.records.all()
    over = all(record.removed or (record.state in OVER and record.summary is not None) for record in records)
    if over and stores.journal.next_seq > (1 if all(record.removed for record in records) else FOLD_OVER_BATCHES):
        stores.journal.clear()


def next_epoch(stores: Stores, journaled: int) -> int:
    """Grows over every start, also when the journal was moved away: the node remembers."""
    epoch = stores.records.next_number("epoch")
    while epoch <= journaled:
        epoch = stores.records.next_number("epoch")
    return epoch
