"""Makes an environment of Python packages: Python's venv, and what pip puts into it.

May know: Python's venv and pip, one directory. One rule: nothing that is installed is run: packages come as wheels, which are unpacked, and
each file has a digest that the lock file names.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stager.model.errors import InvalidInput, Refused, StagerError, Transient
from stager.worker.installing import AWAY_CODE, NOT_MADE_CODE, full, is_full, tail
from stager.worker.lock_file import INVALID_CODE, requirements_in

# Another version makes its own.
FORMAT = "1"
REQUIREMENTS = "requirements.lock"
# What would have pip install something else, or elsewhere.
LEFT_OUT = {
    f"PIP_{name}" for name in "TARGET PREFIX ROOT USER PYTHON EDITABLE REQUIREMENT CONSTRAINT NO_BINARY ONLY_BINARY NO_DEPS".split()
}
LEFT_OUT |= {"PIP_REQUIRE_VIRTUALENV", "PIP_IGNORE_INSTALLED", "PIP_DRY_RUN", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
PIP = (
    "-I",
    "-m",
    "pip",
    "install",
    "--require-hashes",
    "--only-binary",
    ":all:",
    "--no-input",
    "--disable-pip-version-check",
    "--retries",
    "2",
    # Over what a pip.conf says: it is for this environment, wherever else its user has packages put.
    "--no-user",
    "--target=",
)
# What pip says, by what it means; the first that is in it counts.
AWAY = (
    "Retrying (Retry(",
    "Max retries exceeded",
    "NewConnectionError",
    "ConnectTimeout",
    "ReadTimeout",
    "Connection refused",
    "Connection reset",
    "Temporary failure in name resolution",
    "Name or service not known",
    "ProxyError",
    "HTTP error 5",
    "500 Server Error",
    "502 Server Error",
    "503 Server Error",
    "504 Server Error",
)
WRONG = (
    "DO NOT MATCH THE HASHES",
    "--require-hashes mode",
    "No matching distribution found",
    "Could not find a version that satisfies",
    "ResolutionImpossible",
    "conflicting dependencies",
    "requires a different Python",
    "Invalid requirement",
    "InvalidMarker",
)


def read(raw: bytes) -> list[str]:
    return requirements_in(raw)


def words_of(requirements: list[str]) -> list[str]:
    """Of the packages, and of the Python that they are for: what makes it this one."""
    return [FORMAT, sys.version, str(sys.implementation.cache_tag), platform.machine(), base_python(), *requirements]


def base_python() -> str:
    """The program that environments of this one are made of."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def make(root: Path, requirements: list[str], lock: int, environ: Mapping[str, str]) -> dict[str, Any]:
    """It is at its place from the start, since its programs name it. What is to be told of it."""
    ran = run([sys.executable, "-P", "-m", "venv", str(root)], lock, environ)
    if ran.returncode != 0:
        raise of_venv(ran.stdout + ran.stderr)
    (root / REQUIREMENTS).write_text("\n".join([*requirements, ""]))
    ran = run([str(root / "bin/python"), *PIP, "-r", str(root / REQUIREMENTS)], lock, environ)
    if ran.returncode != 0:
        raise of_pip(ran.stdout + ran.stderr)
    return {"python": platform.python_version(), "packages": len(requirements)}


def run(command: list[str], lock: int, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """It has the lock too: where this process is killed, nobody else begins before it has ended."""
    kept = {name: value for name, value in environ.items() if name not in LEFT_OUT}
    try:
        return subprocess.run(
            command,
            env=kept | {"PIP_ROOT_USER_ACTION": "ignore"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            pass_fds=(lock,),
            check=False,
        )
    except OSError as problem:
        raise Transient(f"{command[0]} cannot be started: {problem.strerror}", code=NOT_MADE_CODE) from problem


def of_venv(said: str) -> StagerError:
    if is_full(said):
        return full(said)
    if "ensurepip" in said or "No module named venv" in said:
        what = f"{base_python()} cannot make virtual environments; whoever looks after this host installs what it lacks (python3-venv)"
        return Refused(f"{what}: {tail(said)}", code="venv_missing")
    return Transient(f"no virtual environment could be made: {tail(said)}", code=NOT_MADE_CODE)


def of_pip(said: str) -> StagerError:
    """Sorted by who must act."""
    if is_full(said):
        return full(said)
    if "DO NOT MATCH THE HASHES" in said:
        return InvalidInput(f"a package has another digest than its lock file says: {tail(said)}", code=INVALID_CODE)
    if any(words in said for words in AWAY):
        return Transient(f"the package index cannot be asked: {tail(said)}", code=AWAY_CODE)
    if any(words in said for words in WRONG):
        what = f"its lock file cannot be installed with Python {platform.python_version()}, from wheels alone"
        return InvalidInput(f"{what}: {tail(said)}", code=INVALID_CODE)
    return Transient(f"its packages could not be installed: {tail(said)}", code=NOT_MADE_CODE)
