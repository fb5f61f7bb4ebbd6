"""A Unix socket of its owner alone, at a path of any length.

May know: sockets. One rule: nobody else reaches it, from its first moment.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path


def listen(path: Path) -> socket.socket:
    """0600 from its first moment; a path too long for a socket is named through its directory's descriptor."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    before = os.umask(0o177)
    try:
        listening.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.umask(before)
        os.close(directory)
    listening.listen(128)
    listening.setblocking(False)
    return listening
