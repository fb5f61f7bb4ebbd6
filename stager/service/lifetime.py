"""Where the scheduler is between its start and its end. One rule: each mark is set once and never taken back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Lifetime:
    """On the event loop's thread. `ready`: the Machine knows the nodes that this scheduler cannot do without. `ending`: it takes no more
    runs. `ended`: nothing is decided any more; `failure` is what it ended by, where that was not in order.
    """

    started_at: float
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ending: bool = False
    failure: BaseException | None = None
