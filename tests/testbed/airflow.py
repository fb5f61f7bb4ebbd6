"""Apache Airflow in an environment of its own, with this clone's stager and provider in it as if they were installed.

May know: what scripts/setup.sh made. One rule: of what is shared by clones nothing is written but what Python compiles, which each of
Airflow's programs would do again for itself; entry points and AIRFLOW_HOME lie in a directory of the test's.
`python -m tests.testbed.airflow COMMAND…` runs something in it (`pytest tests/airflow`, `airflow standalone`).
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.testbed.places import PROJECT, ionode_binary, tool_cache

PROVIDER = PROJECT / "plugins" / "airflow"
# Metadata and entry points, as an installation would write them: by the build backend of each, without building a wheel.
PROVIDER_METADATA = "import sys; from flit_core.buildapi import prepare_metadata_for_build_wheel as make; make(sys.argv[1])"
# This backend writes the entry points into a wheel only, and a wheel would have the I/O node built.
STAGER_METADATA = """
import configparser, pathlib, sys, tomllib
from hatchling.build import prepare_metadata_for_build_wheel
place = pathlib.Path(sys.argv[1])
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
groups = {"console_scripts": project["scripts"], **project["entry-points"]}
written = configparser.ConfigParser(delimiters="=", interpolation=None)
written.optionxform = str
written.read_dict(groups)
with (place / prepare_metadata_for_build_wheel(sys.argv[1]) / "entry_points.txt").open("w") as file:
    written.write(file)
"""
CORE = {
    "LOAD_EXAMPLES": "False",
    "UNIT_TEST_MODE": "False",
    "EXECUTOR": "LocalExecutor",
    "PARALLELISM": "4",
    "TEST_CONNECTION": "Enabled",
    "SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
}


def needed_airflow() -> Path:
    """Its directory, or the test is skipped."""
    place = tool_cache() / "airflow"
    if not (place / ".installed").is_file():
        pytest.skip("Apache Airflow is not installed (make setup does it)")
    return place


def python() -> Path:
    return needed_airflow() / "bin" / "python"


def environment(place: Path) -> dict[str, str]:
    """For whatever runs in it, tests included. `place` comes to hold AIRFLOW_HOME with a database that is ready, and the metadata."""
    installed, site, home = needed_airflow(), place / "site", place / "airflow"
    site.mkdir(parents=True)
    run = {"check": True, "capture_output": True, "text": True}
    subprocess.run([python(), "-c", PROVIDER_METADATA, site], cwd=PROVIDER, **run)
    subprocess.run([python(), "-c", STAGER_METADATA, site], cwd=PROJECT, **run)
    (home / "dags").mkdir(parents=True)
    shutil.copyfile(installed / "airflow.db", home / "airflow.db")
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR") or name.startswith("STAGER_TEST")}
    own = {
        "HOME": str(place),
        # Found by the home directory otherwise, and that is another one here.
        "STAGER_TEST_TOOLS": str(tool_cache()),
        "PATH": f"{installed / 'bin'}:{os.environ.get('PATH', '')}",
        "AIRFLOW_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(map(str, (PROJECT, PROVIDER / "src", site))),
        "STAGER_IONODE": str(ionode_binary()),
        # Else each process of Airflow makes one up, and they do not believe each other.
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
    }
    return kept | own | {f"AIRFLOW__CORE__{name}": value for name, value in CORE.items()}


def main() -> int:
    place = Path(tempfile.mkdtemp(prefix="st-air-"))
    try:
        words = sys.argv[1:]
        command = [python(), "-m", *words] if words[0] == "pytest" else words
        return subprocess.run(command, env=environment(place), check=False).returncode
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
