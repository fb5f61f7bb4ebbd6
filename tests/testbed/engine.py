"""A Docker engine, and a project of docker-compose on it: one that is there already, else a dockerd of its own.

May know: docker, docker-compose, debootstrap. One rule: what it made on the engine goes with it, and its own dockerd leaves the network of
this machine as it found it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.places import PROJECT, needed_program, tool_cache
from tests.testbed.processes import Server
from tests.testbed.waiting import wait_until

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
# How this machine reaches the package registries.
REACHING = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
# What iptables-save tells of a machine that never had a rule is nothing at all.
NO_RULES = "".join(
    f"*{table}\n{''.join(f':{chain} ACCEPT [0:0]{chr(10)}' for chain in chains)}COMMIT\n"
    for table, chains in {"filter": ("INPUT", "FORWARD", "OUTPUT"), "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")}.items()
)
MIRROR = "http://deb.debian.org/debian"


def run(argv: list[str], env: Mapping[str, str], cwd: Path | None = None, deadline_s: float = 120.0) -> str:
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, timeout=deadline_s, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def answers(env: Mapping[str, str]) -> bool:
    return subprocess.run(["docker", "info"], env=env, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


@contextlib.contextmanager
def running_engine(place: Path) -> Iterator[dict[str, str]]:
    """The environment in which docker and docker-compose find it. Skips where none can be had."""
    needed_program("docker", "docker.io")
    needed_program("docker-compose", "docker-compose")
    env = dict(os.environ)
    if answers(env):
        yield env
        return
    if os.geteuid() != 0:
        pytest.skip("no Docker engine answers, and only root can start one")
    dockerd = needed_program("dockerd", "docker.io")
    before = subprocess.run(["iptables-save"], capture_output=True, text=True).stdout or NO_RULES
    forwarding, had_bridge = FORWARDING.read_text(), Path("/sys/class/net/docker0").exists()
    env["DOCKER_HOST"] = f"unix://{place}/docker.sock"
    words = ["--host", env["DOCKER_HOST"], "--data-root", f"{place}/data", "--exec-root", f"{place}/exec", "--pidfile", f"{place}/pid"]
    server = Server([str(dockerd), *words], place / "dockerd.log")
    server.start()
    try:
        wait_until(lambda: server.gone() or answers(env), "the Docker engine")
        if server.gone():
            pytest.skip(f"dockerd does not start here: {server.log_text()[-500:]}")
        yield env
    finally:
        server.stop()
        shutil.rmtree(place / "data", ignore_errors=True)
        if not had_bridge:
            subprocess.run(["ip", "link", "delete", "docker0"], capture_output=True)
        subprocess.run(["iptables-restore"], input=before, capture_output=True, text=True)
        FORWARDING.write_text(forwarding)


def base_root() -> Path:
    """A bare Debian, made once."""
    root = tool_cache() / "roots" / "compose"
    if not (root / ".made").exists():
        debootstrap = needed_program("debootstrap", "debootstrap")
        if os.geteuid() != 0:
            pytest.skip("the base of the images is made by debootstrap, which only root can run")
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        run(
            [str(debootstrap), "--variant=minbase", "--include=ca-certificates", "bookworm", str(root), MIRROR], os.environ, deadline_s=1200
        )
        (root / ".made").touch()
    return root


@contextlib.contextmanager
def base_image(env: Mapping[str, str], name: str) -> Iterator[str]:
    """What `debian:bookworm-slim` is, without a registry of images."""
    packing = subprocess.Popen(["docker", "import", "-", name], env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert packing.stdin is not None
    with tarfile.open(fileobj=packing.stdin, mode="w|") as archive:
        archive.add(base_root(), arcname=".", filter=lambda entry: None if is_left_out(entry.name) else entry)
        for path in REACHING:
            if Path(path).exists():
                archive.add(os.path.realpath(path), arcname=f".{path}")
    packing.stdin.close()
    assert packing.wait() == 0
    try:
        yield name
    finally:
        subprocess.run(["docker", "rmi", "--force", name], env=env, capture_output=True)


def is_left_out(name: str) -> bool:
    return name.startswith(("./var/cache/apt/archives/", "./dev/")) or f".{name.removeprefix('.')}" in {f".{path}" for path in REACHING}


@dataclass
class Compose:
    """The project in compose/. `env` says which images and ports."""

    name: str
    env: Mapping[str, str]
    directory: Path = field(default=PROJECT / "compose")

    def __call__(self, *words: str, deadline_s: float = 120.0) -> str:
        return run(["docker-compose", "-p", self.name, *words], self.env, self.directory, deadline_s)

    def exec(self, service: str, *words: str, deadline_s: float = 120.0) -> str:
        return self("exec", "-T", service, *words, deadline_s=deadline_s)

    def stager(self, *words: str, deadline_s: float = 120.0) -> str:
        return self.exec("scheduler", "stager", *words, deadline_s=deadline_s)

    def containers(self) -> dict[str, dict[str, Any]]:
        """What the engine says of each service, those that have ended too."""
        ids = run(["docker", "ps", "-aq", "--filter", f"label=com.docker.compose.project={self.name}"], self.env).split()
        told = json.loads(run(["docker", "inspect", *ids], self.env)) if ids else []
        return {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in told}

    def state(self, service: str) -> str:
        told = self.containers().get(service, {}).get("State", {})
        return str(told.get("Health", {}).get("Status") or told.get("Status", "missing"))

    def services(self) -> list[str]:
        return self("config", "--services").split()

    def end(self) -> None:
        """Containers, networks, volumes and the images that were built."""
        self("down", "--volumes", "--rmi", "all", "--remove-orphans", deadline_s=300)
