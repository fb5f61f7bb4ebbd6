"""All that has to do with the Machine, composed: its past, the ways to ask it and to tell it, whose runs are whose.

May know: the stores, the runtime. One rule: it only puts together; nothing is decided yet.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from stager.runtime.clock import SteadyClock
from stager.runtime.credentials import CredentialBook
from stager.runtime.inbox import Inbox
from stager.service.inquiry import Inquiry, Pulse
from stager.service.known_runs import KnownRuns
from stager.service.lifetime import Lifetime
from stager.service.rates import Totals
from stager.service.replaying import Replayed
from stager.service.stores import Stores
from stager.service.tenancy import Tenancy


@dataclass(frozen=True, slots=True)
class MachineSide:
    stores: Stores
    past: Replayed
    clock: SteadyClock
    lifetime: Lifetime
    inbox: Inbox
    inquiry: Inquiry
    pulse: Pulse
    runs: KnownRuns
    totals: Totals
    tenancy: Tenancy
    book: CredentialBook


def machine_side(stores: Stores, past: Replayed, clock: SteadyClock, lifetime: Lifetime, tenancy: Tenancy) -> MachineSide:
    """The clock goes on from where the journal ends."""
    now = past.machine.state.now
    clock.go_on_from(now)
    inbox = Inbox(clock)
    inbox.last_at = now
    tenancy.of_runs = {record.run: record.tenant for record in stores.records.all() if record.tenant}
    return MachineSide(
        stores,
        past,
        clock,
        lifetime,
        inbox,
        Inquiry(inbox),
        Pulse(),
        KnownRuns(past.machine, stores.records),
        Totals(time.monotonic),
        tenancy,
        CredentialBook(tenancy.resolve, tenancy.needs_secrets),
    )
