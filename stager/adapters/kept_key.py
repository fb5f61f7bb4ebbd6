"""A secret key that is made once and kept in a private file.

May know: the file system. One rule: a file that does not hold a whole key, or that others can read, is made anew.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from stager.adapters.whole_file import write_private

KEY_BYTES = 32


def kept_key(path: Path) -> bytes:
    """Nobody else makes it at the same time."""
    try:
        if not path.stat().st_mode & 0o077 and len(key := path.read_bytes()) == KEY_BYTES:
            return key
    except FileNotFoundError:
        pass
    key = secrets.token_bytes(KEY_BYTES)
    write_private(path, key)
    return key
