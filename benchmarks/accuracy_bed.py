"""The cases of `bench_accuracy`, and the bed on which they run: a lab far away, and a host that stager and its jobs are on.

May know: the workflows of the project and the records of setup. The one rule: data lie at the lab, and nothing else does.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.made_cases import MadeCase, scales_of
from tests.testbed.network import Host
from tests.testbed.places import record_like
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.workflows import JOB_PATH, copied_workflow

STAND_IN_LINE_S, STAND_IN_CORES_S = 8.0, 12.0


@dataclass(frozen=True)
class Application:
    """One of workflows/: what makes its data, and the words for 10 to 40 s of it."""

    name: str
    maker: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replay:
    """A recorded workflow, scaled to 10 to 40 s. The scales are those of that very record: where setup's record of the same application
    stands in for it, others are chosen, since its tasks may take a hundred times as long.
    """

    name: str
    instance: str
    bytes_scale: str
    time_scale: str

    @functools.cached_property
    def scales(self) -> tuple[str, str]:
        if instance_of(self).name == self.instance:
            return self.bytes_scale, self.time_scale
        line = MadeCase(self.name, "sftp", 100, 20, "plenty", "", STAND_IN_LINE_S, STAND_IN_CORES_S)
        chosen = scales_of(line, instance_of(self))
        return chosen.bytes_scale, chosen.time_scale


def instance_of(case: Replay) -> Path:
    return record_like(case.instance)


class Bed:
    """A lab far away and a host that stager and its jobs are on."""

    # `stager cost-estimate` answers for nodes that could be had; a plan is for those that are there.
    has_hosts = False

    def __init__(self, sshd: Sshd, here: Host, place: Path) -> None:
        self.sshd, self.here, self.place = sshd, here, place

    def stager(self) -> Stager:
        env = {"PATH": JOB_PATH, "STAGER_SSH_CONFIG": str(self.ssh_config())}
        return Stager(self.place / "s", self.place / "home", env=env, idle_exit_s=60, where=self.here)

    def ssh_config(self) -> Path:
        config = self.place / "ssh_config"
        config.write_text(self.sshd.ssh_config_text("lab"))
        return config

    def end(self, stager: Stager) -> None:
        stager.end()

    def workflow(self, case: Application) -> Path:
        """A copy of it whose data are at the lab."""
        file = copied_workflow(case.name, self.place)
        maker = [sys.executable, str(file.parent / case.maker), str(self.sshd.data / "data"), *case.words]
        subprocess.run(maker, check=True, capture_output=True)
        text, count = re.subn(r"file:\.\./\.\./demo-out/\w+", f"sftp://lab{self.sshd.data}/data", file.read_text())
        assert count == 1, f"{file} has not one origin of its data but {count}"
        file.write_text(text)
        return file
