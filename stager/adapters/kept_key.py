"""A secret key that is made once and kept in a private file.

May know: the file system. One rule: a file that does not hold a whole key, or that others can read, is made anew.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

KEY_BYTES = 32


def kept_key(path: Path) -> bytes:
    """Nobody else makes it at the same time."""
    try:
        if not path.stat().st_mode & 0o077 and len(key := path.read_bytes()) == KEY_BYTES:
            return key
    except FileNotFoundError:
        pass
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    key = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return key
