"""Where the data plane's program is. One rule: STAGER_IONODE, then beside this Python, then PATH; never the current directory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from stager.model.errors import Refused

NAME = "stager-ionode"
PROBE_TIMEOUT_S = 30.0


def find_ionode(environ: Mapping[str, str]) -> str:
    """Raises Refused with how to get it."""
    named = environ.get("STAGER_IONODE")
    if named:
        if Path(named).is_absolute() and Path(named).is_file():
            return named
        raise Refused(f"STAGER_IONODE is {named!r}, which is not the absolute path of a program", code="ionode_missing")
    beside = Path(sys.executable).parent / NAME
    found = str(beside) if beside.is_file() else shutil.which(NAME, path=environ.get("PATH"))
    if not found:
        raise Refused(f"the program {NAME} is neither beside {sys.executable} nor on PATH; install stager with pip", code="ionode_missing")
    return found


def isolation_of(binary: str) -> str:
    """What would hold a job of this user to its sandbox on this host, by the reaper's own trial; `none` where nothing would. Empty: it
    cannot be tried.
    """
    try:
        done = subprocess.run([binary, "run", "--probe"], capture_output=True, timeout=PROBE_TIMEOUT_S, check=True)
        return str(json.loads(done.stdout).get("isolation", ""))
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
