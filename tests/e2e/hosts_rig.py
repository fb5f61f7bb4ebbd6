"""A scheduler with a pool of unequal hosts on this machine.

One rule: what it started ends with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stager.client import Client
from stager.scheduler import commands as cmd
from stager.service.state_dir import StateDir
from tests.e2e.nodes_rig import batches_of, given_in
from tests.e2e.service_rig import Rig
from tests.testbed.ionode import IoNode
from tests.testbed.pool import Host, Pool


class Hosts:
    """`cores`: of each host, by its name. `nodes`: I/O nodes besides the embedded one."""

    def __init__(self, place: Path, cores: Mapping[str, int], tls: Path | None = None, nodes: Mapping[str, IoNode] | None = None) -> None:
        self.nodes = dict(nodes or {})
        self.rig, self.pool = Rig(place), Pool(place / "pool", tls=tls)
        self.store = self.rig.stager.state_dir / "node"
        self.store.mkdir(parents=True, mode=0o700)
        self.pool.start()
        for name, count in cores.items():
            self.add(name, count)

    def add(self, name: str, cores: int, *options: str, near: str = "node0") -> Host:
        """Beside that node. It reaches the others too, since all are on this machine."""
        stores = {"node0": self.store} | {node_id: node.store for node_id, node in self.nodes.items()}
        return self.pool.host(name, cores, {near: stores.pop(near)} | stores, options)

    def client(self) -> Client:
        named = [f"{node_id}={node.address}@{node.token_file}" for node_id, node in self.nodes.items()]
        return self.rig.client(STAGER_POOL=self.pool.address, STAGER_NODES=" ".join(named))

    def seen(self) -> dict[str, tuple[str, int]]:
        """Of each host its state and its cores."""
        return {host.host: (host.state, host.cores) for host in self.client().hosts.listed()}

    def batches(self) -> list[Any]:
        return batches_of(StateDir(self.rig.stager.state_dir))

    def starts(self) -> list[tuple[str, str]]:
        """The job and the host of each attempt, in the order of their starts."""
        return [(command.job, command.host) for command in given_in(self.batches(), cmd.StartAttempt)]

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for batch in self.batches() for event in batch.events if isinstance(event, kind)]

    def until(self, condition: Any, what: str) -> Any:
        try:
            return self.rig.until(condition, what)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.pool.log_text()}") from None

    def end(self) -> None:
        """Jobs that wait go on, so that their run can end."""
        self.rig.gate.touch()
        try:
            self.rig.end()
        finally:
            self.pool.end()
