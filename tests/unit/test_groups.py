"""Tests that share something costly name a group (`xdist_group`), and run one after the other on one worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GROUPED = """
import os
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_it(number):
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


@pytest.mark.slow
def test_a_group_stays_on_one_worker(tmp_path: Path) -> None:
    """pytest 9.2 takes the names of groups from pytest-xdist 3.8, without a word."""
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    argv = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"SEEN": str(tmp_path / "seen")}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    workers = (tmp_path / "seen").read_text().split()
    assert len(workers) == 6 and len(set(workers)) == 1, workers
