"""Both plugins as wheels, beside stager and Airflow in one environment. One rule: nothing is asked of an index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.testbed.places import PROJECT

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def pip(*words: str | Path, more_paths: tuple[Path, ...] = ()) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, more_paths), os.environ["PYTHONPATH"]])}
    done = subprocess.run([*PIP, *map(str, words)], capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(session_dir: Path) -> Path:
    """Built from copies: builds leave things behind in their source."""
    place = session_dir / "wheels"
    for name in ("airflow", "pegasus"):
        source = session_dir / f"source-{name}"
        shutil.copytree(PROJECT / "plugins" / name, source, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
        pip("wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", place, source)
    return place


def test_the_wheel_holds_the_provider_and_nothing_of_airflows(wheels: Path) -> None:
    names = zipfile.ZipFile(next(wheels.glob("apache_airflow_providers_stager-*.whl"))).namelist()
    assert "airflow/providers/stager/get_provider_info.py" in names
    assert not {"airflow/__init__.py", "airflow/providers/__init__.py"} & set(names)
    here = PROJECT / "plugins" / "airflow" / "src"
    assert {str(path.relative_to(here)) for path in here.rglob("*.py")} <= set(names)


def test_each_wheel_carries_the_licence(wheels: Path) -> None:
    text = (PROJECT / "LICENSE").read_bytes()
    carried = {path.name.split("-")[0]: licences_of(path) for path in wheels.glob("*.whl")}
    assert carried == {"apache_airflow_providers_stager": [text], "pegasus_stager": [text]}


def licences_of(wheel: Path) -> list[bytes]:
    archive = zipfile.ZipFile(wheel)
    return [archive.read(name) for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]


def test_the_extras_bring_the_plugins_and_nothing_else(wheels: Path) -> None:
    """pegasus-wms would take Airflow's SQLAlchemy down to 1.3."""
    said = pip("install", "--dry-run", "--no-index", "--find-links", wheels, "stager[airflow,pegasus]")
    would = next((line for line in said.splitlines() if line.startswith("Would install")), "")
    assert would == "Would install pegasus-stager-0.1.0", "the provider is there already, as every test here has it"


def test_both_plugins_fit_beside_airflow(wheels: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("install", "-q", "--no-index", "--no-deps", "--target", site, *wheels.glob("*.whl"))
    assert "No broken requirements" in pip("check", more_paths=(site,))
    imported = "import airflow.providers.stager.hooks.stager as a, pegasus_stager as b; print(a.__file__, b.__file__)"
    code = f"import sys; sys.path.insert(0, {str(site)!r}); {imported}"
    kept = os.environ["PYTHONPATH"].split(os.pathsep)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in kept if "plugins" not in path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.count(str(site)) == 2, done.stdout
