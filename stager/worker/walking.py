"""Goes through a directory that a job may have made, of whatever depth.

May know: the file system. One rule: no link is followed, and what cannot be read is passed over without a word.
"""

from __future__ import annotations

import os
from collections.abc import Iterator


def walked(root: str | os.PathLike[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each directory, what is in it before the next, and its directories and all else by name, as from `os.walk`: whoever asks may sort the
    directories, and take some out. That one calls itself for each level before Python 3.12.
    """
    waiting = [os.fspath(root)]
    while waiting:
        here = waiting.pop()
        directories: list[str] = []
        others: list[str] = []
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    (directories if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        except OSError:
            continue
        yield here, directories, others
        waiting += [f"{here}/{name}" for name in reversed(directories)]
