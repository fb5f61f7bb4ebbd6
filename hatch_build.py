"""Builds the I/O node and puts it into the wheel. Knows cargo, and how wheels are tagged.

One rule: the wheel has one tag for all Pythons, since the binary links none. STAGER_WHEEL_GLIBC=2.28 links against that C library by
cargo-zigbuild and tags the wheel for every system that has it or a newer one; without it the wheel is for systems like this one.
STAGER_BINARY=FILE is put in as it is: somebody has built it. STAGER_BINARY_LATER=1 leaves the binary out of an editable install:
scripts/setup.sh builds it meanwhile and puts it into place.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BINARY = "stager-ionode"


class IoNode(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" and os.environ.get("STAGER_BINARY_LATER"):
            return
        glibc = os.environ.get("STAGER_WHEEL_GLIBC")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(glibc)}"
        build_data["shared_scripts"] = {os.environ.get("STAGER_BINARY") or self.built(glibc): BINARY}

    def built(self, glibc: str | None) -> str:
        """The path of the binary. What cargo says goes to the terminal as it is."""
        command = ["cargo", "build", "--release"] if glibc is None else zigbuild(glibc)
        command += ["--locked", "-p", "stager-node", "--bin", BINARY, "--message-format=json-render-diagnostics"]
        environment = os.environ if glibc is None else os.environ | {"STAGER_VERSION": self.metadata.version}
        try:
            done = subprocess.run(command, cwd=self.root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        except FileNotFoundError:
            raise SystemExit(f"{command[0]} is missing: building stager needs Rust 1.90 or newer (https://rustup.rs)") from None
        except subprocess.CalledProcessError as problem:
            raise SystemExit(f"{' '.join(command)} failed with exit code {problem.returncode}") from None
        told = [json.loads(line) for line in done.stdout.splitlines()]
        (path,) = [each["executable"] for each in told if each.get("target", {}).get("name") == BINARY and each.get("executable")]
        return str(path)


def zigbuild(glibc: str) -> list[str]:
    return ["cargo-zigbuild", "zigbuild", "--target", f"{platform.machine()}-unknown-linux-gnu.{glibc}", "--profile", "wheel"]


def platform_tag(glibc: str | None) -> str:
    if glibc is None:
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"manylinux_{glibc.replace('.', '_')}_{platform.machine()}"
