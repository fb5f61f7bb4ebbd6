"""How the programs of a pool are started (stager/adapters/host_process.py)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stager.adapters.host_process import dask_words


def test_no_module_of_the_directory_that_it_is_started_in_is_run(tmp_path: Path) -> None:
    """Whoever starts a worker stands where his own programs lie."""
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')\n")
    done = subprocess.run([*dask_words(None), "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Usage"), done.stderr
