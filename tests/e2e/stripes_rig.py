"""A scheduler and I/O nodes on hosts of the bed, and a lab far enough away that it gives each node's address only so much: a line.

One rule: the nodes' way to one another is not the lines, and what crosses those is read from the lab's own counter.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest import mock

from stager import wire
from stager.adapters.node_place import NodePlace
from stager.adapters.node_process import Listen
from stager.adapters.node_remote import NodeRemote
from stager.model.files import Destination, File, Location, OnExists, Source
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from stager.service import node_side
from tests.e2e.nodes_rig import Composed
from tests.e2e.service_rig import Rig
from tests.testbed.ionode import IoNode
from tests.testbed.network import Host, Network
from tests.testbed.places import ionode_binary
from tests.testbed.sshd import Sshd

LINE_MBIT = 20.0
Story = Callable[["LinesBed", Composed], Awaitable[None]]


class LinesBed:
    """`count` nodes: the scheduler's own, and others on hosts of their own."""

    def __init__(self, net: Network, place: Path, count: int, mbit: float = LINE_MBIT, capacity_bytes: int = 1 << 32) -> None:
        self.net, self.mbit, self.capacity_bytes = net, mbit, capacity_bytes
        self.rig = Rig(place)
        self.lab = net.host("lab")
        self.home = net.host("home")
        hosts = [net.host(f"host{number}") for number in range(1, count)]
        net.give_lines(self.lab, mbit, [self.home, *hosts])
        self.nodes = [self._node(place, number, host) for number, host in enumerate(hosts, 1)]
        (place / "sshd").mkdir()
        self.sshd = Sshd(place / "sshd", self.rig.data, where=self.lab)

    def _node(self, place: Path, number: int, host: Host) -> IoNode:
        port = ["--tcp", f"{host.address}:{host.free_port()}", "--trust-network"]
        store = place / f"n{number}" / "store"
        return IoNode(ionode_binary(), store, self.capacity_bytes, where=host, options=port, node_id=f"node{number}")

    def run(self, story: Story) -> None:
        """With all of it up; nothing of it is left."""
        try:
            self.sshd.start()
            for node in self.nodes:
                node.start()
            # The scheduler's own node listens on loopback; here others have to reach it.
            on_its_host = Listen(f"{self.home.address}:0", trust_network=True)
            with self.home.inside(), mock.patch.object(node_side, "PEERS_LISTEN", on_its_host):
                asyncio.run(self._run(story))
        finally:
            for node in self.nodes:
                node.stop()
            self.sshd.stop()
            self.rig.end()

    async def _run(self, story: Story) -> None:
        composed = Composed(self.rig, self.capacity_bytes)
        await composed.open(lambda epoch: [self.found(node, epoch) for node in self.nodes])
        try:
            await composed.all_up()
            await story(self, composed)
            await self._idle(composed)
        finally:
            await composed.close()

    @staticmethod
    async def _idle(composed: Composed) -> None:
        """What is deleted at the end of a run has been told."""
        known = -1
        while known != (known := len(composed.batches())):
            await asyncio.sleep(0.5)

    @staticmethod
    def found(node: IoNode, epoch: int) -> NodeRemote:
        return NodeRemote(NodePlace(node.node_id, node.address, node.token_file), epoch)

    def source(self, path: str, size_bytes: int) -> tuple[File, bytes]:
        content, file = os.urandom(size_bytes), self.rig.data / path
        file.write_bytes(content)
        old = int(time.time()) - 60
        os.utime(file, (old, old))
        token = f"m={old};s={size_bytes}"
        return File(path, sources=(Source(Location("lab", path), size_bytes, token),), size_bytes=size_bytes), content

    def final(self, lfn: str) -> File:
        return File(lfn, size_bytes=200, destination=Destination(Location("lab", lfn), OnExists.REPLACE))

    def reading(self, file: File, readers: int = 1, *, held: bool = False) -> Workflow:
        """So many jobs that read all of this file and write its checksum. `held`: they go on when the gate is there."""
        hold = f"until test -e {self.rig.gate}; do sleep 0.05; done; " if held else ""
        jobs = [
            Job(
                f"read{n}", "read", shell=f"{hold}sha256sum < {file.lfn} > sum{n}",
                inputs=(JobInput(file.lfn, file.lfn),), outputs=(JobOutput(f"sum{n}", f"sum{n}"),),
            )
            for n in range(readers)
        ]  # fmt: skip
        files = [file, *(self.final(f"sum{n}") for n in range(readers))]
        options = (("known_hosts", str(self.sshd.known_hosts)),)
        origin = Origin("lab", OriginKind.SFTP, self.sshd.url(), f"key:{self.sshd.identity_file}", options)
        return Workflow("cold", {each.lfn: each for each in files}, {job.id: job for job in jobs}, {"lab": origin})

    async def submit(self, composed: Composed, workflow: Workflow, spread: bool = False) -> str:
        """`spread`: each node has a part of the jobs; else the scheduler's own has all."""
        names = ["node0", *(node.node_id for node in self.nodes)]
        line = self.mbit * 1e6 / 8
        link = OriginLink("lab", line * len(names), line * len(names), 0.001, node_fetch_bytes_per_s=line)
        topology = Topology(tuple(Node(name, self.capacity_bytes, 2) for name in names), (link,))
        plan = make_plan(workflow, topology, limits=Limits(cores=2))
        homes = dict(zip(workflow.jobs, names * len(workflow.jobs), strict=False)) if spread else {}
        credentials = wire.Credentials({"lab": self.sshd.origin(verify_source=False)}, {})
        return await composed.submit_plan(workflow, plan, credentials, homes)
