"""An attempt that is under way, in the state.

One rule: a plain record.
"""

from __future__ import annotations

from stager.model.record import StateEntry


class AttemptEntry(StateEntry):
    """`call`: of the engine, whose attempt it is. `host`: where it runs; empty where nobody reported any host. `charged_s`: core seconds by
    weight that its tenant was charged ahead, `slot_s`: at this time.
    """

    run: str
    job: str
    node: str
    number: int
    reserve_bytes: int
    started_at: float
    needed_bytes: int | None = None  # not None: among the waiting attempts of its node, and takes no cores
    killed: bool = False
    void: bool = False
    call: str = ""
    host: str = ""
    slot_cores: int = 0  # of its tenant's, while it has a slot
    slot_s: float = 0.0
    charged_s: float = 0.0
