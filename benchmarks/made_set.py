"""The made set of workflows, for benchmarks: `scripts/setup.sh made` makes it, made_set.json beside this says what comes out.

One rule: whoever tunes sees the half "tune" alone; "judge" is for judging, once.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path

from tests.testbed.places import made_dir

MANIFEST = Path(__file__).with_suffix(".json")


def made_paths(half: str) -> list[Path]:
    """Of "tune", "judge" or "all". Ends the program where they are not made; says so where they are not those of the manifest."""
    wanted = {entry["name"]: entry for entry in json.loads(MANIFEST.read_text())["workflows"] if half in (entry["half"], "all")}
    paths = {name: made_dir() / f"{name}.json" for name in wanted}
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        raise SystemExit(f"the made set is not there ({len(missing)} workflows are missing): run `scripts/setup.sh made`")
    others = [name for name, path in paths.items() if sha256(path.read_bytes()).hexdigest() != wanted[name]["sha256"]]
    if others:
        print(f"{len(others)} of {len(paths)} are not those of {MANIFEST.name}: other versions drew them", file=sys.stderr)
    return list(paths.values())
