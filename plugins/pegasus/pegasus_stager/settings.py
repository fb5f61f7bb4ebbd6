"""The environment, read once: Pegasus tells its programs through it what is asked of them.

May know: names of variables. One rule: nothing else of the package looks at the environment; what it needs is passed on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pegasus_stager.failures import ListRefused

THREADS, THREADS_MAX = 8, 1 << 20
# Set for the program we call, so that a `pegasus-transfer` that leads back to us is found out.
CALLED = "STAGER_TRANSFER_CALLED"
# What attach writes into the submit directory.
ATTACHED = "stager-attached.json"


class TransferSettings:
    """The settings that the environment gives. A wrong value is an error before anything is moved."""

    __slots__ = ("attached", "called", "environ", "error_percent", "integrity_file", "leaves", "multipart_dir", "threads")

    def __init__(self, environ: Mapping[str, str], threads: int = 0) -> None:
        """`threads`: as an option says, which comes first; 0: none does."""
        self.environ = environ
        self.multipart_dir = environ.get("PEGASUS_MULTIPART_DIR") or None
        self.integrity_file = environ.get("KICKSTART_INTEGRITY_DATA") or None
        self.threads = threads or number(environ, "PEGASUS_TRANSFER_THREADS", THREADS, 1, THREADS_MAX)
        self.error_percent = number(environ, "PEGASUS_TRANSFER_ERROR_RATE", 0, 0, 100)
        # Protocols that pegasus-transfer shall keep.
        self.leaves = frozenset(environ.get("STAGER_TRANSFER_LEAVES", "").replace(",", " ").split())
        self.called = CALLED in environ
        self.attached = attached_place(environ)


def attached_place(environ: Mapping[str, str]) -> str:
    """Where `stager pegasus attach` has left word for this job; empty: nowhere. An empty STAGER_ATTACHED: it is not looked for."""
    if not environ.get("PEGASUS_DAG_JOB_ID"):
        return ""
    if "STAGER_ATTACHED" in environ:
        return environ["STAGER_ATTACHED"]
    for directory in (environ.get("_PEGASUS_WF_SUBMIT_DIR", ""), working_directory()):
        place = os.path.join(directory, ATTACHED)
        if directory and os.path.exists(place):
            return place
    return ""


def working_directory() -> str:
    """Empty: it was removed under us."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def number(environ: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environ.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ListRefused(f"{name}={text!r} in the environment is not a number from {least} to {most}; correct or unset it")
    return value


def settings(threads: int) -> TransferSettings:
    return TransferSettings(os.environ, threads)
