"""Time that passes, whatever becomes of the wall clock: the seconds of this boot, those of sleep included.

One rule: two readings can be compared within one boot only; `boot_id` tells which that was.
"""

from __future__ import annotations

import time
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def since_boot_s() -> float:
    """Nobody can set this clock, and unlike CLOCK_MONOTONIC it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Empty where it cannot be told."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
