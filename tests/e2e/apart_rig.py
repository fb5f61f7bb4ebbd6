"""A cluster whose hosts share no file: a scheduler, two hosts with an I/O node and a worker each, and an S3 origin, all by TLS.

One rule: a host gets what an administrator would bring it, its certificates, and nothing else. What it started ends with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stager.adapters.authority import Authority
from stager.client import connect
from stager.scheduler import events as ev
from stager.service.state_dir import StateDir
from tests.e2e.nodes_rig import batches_of
from tests.testbed.ionode import IoNode
from tests.testbed.network import Host, Network
from tests.testbed.places import ionode_binary
from tests.testbed.pool import Pool
from tests.testbed.s3 import S3
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

TLS, POOL_TLS, SCRATCH, STORE = "/srv/tls", "/srv/pool-tls", "/srv/jobs", Path("/srv/store")
CAPACITY_BYTES = 500_000_000
ORIGIN = '{{url: "s3://bucket{prefix}", endpoint: "{endpoint}", addressing: path, allow_http: true}}'


class Apart:
    """Host `a` has the node `a` and the worker `ha`, and so has `b`. The scheduler's files are this process's own."""

    def __init__(
        self,
        net: Network,
        place: Path,
        env: Mapping[str, str],
        rate_mbit_s: float | None = None,
        lab: Host | None = None,
        sites: Sequence[str] = ("a", "b"),
        clock_offsets_s: Mapping[str, float] | None = None,
        rates_mbit_s: Mapping[str, float] | None = None,
    ) -> None:
        """`rate_mbit_s`: of the lines of the origin, which is on `lab` where there is one already, and of each host that has a node,
        of which some have another one by `rates_mbit_s`; `clock_offsets_s`: how far ahead the clocks of some of those are."""
        self.net, self.place = net, place
        self.here, self.lab = net.host("s"), lab or net.host("lab", rate_mbit_s=rate_mbit_s)
        clocks, rates = clock_offsets_s or {}, rates_mbit_s or {}
        self.sites: dict[str, Host] = {
            name: net.host(name, private=True, rate_mbit_s=rates.get(name, rate_mbit_s), clock_offset_s=clocks.get(name, 0))
            for name in sites
        }
        self.stager = Stager(place / "s", place / "home", where=self.here)
        self.stager.state_dir.mkdir(mode=0o700)
        self.state = StateDir(self.stager.state_dir)
        self.authority = Authority(self.state.authority)
        self.authority.make("c1")
        for role, directory in (("scheduler", self.state.tls), ("node/node0", self.state.node_tls), ("pool/p", place / "pool-tls")):
            self.authority.issue(role, directory)
        self.s3 = S3(place, where=self.lab)
        self.pool = Pool(place / "pool", tls=place / "pool-tls", where=self.here)
        self.nodes: dict[str, IoNode] = {}
        self.env, self.epoch = dict(env), 0

    def start(self, cores: int = 2, workers: int | None = None) -> None:
        """`workers`: so many hosts, the first ones, have one; None: all."""
        self.s3.start()
        with self.here.inside():
            self.s3.make_bucket("bucket")
        self.pool.start()
        for name, host in self.sites.items():
            self.authority.issue(f"node/{name}", host.outside(TLS))
            self.authority.issue("pool/p", host.outside(POOL_TLS))
            options = ["--tcp", f"{host.address}:{host.free_port()}", "--tls-dir", TLS]
            self.nodes[name] = IoNode(ionode_binary(), STORE, CAPACITY_BYTES, where=host, options=options, node_id=name)
            self.nodes[name].start()
        for name in list(self.sites)[:workers]:
            self.pool.host_apart(f"h{name}", cores, name, self.sites[name], SCRATCH, POOL_TLS)
        named = " ".join(f"{name}={node.address}" for name, node in self.nodes.items())
        self.stager.env = {**self.s3.credentials(), **self.env, "STAGER_NODES": named, "STAGER_POOL": self.pool.address}
        self.start_scheduler()

    def start_scheduler(self) -> None:
        """Nodes obey the newest only, so what a test asks of them is asked in its name."""
        self.epoch += 1
        for node in self.nodes.values():
            node.epoch = self.epoch
        argv = [sys.executable, "-m", "stager.service", "--state-dir", str(self.stager.state_dir), "--capacity", "200 MB", "--cores", "2"]
        with (self.stager.state_dir / "scheduler.log").open("ab") as log:
            self.scheduler = subprocess.Popen(
                self.here.command(argv),
                env=self.stager.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.until(lambda: self.hosts() == dict.fromkeys(self.pool.hosts, "open"), "the hosts")

    def add_worker(self, name: str, near: str, cores: int) -> Host:
        """On a private host of its own, which has no node."""
        host = self.net.host(name, private=True)
        self.authority.issue("pool/p", host.outside(POOL_TLS))
        self.pool.host_apart(name, cores, near, host, SCRATCH, POOL_TLS)
        return host

    def kill_scheduler(self) -> None:
        pid = self.stager.scheduler_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: self.stager.scheduler_pid() is None, "the scheduler's end")

    def hosts(self) -> dict[str, str]:
        client = connect(self.stager.state_dir)
        if client is None:
            return {}
        with client:
            return {host.host: host.state for host in client.hosts.listed()} if client.health().ready else {}

    def origin(self, prefix: str = "") -> str:
        return ORIGIN.format(prefix=prefix, endpoint=self.s3.endpoint)

    def put(self, key: str, content: bytes) -> None:
        with self.here.inside():
            self.s3.client().put_object(Bucket="bucket", Key=key, Body=content)

    def stored(self, prefix: str = "") -> dict[str, bytes]:
        """By what comes behind the prefix."""
        with self.here.inside():
            client = self.s3.client()
            found = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
            keys = [str(entry["Key"]) for entry in found]
            return {key.removeprefix(prefix): client.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys}

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for batch in batches_of(self.state) for event in batch.events if isinstance(event, kind)]

    def ends(self) -> list[ev.AttemptEnded]:
        return self.told(ev.AttemptEnded)

    def left(self, name: str) -> dict[str, Any]:
        """What the node still has of attempts."""
        state = self.nodes[name].get("/v1/state")
        return {what: state[what] for what in ("attempts", "leases", "reservations") if state.get(what)}

    def until(self, condition: Any, what: str, deadline_s: float = 120.0) -> Any:
        try:
            return wait_until(condition, what, deadline_s)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.logs()}") from None

    def logs(self) -> str:
        nodes = "\n".join(f"--- node {name}\n{node.log_text()[-2000:]}" for name, node in self.nodes.items())
        return f"{self.stager.log_tail()}\n{self.pool.log_text()}\n{nodes}"

    def end(self) -> None:
        """The scheduler first, which would start its node again."""
        try:
            if (pid := self.stager.scheduler_pid()) is not None:
                os.kill(pid, signal.SIGTERM)
                self.until(lambda: self.stager.scheduler_pid() is None, "the scheduler's end")
        finally:
            self._end_all()

    def _end_all(self) -> None:
        try:
            self.stager.end()
        finally:
            self.pool.end()
            for node in self.nodes.values():
                node.stop()
            self.s3.stop()
