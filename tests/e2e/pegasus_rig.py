"""A planned workflow of Pegasus beside a lab that holds its input, and a user who attaches to it.

May know: submit directories, a real sshd, the `stager` program. One rule: what it started ends with it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stager.client import Client
from stager.client.socket_engines import SocketEngineRun
from tests.testbed.kickstart import RAN, write_record
from tests.testbed.planned import UUID, DagMan, submit_directory
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

CONTENT = b"measured\n" * 200_000
PREPARE, STAGE_IN, STAGE_OUT = "create_dir_diamond_0_local", "stage_in_remote_local_0_0", "stage_out_local_local_2_0"
COMPUTE = {"preprocess_pre": "f.b1 f.b2", "findrange_fr1": "f.c1", "findrange_fr2": "f.c2", "analyze_an": "f.d"}
# Until attach has told the end of a workflow: only what hangs takes so long.
FOLLOWED_S = 200.0
CLEANUPS = ("clean_up_local_level_3_0", "clean_up_local_level_4_0", "clean_up_local_level_5_0", "clean_up_local_level_6_0")


@dataclass
class Bed:
    """A lab that holds the input, a submit directory, and a user who attaches to it."""

    sshd: Sshd
    stager: Stager
    dagman: DagMan
    scratch: Path
    followers: list[subprocess.Popen[str]]

    def attach(self) -> subprocess.Popen[str]:
        process = self.stager.start("pegasus", "attach", self.dagman.directory)
        self.followers.append(process)
        return process

    def prefetched(self, lfn: str = "f.a") -> None:
        """Before anybody has asked for it."""
        wait_until((self.dagman.directory / "stager-attached.json").exists, "the workflow to be registered")
        with self.client() as client:
            run = SocketEngineRun(client, self.run())
            wait_until(lambda: run.where(lfn).nodes, f"{lfn} to be fetched\n{self.stager.log_tail()}")

    def run(self) -> str:
        return str(json.loads((self.dagman.directory / "stager-attached.json").read_text())["run"])

    def client(self) -> Client:
        return Client(self.stager.state_dir)

    def reads(self) -> int:
        """How often the lab was asked for the content of the input."""
        return self.sshd.log.read_text().count(f'open "{self.sshd.data}/f.a"')

    @property
    def work(self) -> Path:
        return self.scratch / "w" / "scratch" / "r6"

    def compute(self) -> None:
        """With what kickstart would record of these jobs."""
        for job, made in COMPUTE.items():
            if job in RAN:
                write_record(self.dagman.directory / "00" / "00", job)
            done = self.dagman.task(job, f"cd {self.work}; for name in {made}; do cat f.a > $name; echo $name >> $name; done")
            assert done.code == 0, done.said


LITE = """cd "$(mktemp -d "$PLACE/pegasus.XXXXXX")"
"$PYTHON" -m pegasus_stager -m 1 --threads 1 1>&2 << 'eof'
{reads}
eof
for name in {makes}; do cat {inputs} | tr a-z A-Z > $name; echo $name >> $name; done
"$PYTHON" -m pegasus_stager -m 1 --threads 1 1>&2 << 'eof'
{writes}
eof
cd "$PLACE"
"""


def lite(reads: str, makes: str, staging: str) -> str:
    """A script of the shape of PegasusLite's: a list for what the task reads, the task, a list for what it made."""

    def listed(names: str, linkage: str) -> str:
        entries = []
        for number, name in enumerate(names.split()):
            here, there = (
                [{"site_label": "condorpool", "url": f"file://$PWD/{name}"}],
                [{"site_label": "staging", "url": f"{staging}/{name}"}],
            )
            ways = {"src_urls": here, "dest_urls": there} if linkage == "output" else {"src_urls": there, "dest_urls": here}
            entries.append({"type": "transfer", "linkage": linkage, "lfn": name, "id": number, **ways})
        return json.dumps(entries)

    return LITE.format(reads=listed(reads, "input"), writes=listed(makes, "output"), inputs=reads, makes=makes)


def shared_bed(sshd: Sshd, short_dir: Path) -> Iterator[Bed]:
    (sshd.data / "f.a").write_bytes(CONTENT)
    os.utime(sshd.data / "f.a", (1_700_000_000, 1_700_000_000))
    scratch = short_dir / "scratch"
    far, home = f"sftp://lab{sshd.data}", f"sftp://home{sshd.data}/new"
    moved = {"file:///scratch/f.a": f"{far}/f.a", "file:///scratch/w/out/": f"{home}/out/", "file:///scratch/": f"file://{scratch}/"}
    yield from made_bed("sharedfs", moved, sshd, short_dir)


def bed_with_staging_away(sshd: Sshd, short_dir: Path) -> Iterator[Bed]:
    """Its staging site is another machine, by ssh."""
    (sshd.data / "f.a").write_bytes(CONTENT)
    far = f"scp://lab{sshd.data}"
    moved = {"file:///scratch/f.a": f"{far}/f.a", "file:///scratch/w/out/": f"{far}/out/", "http://127.0.0.1:18999/stg/": f"{far}/stg/"}
    yield from made_bed("nonsharedfs", moved, sshd, short_dir)


def made_bed(kind: str, moved: dict[str, str], sshd: Sshd, place: Path) -> Iterator[Bed]:
    os.utime(sshd.data / "f.a", (1_700_000_000, 1_700_000_000))
    config = place / "ssh_config"
    config.write_text(sshd.ssh_config_text("lab") + sshd.ssh_config_text("home"))
    environ = {"STAGER_SSH_CONFIG": str(config)}
    directory = submit_directory(kind, place / "r", moved)
    stager = Stager(place / "s", place / "home", environ)
    made = Bed(sshd, stager, DagMan(directory, UUID[kind], environ), place / "scratch", [])
    yield made
    for process in made.followers:
        process.kill()
        process.communicate()
    stager.end()
