"""The limits of an sftp origin are kept by four living I/O nodes together: what the server itself sees, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stager import wire
from stager.model.files import Destination, File, Location, OnExists, Source
from stager.model.topology import Node, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.runtime import allowances
from stager.scheduler import commands as cmd
from tests.e2e.nodes_rig import LIMITS, Composed, found, on_loopback
from tests.e2e.service_rig import CAPACITY_BYTES, Rig
from tests.testbed.ionode import IoNode
from tests.testbed.sshd import Sshd, running_sshd

JOBS, FILE_BYTES, RATE = 16, 1_000_000, 4_000_000
NAMES = ("node0", "node1", "node2", "node3")
CONNECTIONS = 3
ESTABLISHED = "01"


def connections_at(port: int) -> set[tuple[str, str]]:
    """(address of the client, the system's number of it) of each."""
    lines = Path("/proc/net/tcp").read_text().split("\n")[1:]
    fields = (line.split() for line in lines if line)
    return {(entry[2], entry[9]) for entry in fields if entry[1].endswith(f":{port:04X}") and entry[3] == ESTABLISHED}


@contextlib.contextmanager
def most_connections(port: int) -> Iterator[list[int]]:
    """How many the server had at once, at most. The system's table is no picture of one instant: while it is read, one may end and another
    one begin, and both stand in it. What stands in two readings was there between them.
    """
    most, over = [0], threading.Event()

    def watch() -> None:
        before: set[tuple[str, str]] = set()
        while not over.wait(0.002):
            there = connections_at(port)
            most[0] = max(most[0], len(before & there))
            before = there

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        over.set()
        watching.join()


@pytest.fixture
def rig(short_dir: Path) -> Iterator[Rig]:
    rig = Rig(short_dir)
    yield rig
    rig.end()


def summing(rig: Rig, sshd: Sshd) -> Workflow:
    """Jobs that each read a file of their own and write its checksum home. All that is to be known of the origin stands in the workflow, so
    each scheduler makes the same of it.
    """
    files, jobs = [], []
    for number in range(JOBS):
        name, token = f"in{number}", f"m={int(time.time()) - 60};s={FILE_BYTES}"
        (rig.data / name).write_bytes(os.urandom(FILE_BYTES))
        os.utime(rig.data / name, (int(token[2:].split(";")[0]),) * 2)
        files.append(File(name, sources=(Source(Location("lab", name), FILE_BYTES, token),), size_bytes=FILE_BYTES))
        files.append(File(f"sum{number}", size_bytes=200, destination=Destination(Location("lab", f"sum{number}"), OnExists.REPLACE)))
        shell = f"sha256sum < {name} > sum{number}"
        jobs.append(
            Job(f"j{number}", "sum", shell=shell, inputs=(JobInput(name, name),), outputs=(JobOutput(f"sum{number}", f"sum{number}"),))
        )
    options = {"known_hosts": str(sshd.known_hosts), "connections_max": str(CONNECTIONS), "bandwidth": str(RATE)}
    lab = Origin("lab", OriginKind.SFTP, sshd.url(), f"key:{sshd.identity_file}", tuple(options.items()))
    return Workflow("sums", {file.lfn: file for file in files}, {job.id: job for job in jobs}, {"lab": lab})


def are_right(rig: Rig) -> None:
    for number in range(JOBS):
        said = (rig.data / f"sum{number}").read_text().split()[0]
        assert said == hashlib.sha256((rig.data / f"in{number}").read_bytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["nothing", "a node", "the scheduler"])
def test_four_nodes_keep_the_limits_of_an_origin_together(
    rig: Rig, ionode: Callable[..., IoNode], short_dir: Path, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the connections are for: nodes take turns. MaxStartups lets no more in either."""
    monkeypatch.setattr(allowances, "LEASE_S", 3.0)
    monkeypatch.setattr(allowances, "RENEW_S", 1.0)
    beside = [ionode(node_id=name, options=on_loopback()) for name in NAMES[1:]]
    (short_dir / "sshd").mkdir(mode=0o700)
    with running_sshd(short_dir / "sshd", rig.data, max_startups=f"{CONNECTIONS}:100:{CONNECTIONS}") as sshd:
        workflow = summing(rig, sshd)
        plan = make_plan(workflow, Topology(tuple(Node(name, CAPACITY_BYTES, 2) for name in NAMES), ()), limits=LIMITS)
        homes = dict(zip(workflow.jobs, NAMES * JOBS, strict=False))

        async def main() -> None:
            composed = Composed(rig)
            await composed.open(lambda epoch: [found(node, epoch) for node in beside])
            await composed.all_up()
            run = await composed.submit_plan(workflow, plan, wire.Credentials({}, {}), homes)

            async def in_the_middle() -> bool:
                return sum(path.name.startswith("sum") for path in rig.data.iterdir()) >= 2

            if loss != "nothing":
                await composed.until(in_the_middle)
            if loss == "a node":
                beside[0].kill()
                beside[0].start()
            elif loss == "the scheduler":
                composed.scheduler.machine.lifetime.ended.set()
                await composed.scheduler.close(stop_node=False)
                await composed.open(lambda epoch: [found(node, epoch) for node in beside])
            await composed.ends(run)
            assert {command.node for command in composed.given(cmd.Fetch)} == set(NAMES)
            await composed.close()

        with most_connections(sshd.port) as most:
            began = time.monotonic()
            asyncio.run(main())
            took_s = time.monotonic() - began
        are_right(rig)
        assert 2 <= most[0] <= CONNECTIONS
        # Bursts, and what a node had before it was killed, come on top.
        assert took_s > 0.8 * JOBS * FILE_BYTES / RATE
