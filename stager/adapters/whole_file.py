"""Files that are under their name whole and on the disk, or not at all: keys, certificates, secrets.

May know: the file system. One rule: nobody whom `mode` keeps out can read them, not even for a moment.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_private(path: Path, data: bytes, *, over: bool = True) -> None:
    """`over` False: raises FileExistsError where there is one already, which stays."""
    write(path, data, 0o600, over=over)


def write_public(path: Path, data: bytes) -> None:
    write(path, data, 0o644, over=True)


def write(path: Path, data: bytes, mode: int, *, over: bool) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if over:
            beside.replace(path)
        else:
            os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
