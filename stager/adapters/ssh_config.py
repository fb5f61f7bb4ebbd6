"""What OpenSSH itself would use for a host, asked of `ssh -G`.

May know: the OpenSSH client. One rule: it runs where the user is, so the environment is passed in.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from stager.model.errors import InvalidInput, Refused

SSH_DEADLINE_S = 20.0


def config_words(environ: Mapping[str, str]) -> list[str]:
    """For `ssh`: another file than ~/.ssh/config, where the environment names one."""
    return ["-F", environ["STAGER_SSH_CONFIG"]] if environ.get("STAGER_SSH_CONFIG") else []


def ssh_settings(
    host: str, port: int | None, user: str | None, environ: Mapping[str, str], what: str, subject: str
) -> dict[str, list[str]]:
    """A mapping of lower-case keys to all their values. `what` begins messages, as in `origin 'lab'`."""
    if host.startswith("-") or (user or "").startswith("-"):
        raise InvalidInput(f"{what}: the host {host!r} or its user starts with '-'", subject=subject)
    command = ["ssh", "-G", *config_words(environ)]
    command += ["-p", str(port)] if port is not None else []
    command += ["-l", user] if user else []
    try:
        done = subprocess.run([*command, "--", host], capture_output=True, env=dict(environ), timeout=SSH_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        text = f"{what}: `ssh -G {host}` cannot be run ({problem}); install the OpenSSH client"
        raise Refused(text, code="unsupported", subject=subject) from problem
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise InvalidInput(f"{what}: ssh does not take your configuration for {host}: {said}", subject=subject)
    settings: dict[str, list[str]] = {}
    for line in done.stdout.decode(errors="replace").split("\n"):
        key, _, value = line.partition(" ")
        settings.setdefault(key.lower(), []).append(value.strip(" "))
    return settings


def agent_socket(said: Mapping[str, list[str]], environ: Mapping[str, str]) -> str | None:
    """None: no agent is to be asked."""
    agent = said.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    agent = environ.get("SSH_AUTH_SOCK", "") if agent == "SSH_AUTH_SOCK" else environ.get(agent[1:], "") if agent.startswith("$") else agent
    return None if agent in ("none", "") else expanded(agent, environ)


def split_paths(said: Mapping[str, list[str]], *keys: str) -> list[str]:
    """Known-hosts settings name several files on a line, identity files one a line (which may hold spaces)."""
    paths: list[str] = []
    for key in keys:
        for value in said.get(key, []):
            paths += [value] if key == "identityfile" else value.split(" ")
    return [path for path in paths if path.lower() not in ("none", "")]


def expanded(path: str, environ: Mapping[str, str]) -> str:
    """`~` is the home of the environment passed in."""
    if path == "~" or path.startswith("~/"):
        return environ.get("HOME", os.path.expanduser("~")) + path[1:]
    return path
