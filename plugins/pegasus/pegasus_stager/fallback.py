"""The real pegasus-transfer: found, and called once with all that stager-transfer does not serve.

May know: where Pegasus installs it. One rule: it is never we ourselves under its name, in whatever way the name leads to us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from pegasus_stager.failures import ListRefused
from pegasus_stager.lists import ListEntry
from pegasus_stager.settings import CALLED, TransferSettings

NAME = "pegasus-transfer"
VARIABLE = "PEGASUS_TRANSFER_FALLBACK"
ADVICE = f"put {NAME} on PATH, or set PEGASUS_HOME, or set {VARIABLE} to its full path"


def found(settings: TransferSettings) -> str | None:
    """The program that the user named; else Pegasus's own place; else PATH. An empty PEGASUS_TRANSFER_FALLBACK means there is none."""
    environ = settings.environ
    if VARIABLE in environ:
        named = environ[VARIABLE]
        if named and not is_program(named):
            raise ListRefused(f"{VARIABLE}={named} is no program that can be run; correct or unset it")
        return named or None
    places = [os.path.join(environ["PEGASUS_HOME"], "bin")] if environ.get("PEGASUS_HOME") else []
    places += [place for place in environ.get("PATH", os.defpath).split(os.pathsep) if place]
    for place in places:
        path = os.path.join(place, NAME)
        if is_program(path) and not is_this(path):
            return path
    return None


def is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def is_this(path: str) -> bool:
    """A link of that name to stager-transfer is a way to be called where the planner looks on PATH."""
    try:
        return os.path.samefile(path, sys.argv[0])
    except OSError:
        return False


def start(program: str, options: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([program, *options], stdin=subprocess.PIPE, env={**environ, CALLED: "1"})


def give(process: subprocess.Popen[bytes], entries: Sequence[ListEntry]) -> None:
    """It reads all of its list before it does anything, so the list can be written at once."""
    given = json.dumps([entry.raw for entry in entries]).encode()
    try:
        if process.stdin is not None:
            process.stdin.write(given)
            process.stdin.close()
    except BrokenPipeError:
        # It ended before it read its list; its exit code says so.
        pass
