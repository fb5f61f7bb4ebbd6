"""How much of what was made for jobs stays when no job uses it."""

from __future__ import annotations

from dataclasses import dataclass

KEEP_BYTES = 20_000_000_000


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """Of unpacked images, and of environments of packages."""

    images_bytes: int = KEEP_BYTES
    environments_bytes: int = KEEP_BYTES
