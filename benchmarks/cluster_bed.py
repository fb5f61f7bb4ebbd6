"""A cluster for `bench_accuracy --nodes`: private hosts with an I/O node each, the first two with a worker, and data far away.

May know: the bed of `tests/e2e/apart_rig.py`. The one rule: a host gets the keys that an administrator would bring it, and no file else;
what jobs read beside their workflow lies at the lab too.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from benchmarks.accuracy_bed import Application, Bed
from tests.e2e.apart_rig import Apart
from tests.testbed.network import Host, Network
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.workflows import JOB_PATH

NAMES = "abcdefgh"
WORKERS = 2


class ClusterBed(Bed):
    """`nodes` of them besides the scheduler's own."""

    has_hosts = True

    def __init__(self, sshd: Sshd, lab: Host, net: Network, place: Path, nodes: int) -> None:
        (place / "cluster").mkdir()
        self.apart = Apart(net, place / "cluster", {}, lab=lab, sites=NAMES[:nodes])
        super().__init__(sshd, self.apart.here, place)

    def stager(self) -> Stager:
        for host in self.apart.sites.values():
            for key in (self.sshd.identity_file, self.sshd.known_hosts):
                there = host.outside(key)
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(key, there)
        self.apart.env = {"PATH": JOB_PATH, "STAGER_SSH_CONFIG": str(self.ssh_config())}
        self.apart.start(cores=1, workers=WORKERS)
        return self.apart.stager

    def end(self, stager: Stager) -> None:
        self.apart.end()

    def workflow(self, case: Application) -> Path:
        file = super().workflow(case)
        shutil.copytree(file.parent.parent, self.sshd.data / "workflows")
        code = f"sftp://lab{self.sshd.data}/workflows"
        text = re.sub(r": here:", f": workflows:{case.name}/", file.read_text())
        text = re.sub(r"^  workflows: file:\.\.$", "", text, flags=re.MULTILINE)
        file.write_text(text.replace("origins:\n", f"origins:\n  workflows: {code}\n", 1))
        return file
