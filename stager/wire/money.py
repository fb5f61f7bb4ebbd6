"""Bodies about what a run costs. One rule: what is spent follows from measured bytes, requests and time; a forecast says so."""

from __future__ import annotations

from stager.wire.body import Body


class BudgetView(Body):
    """Of a run that was submitted with a budget or a time to finish by. `amount` None: it may cost whatever it does; `finish_by` None: it
    may end whenever it does. `set_aside`: what ending it now would cost, at most: until attempts have ended and finals are home. `forecast`
    and `ends_at`: what it is expected to cost in all, and when to end; of one that has ended, what it did. `paused`: why it takes up no
    more jobs; empty: it does.
    """

    currency: str
    amount: float | None = None
    spent: float
    set_aside: float = 0.0
    forecast: float
    finish_by: float | None = None
    ends_at: float
    paused: str = ""
