"""The plugin that says what tests cost counts what they started, also what detached itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.testbed.places import PROJECT

BURNS = """
import subprocess, sys

def test_burns():
    burning = "import time\\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-S", "-c", burning], check=True, start_new_session=True)

def test_rests():
    pass
"""


def test_what_a_test_starts_is_charged_to_it(tmp_path: Path) -> None:
    (tmp_path / "test_burns.py").write_text(BURNS)
    words = [sys.executable, "-m", "pytest", "-p", "tests.testbed.processor_time", "-p", "no:cacheprovider", tmp_path]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, timeout=60, check=True)
    spent = {name: float(seconds) for seconds, name in re.findall(r"^ *([\d.]+) s  test_burns.py::(\w+)$", done.stdout, re.M)}
    assert 0.5 <= spent["test_burns"] < 5 and spent["test_rests"] < 0.2, done.stdout
