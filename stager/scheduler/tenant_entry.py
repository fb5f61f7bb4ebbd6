"""The Machine's memory of one tenant.

May know: the model's values. One rule: the same as for all of the state: only shares.py and the apply modules change it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stager.planning.policy import TenantShare


@dataclass(slots=True)
class TenantEntry:
    """`used_s`: the core seconds that its jobs had, by its weight: whoever has least comes first (`shares.py`)."""

    share: TenantShare = field(default_factory=TenantShare)
    used_s: float = 0.0
    cores_used: int = 0  # of its attempts that do not wait for space
