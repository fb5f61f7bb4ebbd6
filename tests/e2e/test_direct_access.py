"""Inputs that jobs read directly, through a real sshfs mount of a real sshd: little crosses the line, what is read is what was planned, and
what cannot be had directly is waited for, fails by name or is fetched after all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.origin_rig import known_hosts_of, ssh_origin
from tests.testbed.link import Link
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

HEAD_BYTES, SIZE_BYTES = 300_000, 256_000_000
pytestmark = pytest.mark.skipif(
    not (shutil.which("sshfs") and os.path.exists("/dev/fuse")), reason="mounts need /dev/fuse and sshfs (Debian: apt-get install sshfs)"
)

WORKFLOW = """\
stager: 1
name: survey
defaults: {{isolate: off}}
origins:
  lab: {origin}
io_hints:
  look: {{compute: 1 s, output: 1 kB, read_fraction: 0.001}}
jobs:
  look:
    type: look
    run: |
      {script}
    env: {{TRACE: "{trace}"}}
    inputs: ["lab:sky.dat"]
    outputs: {{sum.txt: lab:sum.txt}}
"""
LOOK = f"head -c {HEAD_BYTES} sky.dat | sha256sum > sum.txt"


class Survey:
    """A large file at the lab, of which a job reads the head."""

    def __init__(self, place: Path, data: Path) -> None:
        self.place, self.data, self.trace = place, data, place / "trace"
        self.sky, self.sum = data / "sky.dat", data / "sum.txt"
        place.mkdir()
        data.mkdir()
        self.head = os.urandom(HEAD_BYTES)
        self.sky.write_bytes(self.head)
        os.truncate(self.sky, SIZE_BYTES)
        os.utime(self.sky, (1_700_000_000, 1_700_000_000))

    def workflow(self, origin: str, script: str = LOOK) -> Path:
        file = self.place / "workflow.yml"
        file.write_text(WORKFLOW.format(origin=origin, trace=self.trace, script=script.replace("\n", "\n      ")))
        return file

    def told(self) -> list[str]:
        return self.trace.read_text().split() if self.trace.exists() else []

    def is_right(self) -> bool:
        return self.sum.read_text().split()[0] == hashlib.sha256(self.head).hexdigest()


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


@pytest.fixture
def survey(short_dir: Path, sshd: Sshd) -> Survey:
    return Survey(short_dir / "wf", sshd.data / "d")


def report(stager: Stager) -> dict[str, Any]:
    return {line["name"]: line for line in stager.json("report")["lines"]}


def direct_access(plan: Any) -> list[str]:
    return [file["lfn"] for file in plan["files"] if file["access"] == "direct"]


def test_what_is_read_directly_crosses_the_line_in_part(
    stager: Stager, survey: Survey, sshd: Sshd, link: Callable[..., Link], short_dir: Path
) -> None:
    line = link(sshd.port)
    known = known_hosts_of(sshd, line.port, short_dir / "known")
    workflow = survey.workflow(ssh_origin(sshd, survey.data, kind="sshfs", port=line.port, known_hosts=str(known)))
    assert direct_access(stager.json("plan", workflow)) == ["sky.dat"]
    assert direct_access(stager.json("plan", workflow, "--no-direct")) == []
    assert "so directly" in stager.run("plan", workflow, "--explain", "sky.dat").stdout
    before = line.down.carried_bytes
    stager.run("submit", workflow)
    assert survey.is_right()
    crossed = line.down.carried_bytes - before
    assert HEAD_BYTES < crossed < 5_000_000, "the head and what a kernel reads ahead, not the file"
    lines = report(stager)
    assert (lines["fetched"]["estimated"], lines["fetched"]["actual"]) == (0, 0)
    assert 0 < lines["read directly (as predicted)"]["estimated"] == lines["read directly (as predicted)"]["actual"] < 2 * HEAD_BYTES
    assert lines["hit rate"]["estimated"] == lines["hit rate"]["actual"] == 0


HOLD = f"""\
echo began >> "$TRACE"
head -c 1000 sky.dat > /dev/null
echo held >> "$TRACE"
while [ ! -e "$TRACE.go" ]; do sleep 0.05; done
tail -c {HEAD_BYTES} sky.dat > /dev/null
{LOOK}
echo done >> "$TRACE\""""


@pytest.mark.parametrize(("begin", "first"), [("", []), ("set +e +o pipefail\n", ["done"])], ids=["it fails", "it takes no notice"])
def test_an_origin_that_dies_while_it_is_read_fails_the_job_which_is_tried_again_when_it_is_back(
    stager: Stager, survey: Survey, sshd: Sshd, begin: str, first: list[str]
) -> None:
    """Also a job that takes no notice of the error, and ends as if nothing were wrong, is not believed."""
    run = stager.submit(survey.workflow(ssh_origin(sshd, survey.data, kind="sshfs"), begin + HOLD))
    wait_until(lambda: "held" in survey.told(), "the job to read")
    sshd.stop()
    survey.trace.with_name("trace.go").touch()

    def waits() -> bool:
        return "is away" in stager.run("explain", run, "--job", "look").stdout

    wait_until(waits, "the job to wait for its origin")
    sshd.start()
    stager.run("wait", run)
    assert survey.is_right() and survey.told() == ["began", "held", *first, "began", "held", "done"]
    assert "cannot be asked whether it is the same" in stager.run("explain", run, "--job", "look").stdout


def test_a_file_that_changes_while_it_is_read_fails_the_run_and_nothing_is_written_back(stager: Stager, survey: Survey, sshd: Sshd) -> None:
    run = stager.submit(survey.workflow(ssh_origin(sshd, survey.data, kind="sshfs"), HOLD))
    wait_until(lambda: "held" in survey.told(), "the job to read")
    os.utime(survey.sky, (1_700_000_100, 1_700_000_100))
    survey.trace.with_name("trace.go").touch()
    done = stager.run("wait", run, code=None)
    assert done.returncode == 1 and "changed at its origin" in done.stdout + done.stderr
    assert not survey.sum.exists() and survey.told() == ["began", "held", "done"]


def test_where_nothing_can_be_mounted_the_file_is_fetched_after_all(stager: Stager, survey: Survey, sshd: Sshd, short_dir: Path) -> None:
    """sshfs as it ends where a container has no /dev/fuse."""
    programs = short_dir / "bin"
    programs.mkdir()
    shim = programs / "sshfs"
    shim.write_text("#!/bin/sh\necho 'fuse: device not found, try modprobe fuse first' >&2\nexit 1\n")
    shim.chmod(0o755)
    stager.env = {"PATH": f"{programs}:{os.environ['PATH']}"}
    workflow = survey.workflow(ssh_origin(sshd, survey.data, kind="sshfs"))
    assert direct_access(stager.json("plan", workflow)) == ["sky.dat"]
    run = stager.submit(workflow)
    stager.run("wait", run)
    assert survey.is_right()
    told = stager.run("explain", run, "--file", "sky.dat").stdout
    assert "fetched after all, and not read directly" in told and "fuse: device not found" in told
    assert report(stager)["fetched"]["actual"] == SIZE_BYTES
