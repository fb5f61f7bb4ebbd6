"""pegasus-transfer and stager-transfer, called alike in directories of their own, and what they left there.

May know: both command lines. One rule: what is compared is what a user would see: names, kinds, contents, modes, links, the exit code.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.places import PROJECT, tool_cache

PLUGIN = PROJECT / "plugins" / "pegasus"
DEADLINE_S = 240.0
# What would change what the programs do, should the one who runs the tests have it set.
FOREIGN = ("PEGASUS_", "KICKSTART_", "STAGER_")


@dataclass(frozen=True)
class Done:
    code: int
    said: str


def pegasus_transfer() -> Path:
    """The real one, with pegasus-integrity beside it."""
    place = tool_cache() / "pegasus" / "bin" / "pegasus-transfer"
    if not place.is_file():
        pytest.skip("pegasus-transfer is not installed for the tests: run `make setup`")
    return place


def pegasus_api_python() -> Path:
    """A Python that has Pegasus.api."""
    place = tool_cache() / "pegasus" / "bin" / "python"
    if not place.is_file() or subprocess.run([place, "-c", "import Pegasus.api"], capture_output=True, check=False).returncode:
        pytest.skip("Pegasus.api is not installed for the tests: run `make setup`")
    return place


def written_samples(place: Path) -> Path:
    argv = [pegasus_api_python(), Path(__file__).with_name("pegasus_samples.py"), place]
    # Pegasus.api writes what a job uses in the order of a set.
    subprocess.run(list(map(str, argv)), check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": "0"}, timeout=DEADLINE_S)
    return place


def surroundings(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {"LC_ALL": "C.UTF-8"} | more


def call(argv: Sequence[str | Path], given: str | bytes, cwd: Path, environ: Mapping[str, str]) -> Done:
    data = given.encode() if isinstance(given, str) else given
    done = subprocess.run(
        list(map(str, argv)), input=data, cwd=cwd, env=dict(environ), capture_output=True, timeout=DEADLINE_S, check=False
    )
    return Done(done.returncode, (done.stdout + done.stderr).decode(errors="replace"))


def theirs(given: str | bytes, cwd: Path, *options: str, **environ: str) -> Done:
    return call([pegasus_transfer(), *options], given, cwd, surroundings(**environ))


def ours(given: str | bytes, cwd: Path, *options: str, **environ: str) -> Done:
    """Without the real one to fall back on, unless the test names one."""
    settled = {"PEGASUS_TRANSFER_FALLBACK": "", "PYTHONPATH": str(PLUGIN)} | environ
    return call([sys.executable, "-m", "pegasus_stager", *options], given, cwd, surroundings(**settled))


def ours_started(given: str, cwd: Path, *options: str, **environ: str) -> subprocess.Popen[bytes]:
    """Still running, its list read from a file; the caller reads `stderr` and waits."""
    place = cwd / "list.json"
    place.write_text(given)
    settled = {"PEGASUS_TRANSFER_FALLBACK": "", "PYTHONPATH": str(PLUGIN)} | environ
    argv = [sys.executable, "-m", "pegasus_stager", "-f", str(place), *options]
    return subprocess.Popen(argv, cwd=cwd, env=surroundings(**settled), stderr=subprocess.PIPE)


def url(path: Path | str, site: str = "local", **more: Any) -> dict[str, Any]:
    text = str(path)
    return {"site_label": site, "url": text if ":" in text else f"file://{text}"} | more


def transfer(sources: Sequence[dict[str, Any]], destination: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "transfer", "src_urls": list(sources), "dest_urls": [destination]} | more


def listed(*entries: Mapping[str, Any]) -> str:
    return json.dumps(entries)


def snapshot(root: Path) -> dict[str, tuple[Any, ...]]:
    """What is below `root`, by relative name; the root's own name is not part of it."""
    found: dict[str, tuple[Any, ...]] = {}
    for place, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(place, name)
            found[os.path.relpath(path, root)] = looks(path, root)
    return found


def looks(path: str, root: Path) -> tuple[Any, ...]:
    seen = os.lstat(path)
    if stat.S_ISLNK(seen.st_mode):
        return ("link", os.readlink(path).replace(str(root), "ROOT"))
    if stat.S_ISDIR(seen.st_mode):
        return ("directory", oct(seen.st_mode & 0o777))
    if stat.S_ISREG(seen.st_mode):
        with open(path, "rb") as file:
            return ("file", oct(seen.st_mode & 0o777), seen.st_size, hashlib.file_digest(file, "sha256").hexdigest())
    return ("other", oct(seen.st_mode))
