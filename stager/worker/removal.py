"""Removes a directory with all that a job may have left in it: directories that their owner may not write into, and that lie deeper than a
path can name.

May know: the file system. One rule: no link is followed, and what cannot be removed stays without a word.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove_tree(root: str | os.PathLike[str]) -> None:
    """Step by step: `shutil.rmtree` calls itself for each level, and stops where its owner may not write."""
    with suppress(OSError):
        top = opened(os.fspath(root))
        try:
            waiting = emptied(top, top)
            while waiting:
                name = waiting.pop()
                with suppress(OSError):
                    waiting += emptied_in(top, name)
                    os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(root)


def emptied_in(top: int, name: str) -> list[str]:
    here = opened(name, top)
    try:
        return emptied(here, top)
    finally:
        os.close(here)


def emptied(here: int, top: int) -> list[str]:
    """Its files go, and its directories come up to lie in `top`. What those are called there."""
    with os.scandir(here) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    raised = []
    for name, is_directory in found:
        with suppress(OSError):
            if not is_directory:
                os.unlink(name, dir_fd=here)
            elif here == top:
                raised.append(name)
            else:
                raised.append(raise_up(name, here, top))
    return raised


def raise_up(name: str, here: int, top: int) -> str:
    # One that its owner may not write into stays where it is.
    os.close(opened(name, here))
    fresh = f".{secrets.token_hex(8)}"
    os.rename(name, fresh, src_dir_fd=here, dst_dir_fd=top)
    return fresh


def opened(name: str, above: int | None = None) -> int:
    """To be listed and written into."""
    found = os.open(name, STEP, dir_fd=above)
    try:
        itself = f"/proc/self/fd/{found}"
        with suppress(OSError):
            os.chmod(itself, 0o700)
        return os.open(itself, LIST)
    finally:
        os.close(found)
