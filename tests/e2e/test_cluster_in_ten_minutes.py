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
from tests.testbed.processes import Server, is_alive
from tests.testbed.waiting import wait_until
from tests.testbed.workflows import copied_workflow

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


def submitted_elsewhere(cluster: PooledCluster, workflow: Path) -> None:
    """By a tenant, from a machine that shares nothing with the service but the network."""
    tenants = cluster.stager.state_dir / "tenants.toml"
    tenants.touch(mode=0o600)
    tenants.write_text("[tenants.alice]\nnative_jobs = true\n")
    token = cluster.place / "alice.token"
    token.write_text(cluster.stager.run("token", "create", "--tenant", "alice", "--scope", "submit").stdout)
    cluster.stager.run("submit", workflow, "--server", cluster.url, "--token-file", token)


def facts_on(host: Host, *words: str) -> dict[str, Any]:
    return joined(host, *words, "--store", STORE)


def test_three_hosts_are_a_cluster(cluster: PooledCluster, net: Network, tmp_path: Path) -> None:
    a, b = (net.host(name, private=True) for name in ("a", "b"))
    first = facts_on(a, cluster.invite(), "--node-id", "a", "--capacity", "100 MB", "--cores", "1", "--memory", "2 GB")
    facts_on(b, cluster.invite(), "--no-node", "--beside", "a", "--node-id", "b", "--cores", "2", "--scratch", "/srv/jobs")
    assert first["worker"]["pool"] == cluster.pool and not first["worker_problem"]
    wait_until(lambda: cluster.hosts() == {"a": ("open", "a", 1), "b": ("open", "a", 2)}, "both hosts")
    here, elsewhere = (copied_workflow("quickstart", tmp_path / name) for name in ("here", "elsewhere"))
    cluster.stager.run("submit", here)
    words = (here.parent / "out" / "words.txt").read_bytes()
    assert int(words.split()[0]) > 5 and words.split()[1] == b"the"
    submitted_elsewhere(cluster, elsewhere)
    assert (elsewhere.parent / "out" / "words.txt").read_bytes() == words
    started = given_in(batches_of(StateDir(cluster.stager.state_dir)), cmd.StartAttempt)
    assert {(command.host, command.node) for command in started} == {("a", "a"), ("b", "a")}

    # Whatever dies is started again.
    pids = first["worker"]["pid"], first["pid"]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pids_on(a)[0] not in (None, pids[0]) and pids_on(a)[1] not in (None, pids[1]), "both to be there again")
    # What a person says now changes that alone.
    again = facts_on(a, "--cores", "2")
    assert (again["address"], again["capacity_bytes"]) == (first["address"], first["capacity_bytes"])
    wait_until(lambda: cluster.hosts().get("a") == ("open", "a", 2), "the new cores")
    # All of it ends, and is there again after what is said without an invite.
    keeper = keeper_of(a)
    assert "stopped" in stopped(a)
    # The lock of what keeps the host running is free a moment before its process is gone.
    ended = (keeper, again["worker"]["pid"], again["pid"])
    wait_until(lambda: not any(is_alive(pid) for pid in ended), "all of the host to end", 5)
    assert "nothing of this host runs" in stopped(a)
    facts_on(a)
    wait_until(lambda: cluster.is_up("a") and cluster.hosts().get("a") == ("open", "a", 2), "the host to be there again")


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
