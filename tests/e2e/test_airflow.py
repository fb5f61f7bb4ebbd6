"""The provider for Apache Airflow, tested where it lives: tests/airflow by a pytest of Airflow's own environment, all in one, since the
start of another costs more seconds than most of its files.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.testbed import airflow
from tests.testbed.places import PROJECT

DEADLINE_S = 2400


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 60)
def test_in_airflows_environment(short_dir: Path) -> None:
    wishes = ["-p", "no:cacheprovider", "--durations=10", "--durations-min=5", "--tb=short", "--show-capture=no"]
    command = [airflow.python(), "-m", "pytest", *wishes, "tests/airflow"]
    done = subprocess.run(command, cwd=PROJECT, env=airflow.environment(short_dir), capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-5_000:]
