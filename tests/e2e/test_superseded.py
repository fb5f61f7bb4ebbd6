"""A product that waits for its origin while the service and its node are killed, and what somebody else writes at its place meanwhile: real
processes, a real sshd and a real S3 server. Which of two is newer is told by the origin's clock, and in doubt nothing is written over.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stager import wire
from stager.model.files import Destination, File, Location, OnExists
from stager.model.topology import embedded
from stager.model.workflow import Job, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from tests.e2e.origin_rig import known_hosts_of
from tests.e2e.service_rig import CAPACITY_BYTES, Rig
from tests.e2e.test_engine_runs import Engine
from tests.testbed.link import Link
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd

MADE, THEIRS = b"what the task made", b"theirs"


@dataclass
class Lab:
    """`place`: where the product goes, on the origin's own disk."""

    engine: Engine
    line: Link
    place: Path
    credentials: wire.Credentials
    put: Callable[[bytes], object]
    handed_over_at: float = 0.0

    def hand_over(self) -> None:
        """Its origin is away by then, so that it waits on its node."""
        view = self.engine.call("make", "try-1")
        self.line.go_down()
        Path(view.outputs[0].path).write_bytes(MADE)
        assert self.engine.finish("make", "try-1").state is wire.CallState.DONE
        self.handed_over_at = time.time()
        self.engine.rig.until(lambda: self.engine.client.run(self.engine.run).status().waiting, "the product to wait for its origin")

    def away(self, meanwhile: Callable[[], object]) -> None:
        rig = self.engine.rig
        os.kill(self.engine.client.health().pid, signal.SIGKILL)
        rig.until(lambda: rig.stager.scheduler_pid() is None, "the scheduler to be gone")
        node = rig.stager.node_pid()
        assert node is not None
        os.kill(node, signal.SIGKILL)
        rig.until(lambda: rig.stager.node_pid() is None, "the node to be gone")
        meanwhile()
        self.line.come_up()
        self.engine.client = rig.client()
        self.engine.client.run(self.engine.run).resume(self.credentials)

    def content(self) -> bytes:
        return self.place.read_bytes()

    def written_s_ago(self, content: bytes, s_ago: float) -> None:
        self.put(content)
        os.utime(self.place, (time.time() - s_ago,) * 2)

    def problems(self) -> list[str]:
        return [problem.code for problem in self.engine.client.run(self.engine.run).status().problems]

    def until(self, standing: str) -> Any:
        self.engine.rig.until(lambda: self.engine.standing("out") == standing, f"the product to be {standing}")
        return self.engine.client.run(self.engine.run).ledger(lfn="out")[0]

    def ends(self) -> str:
        self.engine.end()
        return self.engine.finished()


def started(rig: Rig, line: Link, origin: Origin, place: Path, config: dict[str, Any], put: Callable[[bytes], object]) -> Lab:
    out = File("out", size_bytes=100, destination=Destination(Location("lab", "out"), OnExists.REPLACE))
    make = Job("make", "make", outputs=(JobOutput("out", "out"),))
    workflow = Workflow("dag", {"out": out}, {"make": make}, {"lab": origin}, engine="airflow")
    client, credentials = rig.client(), wire.Credentials({"lab": config}, {})
    run = client.submit(workflow, make_plan(workflow, embedded(CAPACITY_BYTES, cores=2), limits=Limits(cores=2)), credentials)
    return Lab(Engine(rig, place.parent, client, run), line, place, credentials, put)


@pytest.fixture(params=["sftp", "s3"])
def lab(request: pytest.FixtureRequest, short_dir: Path, link: Callable[..., Link]) -> Iterator[Lab]:
    rig = Rig(short_dir)
    if request.param == "sftp":
        sshd: Sshd = request.getfixturevalue("sshd")
        line = link(sshd.port)
        hosts = known_hosts_of(sshd, line.port, short_dir / "known_hosts")
        config = sshd.origin() | {"port": line.port, "known_hosts": [str(hosts)]}
        url = f"sftp://{sshd.user}@127.0.0.1:{line.port}{sshd.data}"
        origin = Origin("lab", OriginKind.SFTP, url, f"key:{sshd.identity_file}", (("known_hosts", str(hosts)),))
        place = sshd.data / "out"
        yield started(rig, line, origin, place, config, place.write_bytes)
    else:
        server: S3 = request.getfixturevalue("s3")
        bucket: str = request.getfixturevalue("bucket")
        if server.data is None:
            pytest.skip("times of objects are set on versitygw's disk")
        line = link(server.port)
        config = server.origin(bucket, endpoint=f"http://127.0.0.1:{line.port}")
        origin = Origin("lab", OriginKind.S3, f"s3://{bucket}", "env:LAB")
        put = lambda content: server.client().put_object(Bucket=bucket, Key="out", Body=content)  # noqa: E731
        yield started(rig, line, origin, server.data / bucket / "out", config, put)
    rig.end()


def test_what_is_newer_there_stays_and_that_is_told(lab: Lab) -> None:
    lab.hand_over()
    lab.away(lambda: lab.put(THEIRS))
    entry = lab.until("superseded")
    assert "was changed" in entry.fault and "is kept on node0" in entry.fault and entry.size_bytes == len(MADE)
    client = lab.engine.client
    assert lab.problems() == ["destination_newer"]
    assert any(entry.fault in line for line in client.run(lab.engine.run).explain(lfn="out").lines)
    status = client.run(lab.engine.run).status()
    assert status.finals_durable == status.finals_total and status.ledger.superseded.files == 1
    answer = client.run(lab.engine.run).wait(timeout_s=0, lfn="out")
    assert (answer.durable, answer.superseded) == (False, entry.fault)
    assert lab.ends() == "succeeded"
    assert lab.content() == THEIRS
    assert client.run(lab.engine.run).summary().finals_superseded == [entry.fault]
    assert lab.engine.where("out").nodes == ["node0"], "what was made is still there"


def test_nothing_there_or_an_older_version_is_as_ever(lab: Lab) -> None:
    lab.written_s_ago(b"the version before", 60)
    lab.hand_over()
    lab.away(lambda: None)
    lab.until("durable")
    assert lab.content() == MADE and lab.problems() == []
    assert lab.ends() == "succeeded"


def test_our_own_upload_whose_word_was_lost_is_home(lab: Lab) -> None:
    lab.hand_over()
    lab.away(lambda: lab.put(MADE))
    assert lab.until("durable").verified == "adopted"
    assert lab.problems() == [] and lab.ends() == "succeeded"


def test_what_cannot_be_told_from_newer_stays_and_so_does_what_was_made(lab: Lab) -> None:
    """Stamps come in whole seconds: the version before, written in the second of the hand-over."""
    lab.hand_over()
    lab.away(lambda: lab.written_s_ago(b"the version before", time.time() - lab.handed_over_at))
    lab.until("superseded")
    assert lab.content() == b"the version before"
    assert lab.engine.where("out").nodes == ["node0"]
    # A task that is run again brings it home.
    lab.engine.do("make", "try-2", shout="anew")
    lab.until("durable")
    assert lab.content() == b"anew" and lab.problems() == [] and lab.ends() == "succeeded"
