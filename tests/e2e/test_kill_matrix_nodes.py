"""kill -9 of each process of a scheduler with two I/O nodes in each phase: every byte is right, and nothing that was finished runs again.

The origin is a real ssh server. It and the second node are behind lines that are slow when a phase is to last. A run whose phase was not
hit fails. Seven cells are of each day, make kill-matrix has them all, STAGER_KILL_ROUNDS times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.workflow_file import credentials_of
from stager.client import Client, connect
from stager.model.errors import StagerError
from stager.model.topology import Node, Topology
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from stager.readers.sniff import read_workflow
from stager.service.settings import read_settings
from tests.e2e.kill_phases import SLOW_BYTES_PER_S, cells
from tests.e2e.nodes_rig import on_loopback
from tests.testbed.forked import SCHEDULER, started
from tests.testbed.ionode import IoNode
from tests.testbed.letters import Letters
from tests.testbed.link import Link
from tests.testbed.sshd import Sshd
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

VICTIMS = ("node0", "node1", "scheduler")
PHASES = ("fetching", "copying", "running", "committing", "uploading")
EACH_DAY = {
    ("node0", "fetching"),
    ("node0", "uploading"),
    ("node1", "copying"),
    ("node1", "fetching"),
    ("node1", "running"),
    ("scheduler", "committing"),
    ("scheduler", "running"),
}
CELLS = cells(VICTIMS, PHASES, EACH_DAY)
COUNT = 3


@dataclass
class Bed:
    """`to_origin` and `to_node` are the lines."""

    stager: Stager
    node: IoNode
    letters: Letters
    data: Path
    to_origin: Link
    to_node: Link

    def scheduler(self) -> Client:
        """Of the living one, or of one that is started as a command would."""
        found = connect(self.stager.state_dir)
        if found is None:
            self.stager.state_dir.mkdir(mode=0o700, exist_ok=True)
            with (self.stager.state_dir / "scheduler.log").open("ab") as log:
                streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
                started(SCHEDULER, [], self.stager.environment(), start_new_session=True, **streams)
            found = wait_until(lambda: connect(self.stager.state_dir), "the scheduler to answer")
        wait_until(lambda: found.health().ready, "the scheduler to be ready")
        return found

    def submit(self, client: Client) -> str:
        """What is read from the origin comes to the second node, which makes the intermediates; all but one of their readers are beside the
        first.
        """
        settings = read_settings(environ=self.stager.environment())
        workflow = read_workflow(self.letters.workflow, access=IonodeOriginAccess(settings.environ))
        plan = make_plan(workflow, Topology(tuple(Node(name, 1_000_000_000, 2) for name in ("node0", "node1"))), limits=Limits(cores=2))
        beside = {job.job: "node1" if job.job.startswith("digest") or job.job.endswith("1") else "node0" for job in plan.jobs}
        placed = replace(plan, jobs=tuple(structs.replace(job, node=beside[job.job]) for job in plan.jobs))
        return client.submit(workflow, placed, credentials_of(settings, workflow))

    def kill(self, victim: str) -> None:
        if victim == "node1":
            self.node.kill()
            return
        pid = self.stager.scheduler_pid() if victim == "scheduler" else self.stager.node_pid()
        assert pid is not None, f"no {victim} lives in this phase: this run proves nothing"
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def bed(short_dir: Path, sshd: Sshd, link: Callable[..., Link], ionode: Callable[..., IoNode]) -> Iterator[Bed]:
    to_origin = link(sshd.port)
    (short_dir / "known_hosts").write_text(sshd.known_hosts.read_text().replace(f":{sshd.port}", f":{to_origin.port}"))
    data = sshd.data / "letters"
    letters = Letters(short_dir / "wf", count=COUNT, size_bytes=1_500_000, pause_s=0.2)
    origin = f'{{url: "sftp://{sshd.user}@127.0.0.1:{to_origin.port}{data}", '
    origin += f'credentials: "key:{sshd.identity_file}", known_hosts: "{short_dir / "known_hosts"}"}}'
    letters.make(data, origin)
    node = ionode(node_id="node1", options=on_loopback())
    to_node = link(int(node.address.rpartition(":")[2]))
    named = f"node1=127.0.0.1:{to_node.port}@{node.token_file}"
    stager = Stager(short_dir / "s", short_dir / "home", env={"STAGER_NODES": named, "STAGER_CORES": "4"})
    yield Bed(stager, node, letters, data, to_origin, to_node)
    go_on(node)
    stager.end()


def go_on(node: IoNode) -> None:
    """After a SIGSTOP, if it lives."""
    if node.server is not None and not node.server.gone():
        os.kill(node.pid, signal.SIGCONT)


class Phase:
    """Made before the submit. It lasts until `let_go`, or so long that nobody waits that long for a look at it."""

    def __init__(self, name: str, bed: Bed) -> None:
        self.name, self.bed = name, bed
        if name == "fetching":
            bed.to_origin.bytes_per_s = SLOW_BYTES_PER_S
        if name == "copying":
            bed.to_node.bytes_per_s = SLOW_BYTES_PER_S
        held = {"running": "stamp", "committing": "digest", "uploading": "stamp"}.get(name)
        self.gate = bed.letters.hold(held) if held else None

    def begin(self, client: Client, run: str) -> None:
        """Returns when it is reached."""
        letters, bed = self.bed.letters, self.bed
        if self.name == "uploading" and self.gate is not None:
            wait_until(lambda: self.digested() == COUNT, "the first jobs to end")
            bed.to_origin.bytes_per_s = SLOW_BYTES_PER_S
            self.gate.touch()
        if self.name == "committing" and self.gate is not None:
            wait_until(lambda: letters.trace.exists() and letters.trace.read_text().count("begin") == COUNT, "the first jobs to run")
            os.kill(bed.node.pid, signal.SIGSTOP)
            self.gate.touch()
            wait_until(lambda: self.digested() == COUNT and not bed.stager.reaper_pids(), "them to have ended")
            committed = [job.job for job in client.run(run).jobs(state="done") if job.job.startswith("digest")]
            assert len(committed) < COUNT, "none ended beside the second node: this run proves nothing"
            return
        wait_until(lambda: self.is_reached(client, run), f"the phase {self.name}")

    def digested(self) -> int:
        return sum(line.startswith("digest") for line in self.bed.letters.ended())

    def is_reached(self, client: Client, run: str) -> bool:
        with contextlib.suppress(StagerError):
            status = client.run(run).status()
            moving = {each.direction for each in status.transfers if each.state == "running" and each.bytes_done < each.bytes_total}
            if self.name == "running":
                return len(self.bed.letters.ended()) == COUNT and bool(status.running and self.bed.stager.reaper_pids())
            return {"fetching": "fetch", "copying": "copy", "uploading": "upload"}[self.name] in moving
        return False

    def let_go(self) -> None:
        self.bed.to_origin.bytes_per_s = self.bed.to_node.bytes_per_s = None
        if self.gate is not None:
            self.gate.touch()
        go_on(self.bed.node)


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "phase", "number"), CELLS)
def test_killed_at_any_instant_the_run_on_two_nodes_ends_right(bed: Bed, victim: str, phase: str, number: int) -> None:
    held = Phase(phase, bed)
    client = bed.scheduler()
    run = bed.submit(client)
    held.begin(client, run)
    done = {job.job for job in client.run(run).jobs(state="done")}
    bed.kill(victim)
    client.close()
    held.let_go()
    if victim == "node1":
        # Whoever started it starts it again.
        bed.to_node.cut()
        bed.node.start()
    if victim == "scheduler":
        wait_until(lambda: bed.stager.scheduler_pid() is None, "the scheduler to be gone")
        bed.scheduler().close()
    bed.stager.run("wait", run)
    bed.letters.check(bed.data)
    with bed.scheduler() as client:
        attempts = {job.job: job.attempts for job in client.run(run).jobs()}
    assert all(attempts[job] == 1 for job in done), f"finished jobs ran again: {attempts}"
    assert all(count <= 2 for count in bed.letters.ended().values()), bed.letters.ended()
