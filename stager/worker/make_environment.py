"""`python -m stager.worker.make_environment LOCK DIRECTORY`: makes the environment of a lock file, once, and prints where it is.

May know: Python's venv and pip, one directory. A process of its own, since it takes minutes. One rule: nothing that is installed is run:
packages come as wheels, which are unpacked, and each file has a digest that the lock file names.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stager.model.errors import InvalidInput, Refused, StagerError, Transient
from stager.worker.environment_tree import TOLD, bytes_of, digest_of_tree, is_whole, locked, remove, set_writable
from stager.worker.lock_file import INVALID_CODE, requirements_in
from stager.worker.place import publish_json

# Another version makes its own.
FORMAT = "1"
NOT_MADE_CODE = "environment_not_made"
REQUIREMENTS = "requirements.lock"
LINES_TOLD, LINE_CHARS = 4, 400
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
FULL = ("No space left on device", "Disk quota exceeded")
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


def made(path: Path, directory: Path) -> Path:
    """Raises StagerError."""
    requirements = requirements_in(path.read_bytes())
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    root = directory / identity_of(requirements)
    with locked(root, fcntl.LOCK_EX) as lock:
        if not is_whole(root):
            # What somebody left who was ended.
            remove(root)
            try:
                make(root, requirements, lock)
            except BaseException:
                remove(root)
                raise
    return root


def identity_of(requirements: list[str]) -> str:
    """Of the packages, and of the Python that they are for."""
    python = [sys.version, str(sys.implementation.cache_tag), platform.machine(), base_python()]
    return hashlib.sha256("\0".join([FORMAT, *python, *requirements]).encode()).hexdigest()[:32]


def base_python() -> str:
    """The program that environments of this one are made of."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def make(root: Path, requirements: list[str], lock: int) -> None:
    """It is at its place from the start, since its programs name it. The word that it is whole comes last."""
    ran = run([sys.executable, "-m", "venv", str(root)], lock)
    if ran.returncode != 0:
        raise of_venv(ran.stdout + ran.stderr)
    (root / REQUIREMENTS).write_text("\n".join([*requirements, ""]))
    ran = run([str(root / "bin/python"), *PIP, "-r", str(root / REQUIREMENTS)], lock)
    if ran.returncode != 0:
        raise of_pip(ran.stdout + ran.stderr)
    set_writable(root, writable=False)
    os.chmod(root, 0o700)
    # A power cut leaves no half of it behind that says that it is whole.
    os.sync()
    told = {"python": platform.python_version(), "packages": len(requirements), "size_bytes": bytes_of(root)}
    publish_json(str(root / TOLD), told | {"digest": digest_of_tree(root)})
    os.chmod(root, 0o500)


def run(command: list[str], lock: int) -> subprocess.CompletedProcess[str]:
    """It has the lock too: where this process is killed, nobody else begins before it has ended."""
    environ = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    try:
        return subprocess.run(
            command,
            env=environ | {"PIP_ROOT_USER_ACTION": "ignore"},
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
    if any(words in said for words in FULL):
        return full(said)
    if "ensurepip" in said or "No module named venv" in said:
        what = f"{base_python()} cannot make virtual environments; whoever looks after this host installs what it lacks (python3-venv)"
        return Refused(f"{what}: {tail(said)}", code="venv_missing")
    return Transient(f"no virtual environment could be made: {tail(said)}", code=NOT_MADE_CODE)


def of_pip(said: str) -> StagerError:
    """Sorted by who must act."""
    if any(words in said for words in FULL):
        return full(said)
    if "DO NOT MATCH THE HASHES" in said:
        return InvalidInput(f"a package has another digest than its lock file says: {tail(said)}", code=INVALID_CODE)
    if any(words in said for words in AWAY):
        return Transient(f"the package index cannot be asked: {tail(said)}", code="index_away")
    if any(words in said for words in WRONG):
        what = f"its lock file cannot be installed with Python {platform.python_version()}, from wheels alone"
        return InvalidInput(f"{what}: {tail(said)}", code=INVALID_CODE)
    return Transient(f"its packages could not be installed: {tail(said)}", code=NOT_MADE_CODE)


def full(said: str) -> StagerError:
    return Transient(f"there is no room for it: {tail(said)}", code="environment_no_room")


def tail(said: str) -> str:
    """The last lines, which say most."""
    lines = [line.strip()[:LINE_CHARS] for line in said.splitlines() if line.strip() and not line.startswith("[notice]")]
    return " / ".join(lines[-LINES_TOLD:]) or "it said nothing"


def main(arguments: list[str]) -> int:
    """Prints what Environments reads."""
    path, directory = map(Path, arguments)
    try:
        said: Mapping[str, Any] = {"root_dir": str(made(path, directory))}
    except StagerError as problem:
        fault = problem.fault()
        said = {"fault": {"error_class": fault.error_class.value, "code": fault.code, "message": fault.message, "subject": ""}}
    except OSError as problem:
        said = {"fault": {"error_class": "transient", "code": NOT_MADE_CODE, "message": str(problem), "subject": ""}}
    sys.stdout.write(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
