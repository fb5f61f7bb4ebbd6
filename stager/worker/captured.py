"""Puts what a job wrote to stdout or stderr where it is declared as an output.

May know: one sandbox and one log file. One rule: the job had the sandbox to itself, so no step in it follows a symlink.
"""

from __future__ import annotations

import errno
import os

from stager.model.errors import InvalidInput

STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CHUNK_BYTES = 64 << 20


def put_log(log_path: str, sandbox: str, path: str) -> None:
    """Raises InvalidInput if the way there leads out of the sandbox."""
    *directories, name = path.split("/")
    here = os.open(sandbox, STEP)
    try:
        for directory in directories:
            here = step_into(here, directory, path)
        copy_into(log_path, here, name)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR):
            raise escaped(path) from problem
        raise
    finally:
        os.close(here)


def step_into(parent: int, name: str, path: str) -> int:
    """Closes `parent` once the next one is open."""
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        pass
    child = os.open(name, STEP, dir_fd=parent)
    os.close(parent)
    return child


def copy_into(log_path: str, directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    # O_EXCL: whatever appears there meanwhile is not written to.
    target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    with open(log_path, "rb", buffering=0) as source, open(target, "wb", buffering=0) as sink:
        while os.sendfile(sink.fileno(), source.fileno(), None, CHUNK_BYTES):
            pass


def escaped(path: str) -> InvalidInput:
    text = f"the job put something else than a directory on the way to its output {path!r}; outputs must be regular files in the sandbox"
    return InvalidInput(text, code="output_escapes", subject=path)
