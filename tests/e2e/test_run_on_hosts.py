"""A workflow shaped like Montage over two I/O nodes and two unequal hosts, each beside one of them, while workers are killed by -9."""

from __future__ import annotations

import hashlib
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stager.model.files import File
from stager.model.topology import Host, Node, Topology
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from stager.scheduler import events as ev
from tests.e2e.hosts_rig import Hosts
from tests.e2e.nodes_rig import on_loopback
from tests.e2e.service_rig import CAPACITY_BYTES, Rig
from tests.testbed.ionode import IoNode

pytestmark = pytest.mark.slow
TILES = 8


@pytest.fixture
def hosts(short_dir: Path, ionode: Callable[..., IoNode]) -> Iterator[Hosts]:
    node = ionode(node_id="node1", options=on_loopback(), capacity_bytes=CAPACITY_BYTES)
    made = Hosts(short_dir, {"h1": 1}, nodes={"node1": node})
    made.add("h2", 3, near="node1")
    yield made
    made.end()


def sky(rig: Rig) -> Workflow:
    """Project each tile, take differences of neighbours, fit them all, correct each tile, add them up."""
    tiles = range(TILES)
    pause = "sleep 0.2"
    files = [rig.source(f"t{n}", f"tile {n}\n".encode() * 2000) for n in tiles]
    files += [File(f"p{n}", size_bytes=20_000) for n in tiles] + [File(f"d{n}", size_bytes=200) for n in tiles[1:]]
    files += [File("fit", size_bytes=1000)] + [File(f"c{n}", size_bytes=20_000) for n in tiles] + [rig.final("mosaic", 200_000)]
    jobs = [rig.job(f"project{n}", f"{pause}; tr a-z A-Z < t{n} > p{n}", (f"t{n}",), (f"p{n}",)) for n in tiles]
    for n in tiles[1:]:
        jobs.append(rig.job(f"diff{n}", f"{pause}; cat p{n - 1} p{n} | cksum > d{n}", (f"p{n - 1}", f"p{n}"), (f"d{n}",)))
    differences = tuple(f"d{n}" for n in tiles[1:])
    jobs.append(rig.job("fit", f"cat {' '.join(differences)} > fit", differences, ("fit",)))
    for n in tiles:
        jobs.append(rig.job(f"correct{n}", f"{pause}; cat p{n} fit > c{n}", (f"p{n}", "fit"), (f"c{n}",)))
    corrected = tuple(f"c{n}" for n in tiles)
    jobs.append(rig.job("add", f"cat {' '.join(corrected)} > mosaic", corrected, ("mosaic",), cores=3))
    return rig.workflow("sky", files, jobs)


def expected(rig: Rig, place: Path) -> bytes:
    """By the same commands, one after the other, without stager."""
    lines = [f"tr a-z A-Z < {rig.data}/t{n} > p{n}" for n in range(TILES)]
    lines += [f"cat p{n - 1} p{n} | cksum > d{n}" for n in range(1, TILES)]
    lines += [f"cat {' '.join(f'd{n}' for n in range(1, TILES))} > fit", *(f"cat p{n} fit > c{n}" for n in range(TILES))]
    place.mkdir()
    subprocess.run(["sh", "-ec", "\n".join([*lines, f"cat {' '.join(f'c{n}' for n in range(TILES))} > mosaic"])], cwd=place, check=True)
    return (place / "mosaic").read_bytes()


def test_workers_are_killed_and_every_byte_is_there_and_no_job_ran_twice(hosts: Hosts, tmp_path: Path) -> None:
    rig, client, workflow = hosts.rig, hosts.client(), sky(hosts.rig)
    hosts.until(lambda: hosts.seen() == {"h1": ("open", 1), "h2": ("open", 3)}, "both hosts")
    nodes = (Node("node0", CAPACITY_BYTES, hosts=(Host("h1", 1),)), Node("node1", CAPACITY_BYTES, hosts=(Host("h2", 3),)))
    plan = make_plan(workflow, Topology(nodes, ()), limits=Limits(cores=3))
    run = client.submit(workflow, plan, rig.credentials(workflow))
    for count, host in ((3, "h2"), (8, "h1"), (12, "h2")):
        hosts.until(lambda count=count: sum(rig.ran().values()) >= count, f"{count} jobs")
        hosts.pool.hosts[host].kill_worker()
    assert rig.finished(client, run) == "succeeded"
    mosaic = (rig.data / "out" / "mosaic").read_bytes()
    assert hashlib.sha256(mosaic).digest() == hashlib.sha256(expected(rig, tmp_path / "serial")).digest()
    assert rig.ran() == dict.fromkeys(workflow.jobs, 1)
    ended = Counter((event.job, event.outcome) for event in hosts.told(ev.AttemptEnded))
    assert {key: count for key, count in ended.items() if key[1] is ev.Outcome.OK} == {(job, ev.Outcome.OK): 1 for job in workflow.jobs}
    # One that was only being started when its worker was killed counts for nothing.
    assert {outcome for _, outcome in ended} <= {ev.Outcome.OK, ev.Outcome.KILLED}
    where = dict(hosts.starts())
    assert set(where.values()) == {"h1", "h2"} and where["add"] == "h2"
    told = "\n".join(client.run(run).explain(job="add").lines)
    assert f"starts on {where['add']}" in told
