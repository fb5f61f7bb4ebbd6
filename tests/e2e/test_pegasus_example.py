"""The example of plugins/pegasus, written by Pegasus.api from PyPI: what it writes is complete, and runs.

One rule: the planner is not here, so stager itself runs what was written; what attach does is in test_pegasus_attach.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml

from tests.testbed.pegasus import PLUGIN, pegasus_api_python
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager

EXAMPLE = PLUGIN / "examples" / "split" / "workflow_generator.py"
TRANSFER = "/opt/stager/bin/stager-transfer"


def test_the_split_workflow(sshd: Sshd, short_dir: Path, tmp_path: Path) -> None:
    (sshd.data / "book.txt").write_text("".join(f"line {number}\n" for number in range(1000)))
    os.utime(sshd.data / "book.txt", (1_700_000_000, 1_700_000_000))
    (sshd.data / "results").mkdir()
    config = short_dir / "ssh_config"
    config.write_text(sshd.ssh_config_text("lab"))
    argv = [pegasus_api_python(), EXAMPLE, "--lab", f"sftp://lab{sshd.data}", "--stager-transfer", TRANSFER, "--into", tmp_path]
    subprocess.run(list(map(str, argv)), check=True, cwd=tmp_path, timeout=240)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"workflow.yml", "replicas.yml", "transformations.yml", "sites.yml", "pegasus.properties"}
    stager = Stager(short_dir / "s", short_dir / "home", {"STAGER_SSH_CONFIG": str(config)})
    try:
        done = stager.run("pegasus", "catalogs", "--site", f"local={TRANSFER}", "--into", tmp_path / "transformations.yml")
        assert "all of it is there" in done.stderr
        stager.run("submit", tmp_path / "workflow.yml", "--output-origin", f"sftp://lab{sshd.data}/results", "--quiet")
    finally:
        stager.end()
    counts = {path.name: int(path.read_text().split()[0]) for path in (sshd.data / "results").iterdir()}
    assert set(counts) == {f"count.txt.{letter}" for letter in "abcd"} and sum(counts.values()) == 1000
    sites = yaml.safe_load((tmp_path / "sites.yml").read_text())["sites"]
    assert [server["url"] for site in sites if site["name"] == "lab" for server in site["directories"][0]["fileServers"]] == [
        f"sftp://lab{sshd.data}/results"
    ]
