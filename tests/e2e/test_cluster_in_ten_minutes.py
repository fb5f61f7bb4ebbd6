"""The commands of docs/operating/cluster.md, from `cluster init` to a run on hosts that joined by an invite."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stager.client import connect
from stager.scheduler import commands as cmd
from stager.service.state_dir import StateDir
from tests.e2e.nodes_rig import batches_of, given_in
from tests.e2e.test_host_join import STORE, Cluster, joined, ran_stager
from tests.testbed.network import Host, Network
from tests.testbed.places import PROJECT
from tests.testbed.processes import Server, is_alive
from tests.testbed.s3 import S3
from tests.testbed.waiting import wait_until

QUICKSTART = PROJECT / "workflows" / "quickstart"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class PooledCluster(Cluster):
    """With a pool, as its administrator starts one."""

    def __init__(self, net: Network, place: Path) -> None:
        super().__init__(net, place)
        self.pool = f"tls://{self.host.address}:{self.host.free_port()}"
        self.stager.env = {"STAGER_POOL": self.pool, "STAGER_CAPACITY": "200 MB"}
        argv = [sys.executable, "-m", "stager.cli", "pool"]
        self.pool_server = Server(argv, place / "pool.log", env=self.stager.environment(), where=self.host)

    def begin(self) -> None:
        self.stager.run("cluster", "init", "--name", "c1")
        self.pool_server.start()
        self.start()

    def end(self) -> None:
        super().end()
        self.pool_server.stop()

    def hosts(self) -> dict[str, tuple[str, str, int]]:
        with contextlib.suppress(Exception):
            client = connect(self.stager.state_dir)
            if client is not None:
                with client:
                    return {host.host: (host.state, host.node, host.cores) for host in client.hosts.listed()}
        return {}


@pytest.fixture
def cluster(net: Network, short_dir: Path) -> Iterator[PooledCluster]:
    made = PooledCluster(net, short_dir)
    made.begin()
    yield made
    made.end()


@pytest.fixture
def bucket(cluster: PooledCluster) -> Iterator[S3]:
    """The texts of the quickstart, where all hosts reach them."""
    s3 = S3(cluster.place, where=cluster.host)
    s3.start()
    try:
        with cluster.host.inside():
            s3.make_bucket("lab")
            for text in (QUICKSTART / "texts").iterdir():
                s3.client().put_object(Bucket="lab", Key=f"texts/{text.name}", Body=text.read_bytes())
        yield s3
    finally:
        s3.stop()


def workflow_of(cluster: PooledCluster, s3: S3) -> Path:
    """As the page says: an origin instead of the directory of the workflow file."""
    made = cluster.place / "workflow.yml"
    origin = f'origins:\n  lab: {{url: "s3://lab", endpoint: "{s3.endpoint}", addressing: path, allow_http: true}}\n'
    text = (QUICKSTART / "workflow.yml").read_text().replace("here:", "lab:")
    made.write_text(text.replace("files:\n", f"{origin}files:\n", 1))
    return made


def facts_on(host: Host, *words: str) -> dict[str, Any]:
    return joined(host, *words, "--store", STORE)


def test_three_hosts_are_a_cluster(cluster: PooledCluster, bucket: S3, net: Network) -> None:
    a, b = (net.host(name, private=True) for name in ("a", "b"))
    first = facts_on(a, cluster.invite(), "--node-id", "a", "--capacity", "100 MB", "--cores", "1", "--memory", "2 GB")
    facts_on(b, cluster.invite(), "--no-node", "--beside", "a", "--node-id", "b", "--cores", "2", "--scratch", "/srv/jobs")
    assert first["worker"]["pool"] == cluster.pool and not first["worker_problem"]
    wait_until(lambda: cluster.hosts() == {"a": ("open", "a", 1), "b": ("open", "a", 2)}, "both hosts", 60)
    cluster.stager.env = {**cluster.stager.env, **bucket.credentials(), "PATH": "/usr/bin:/bin"}
    cluster.stager.run("submit", workflow_of(cluster, bucket))
    with cluster.host.inside():
        words = bucket.client().get_object(Bucket="lab", Key="out/words.txt")["Body"].read().split()
    assert int(words[0]) > 5 and words[1] == b"the"
    started = given_in(batches_of(StateDir(cluster.stager.state_dir)), cmd.StartAttempt)
    assert {(command.host, command.node) for command in started} == {("a", "a"), ("b", "a")}

    # Whatever dies is started again.
    pids = first["worker"]["pid"], first["pid"]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pids_on(a)[0] not in (None, pids[0]) and pids_on(a)[1] not in (None, pids[1]), "both to be there again", 30)
    # What a person says now changes that alone.
    again = facts_on(a, "--cores", "2")
    assert (again["address"], again["capacity_bytes"]) == (first["address"], first["capacity_bytes"])
    wait_until(lambda: cluster.hosts().get("a") == ("open", "a", 2), "the new cores", 60)
    # All of it ends, and is there again after what is said without an invite.
    keeper = keeper_of(a)
    assert "stopped" in stopped(a)
    # The lock of what keeps the host running is free a moment before its process is gone.
    ended = (keeper, again["worker"]["pid"], again["pid"])
    wait_until(lambda: not any(is_alive(pid) for pid in ended), "all of the host to end", 5)
    assert "nothing of this host runs" in stopped(a)
    facts_on(a)
    wait_until(lambda: cluster.is_up("a") and cluster.hosts().get("a") == ("open", "a", 2), "the host to be there again", 60)


def stopped(host: Host) -> str:
    done = ran_stager(host, "host", "stop", "--store", STORE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def keeper_of(host: Host) -> int:
    pid = state_on(host)["pid"]
    assert isinstance(pid, int)
    return pid


def state_on(host: Host) -> dict[str, Any]:
    """What keeps the host running says so. Pids are the same on all hosts of the bed."""
    found: dict[str, Any] = json.loads((host.outside(STORE) / "keeper.json").read_text())
    return found


def pids_on(host: Host) -> tuple[int | None, int | None]:
    """Of its worker and of its node."""
    try:
        node = json.loads((host.outside(STORE) / "node" / "rendezvous.json").read_text())["pid"]
        return state_on(host)["worker_pid"], node
    except (OSError, ValueError):
        return None, None
