"""The unit by which systemd keeps a host of a cluster running.

May know: paths, which systemd there is. One rule: nothing secret is in it, and it is written whole or not at all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from stager.adapters.whole_file import write_public
from stager.model.errors import Denied, InvalidInput

NAME = "stager-host.service"
USER, SYSTEM = "user", "system"
# What a program of the data plane, and jobs without a PATH of their own, are found by.
KEPT_VARIABLES = ("PATH", "STAGER_IONODE", "STAGER_CGROUP")
NETWORK = "After=network-online.target\nWants=network-online.target\n"
# The kernel holds jobs to their memory then. The subgroup is needed: no unit starts in a group whose children have limits.
DELEGATION = "Delegate=memory\nDelegateSubgroup=main\n"
DELEGATION_SINCE = 254
TEXT = """\
[Unit]
Description=I/O node and worker of this host in a stager cluster
{network}StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
{lines}{delegation}Restart=on-failure
RestartSec=5
# Jobs outlive it, and are taken up when it is started again.
KillMode=process
TimeoutStopSec=60
UMask={umask:04o}

[Install]
WantedBy={target}
"""


def unit_text(root: Path, kind: str, user: str, umask: int, environ: Mapping[str, str], version: int) -> str:
    """For the host whose directory is `root`. `user`: who runs it where it is one of the system. `version`: of systemd."""
    # -P: a user's units are started in his home, where a `json.py` may lie.
    words = (sys.executable, "-P", "-m", "stager.cli", "host", "run", "--store", str(root))
    # Only here does systemd put in variables.
    command = " ".join(quoted(word).replace("$", "$$") for word in words)
    lines = [f"User={user}"] if kind == SYSTEM else []
    lines += [f"Environment={quoted(f'{name}={environ[name]}')}" for name in KEPT_VARIABLES if environ.get(name)]
    return TEXT.format(
        command=command,
        network=NETWORK if kind == SYSTEM else "",
        lines="".join(f"{line}\n" for line in lines),
        delegation=DELEGATION if version >= DELEGATION_SINCE else "",
        umask=umask,
        target="multi-user.target" if kind == SYSTEM else "default.target",
    )


def version_here() -> int:
    """Of systemd. 0: there is none, or it does not say."""
    try:
        done = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, timeout=10.0, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.match(r"systemd (\d+)", done.stdout)
    return int(found[1]) if found is not None else 0


def quoted(word: str) -> str:
    """As systemd reads it: nothing in it is a specifier. Raises InvalidInput for control characters."""
    if not word.isprintable():
        raise InvalidInput(f"{word!r} cannot stand in a unit of systemd; choose another path", subject="store")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def unit_path(kind: str, environ: Mapping[str, str]) -> Path:
    if kind == SYSTEM:
        return Path("/etc/systemd/system") / NAME
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "/")) / ".config")
    return Path(base) / "systemd" / "user" / NAME


def install(text: str, kind: str, environ: Mapping[str, str]) -> tuple[Path, list[str]]:
    """Where the unit is now, and the commands that start it. Raises Denied where it may not be written."""
    path = unit_path(kind, environ)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_public(path, text.encode())
    except PermissionError as problem:
        text = f"{path} may not be written"
        raise Denied(f"{text}; say `--systemd user`, or print the unit and have root put it there", subject=str(path)) from problem
    if kind == SYSTEM:
        return path, ["systemctl daemon-reload", f"systemctl enable --now {NAME}"]
    return path, ["systemctl --user daemon-reload", f"systemctl --user enable --now {NAME}", "loginctl enable-linger"]
