"""kill -9 of each process of a cluster in each phase: two hosts that share no file, an I/O node and a worker on each, all by TLS.

The origin and both hosts are behind lines that are slow enough for a phase to be met. A run whose phase was not met fails. The cluster is
one and the same for all rounds, so that a round also finds what the ones before it left. Five cells are of each day, make kill-matrix
has them all, STAGER_KILL_ROUNDS times.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stager.client import connect
from stager.scheduler import events as ev
from tests.e2e.apart_rig import SCRATCH, STORE, Apart
from tests.e2e.kill_phases import cells
from tests.testbed.network import Network, needs_network, pids_in
from tests.testbed.processes import end

VICTIMS = ("worker", "pool", "node", "host", "scheduler")
PHASES = ("fetching", "running", "copying", "uploading")
EACH_DAY = {("worker", "running"), ("pool", "running"), ("node", "copying"), ("host", "fetching"), ("scheduler", "uploading")}
CELLS = cells(VICTIMS, PHASES, EACH_DAY)
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kill-matrix-hosts"), pytest.mark.timeout(300)]

RATE_MBIT_S = 20.0
COUNT = 4
SIZE_BYTES = 600_000
TRANSFERS = {"fetching": "fetch", "copying": "copy", "uploading": "upload"}
# `stir` needs what both hosts have made, so that it goes from node to node.
WORKFLOW = """
stager: 1
name: letters
origins:
  lab: {origin}
jobs:
  sign:
    foreach: {{n: [0, 1, 2, 3]}}
    run: "sleep 0.3; (sha256sum < in-{{n}}; cat in-{{n}}) > mid-{{n}}"
    inputs: {{"in-{{n}}": "lab:in/{{n}}"}}
    outputs: ["mid-{{n}}"]
  stir:
    foreach: {{n: [0, 1, 2, 3]}}
    run: "sleep 0.3; (echo {{n}}; cat mid-*) > out-{{n}}"
    inputs: ["mid-*"]
    outputs: {{"out-{{n}}": "lab:out/{{n}}"}}
"""


@pytest.fixture(scope="module")
def apart(session_dir: Path) -> Iterator[Apart]:
    needs_network()
    with Network() as net:
        made = Apart(net, Path(tempfile.mkdtemp(dir=session_dir)), {}, RATE_MBIT_S)
        try:
            made.start()
            yield made
        finally:
            made.end()


def content(directory: str, number: int) -> bytes:
    return random.Random(f"{directory} {number}").randbytes(SIZE_BYTES)


def finals(directory: str) -> dict[str, bytes]:
    inputs = [content(directory, number) for number in range(COUNT)]
    mids = b"".join(f"{hashlib.sha256(each).hexdigest()}  -\n".encode() + each for each in inputs)
    return {str(number): f"{number}\n".encode() + mids for number in range(COUNT)}


def submitted(apart: Apart, directory: str) -> str:
    for number in range(COUNT):
        apart.put(f"{directory}/in/{number}", content(directory, number))
    workflow = apart.place / f"{directory}.yml"
    workflow.write_text(WORKFLOW.format(origin=apart.origin(f"/{directory}")))
    return apart.stager.submit(workflow)


def is_met(apart: Apart, run: str, phase: str) -> bool:
    if phase == "running":
        return any(host.reaper_pids() for host in apart.pool.hosts.values())
    client = connect(apart.stager.state_dir)
    assert client is not None, f"{phase}: no scheduler answers"
    with client:
        status = client.run(run).status()
    assert not status.info.finished_at, f"the run ended before a kill while {phase}: this round proves nothing"
    return any(transfer.direction == TRANSFERS[phase] and transfer.state == "running" for transfer in status.transfers)


def kill_worker(apart: Apart, site: str) -> None:
    apart.pool.hosts[f"h{site}"].kill_worker()


def kill_pool(apart: Apart, _: str) -> None:
    apart.pool.kill_scheduler()
    apart.pool.start()


def kill_node(apart: Apart, site: str) -> None:
    apart.nodes[site].kill()
    apart.nodes[site].start()


def kill_host(apart: Apart, site: str) -> None:
    """All that runs on it, jobs too, and it comes back with its disk."""
    host, node, worker = apart.sites[site], apart.nodes[site], apart.pool.hosts[f"h{site}"]
    node.kill()
    worker.server.kill()
    keeper = host.files.pid if host.files else None
    end([pid for pid in pids_in([host.namespace]) if pid != keeper])
    assert (host.outside(STORE)).is_dir(), "the disk of the host went with it"
    node.start()
    worker.server.start()


def kill_scheduler(apart: Apart, _: str) -> None:
    apart.kill_scheduler()
    apart.start_scheduler()


KILLS: dict[str, Callable[[Apart, str], None]] = {
    "worker": kill_worker,
    "pool": kill_pool,
    "node": kill_node,
    "host": kill_host,
    "scheduler": kill_scheduler,
}


@pytest.mark.parametrize(("victim", "phase", "number"), CELLS)
def test_killed_at_any_instant_the_run_ends_right(apart: Apart, victim: str, phase: str, number: int) -> None:
    directory = f"{victim}-{phase}-{number}"
    site = random.Random(directory).choice(sorted(apart.sites))
    run = submitted(apart, directory)
    apart.until(lambda: is_met(apart, run, phase), f"the phase {phase}")
    KILLS[victim](apart, site)
    # Credentials of an origin are in the memory of a scheduler only: somebody who has them says so to the next.
    said = apart.stager.run("resume" if victim == "scheduler" else "wait", run, code=None, deadline_s=200)
    assert said.returncode == 0, f"{directory} at {site}: {said.stdout}\n{said.stderr}\n{apart.logs()}"
    assert apart.stored(f"{directory}/out/") == finals(directory)
    ends = [event for event in apart.ends() if event.run == run]
    well = Counter(event.job for event in ends if event.outcome is ev.Outcome.OK)
    assert len(well) == 2 * COUNT and set(well.values()) == {1}, f"{directory} at {site}: jobs that ended well: {well}"
    others = Counter(event.outcome for event in ends if event.outcome is not ev.Outcome.OK)
    assert set(others) <= {ev.Outcome.KILLED, ev.Outcome.LOST}, others
    for name, host in apart.sites.items():
        apart.until(lambda name=name: apart.left(name) == {}, f"what node {name} has of attempts to go")
        scratch = host.outside(SCRATCH)
        apart.until(lambda scratch=scratch: not list(scratch.glob("attempts/*")), f"the sandboxes of {name} to go")
