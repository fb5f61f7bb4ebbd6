"""A scheduler whose I/O nodes are on other hosts, which share nothing with it: it knows them by their certificates, and they know it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from stager.adapters.authority import Authority
from stager.adapters.cluster_tls import ClusterTls
from stager.adapters.node_place import NodePlace
from stager.adapters.node_remote import NodeRemote
from stager.client import connect
from stager.model.errors import Denied
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.runtime.allowances import Allowances
from stager.runtime.credentials import CredentialBook
from stager.runtime.live_world import LiveWorld
from stager.runtime.node_link import NodeLink
from stager.runtime.outstanding import Outstanding
from stager.runtime.peering import Peering
from stager.runtime.store_owners import StoreOwners
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.state_dir import StateDir
from tests.e2e.nodes_rig import batches_of, given_in
from tests.e2e.test_nodes_under_tls import STORE, TLS, brought, expired_leaf
from tests.testbed.ionode import IoNode
from tests.testbed.network import Host, Network
from tests.testbed.s3 import running_s3
from tests.testbed.stager import Stager

pytestmark = pytest.mark.slow
SIZE_BYTES = 5_000_000
Start = Callable[..., IoNode]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "cluster")
    made.make("c1")
    made.issue("scheduler", tmp_path / "tls")
    return made


@pytest.fixture
def start(net: Network, ionode: Callable[..., IoNode], authority: Authority) -> Start:
    """A node on a private host of its name."""

    def started(name: str, of: Authority = authority, role: str = "") -> IoNode:
        host = net.host(name, private=True)
        brought(of, role or f"node/{name}", host)
        return ionode(store=STORE, where=host, node_id=name, options=["--tcp", f"{host.address}:0", "--tls-dir", TLS])

    return started


def place(node: IoNode, name: str = "") -> NodePlace:
    return NodePlace(name or node.node_id, node.address, None)


class Watched:
    """A world of links to these nodes, with all that they told."""

    def __init__(self, places: Sequence[NodePlace], tls: ClusterTls, origins: dict[str, dict[str, object]]) -> None:
        self.told: list[ev.Event] = []
        outstanding, peering, nothing = Outstanding(), Peering(), cast(Any, None)
        known = {name: Origin(name, OriginKind.S3, f"s3://{name}") for name in origins}
        outstanding.workflows["r"] = Workflow("w", {}, {}, known)
        book = CredentialBook(lambda run, origin: {}, lambda run, origin: False)
        book.bring("r", origins, {})
        self.world = LiveWorld(nothing, nothing, outstanding, asyncio.get_running_loop(), lambda events: None)
        fatal, allowances = self.world.fatal, Allowances(lambda: 1.0)
        sources = [NodeRemote(each, 2, tls) for each in places]
        self.links = [
            NodeLink(source, self.put, outstanding, book, fatal, fatal, lambda: 1.0, peering, StoreOwners({}), allowances)
            for source in sources
        ]

    def put(self, event: ev.Event, on_durable: Callable[[], None] | None = None) -> None:
        self.told.append(event)
        self.world._carry_out([event], [], [])

    async def up(self) -> None:
        await self.until(lambda: all(link.up for link in self.links))

    async def done(self, command: cmd.Fetch | cmd.CopyReplica | cmd.Upload) -> ev.Event:
        self.world._carry_out([], [command], [])
        await self.until(lambda: self.ends_of(command.transfer))
        (end,) = self.ends_of(command.transfer)
        return end

    def ends_of(self, transfer: str) -> list[ev.Event]:
        return [event for event in self.told if getattr(event, "transfer", "") == transfer]

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for link in self.links:
            await link.close()
            link.client.close()
        await self.world.tasks.close()


def test_a_scheduler_on_a_third_host_has_nodes_fetch_copy_and_upload(
    net: Network, start: Start, authority: Authority, short_dir: Path
) -> None:
    first, second = start("a"), start("b")
    lab, scheduler = net.host("lab"), net.host("s", private=True)
    content = os.urandom(SIZE_BYTES)

    async def main(origin: dict[str, object]) -> None:
        watched = Watched([place(first), place(second)], ClusterTls(authority.root.parent / "tls"), {"o": origin})
        watched.world.open(watched.links, cast(Any, None))
        await watched.up()
        what: dict[str, Any] = {"file": "f", "lfn": "f", "run": "r", "size_bytes": SIZE_BYTES, "at": 0.0, "cause": "e"}
        what |= {"purpose": cmd.Purpose.DEMAND, "priority": 5}
        fetch = cmd.Fetch(id="c1", node="a", transfer="t1", origin="o", path="in", token="", **what)
        fetched = await watched.done(fetch)
        assert isinstance(fetched, ev.TransferDone), fetched
        what["blake3"] = fetched.blake3
        copied = await watched.done(cmd.CopyReplica(id="c2", node="b", transfer="t2", source="a", source_generation="t1", **what))
        assert isinstance(copied, ev.TransferDone), copied
        del what["blake3"]
        uploaded = await watched.done(cmd.Upload(id="c3", node="b", transfer="t3", generation="t2", origin="o", path="out", **what))
        assert isinstance(uploaded, ev.TransferDone) and watched.world.failure is None, uploaded
        await watched.close()

    with running_s3(short_dir, lab) as s3:
        with scheduler.inside():
            s3.make_bucket("bucket")
            s3.client().put_object(Bucket="bucket", Key="in", Body=content)
            asyncio.run(main(s3.origin("bucket")))
            assert s3.client().get_object(Bucket="bucket", Key="out")["Body"].read() == content


@contextmanager
def contact(scheduler: Host, to: NodePlace, tls: ClusterTls) -> Iterator[Callable[[], str]]:
    """What the scheduler is told each time that it tries; empty: it was met."""
    node = NodeRemote(to, 2, tls)

    async def tried() -> str:
        try:
            await node.contact()
        except Denied as problem:
            assert problem.code == "peer_refused"
            return problem.message
        finally:
            node.client.close()
        return ""

    with scheduler.inside():
        yield lambda: asyncio.run(tried())


def test_the_wrong_certificate_of_either_side_is_said_by_name(net: Network, start: Start, authority: Authority, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign")
    foreign.make("c1")
    good, stranger = start("a"), start("x", foreign)
    scheduler = net.host("s", private=True)
    own = tmp_path / "tls"
    # The node is another than was named, or one of another cluster.
    with contact(scheduler, place(good, "b"), ClusterTls(own)) as tried:
        assert "its certificate is that of the node a" in tried()
    with contact(scheduler, place(stranger), ClusterTls(own)) as tried:
        assert "not of this cluster's authority" in tried()
    # The scheduler shows what the node does not accept.
    intruder = tmp_path / "intruder"
    foreign.issue("scheduler", intruder)
    with contact(scheduler, place(good), ClusterTls(intruder)) as tried:
        assert "not of this cluster's authority" in tried()
    # What has expired is not shown, and said. What is renewed counts without a new scheduler, and what is worse than before does not.
    expired_leaf(authority, own)
    with contact(scheduler, place(good), ClusterTls(own)) as tried:
        assert f"own certificate in {own} has expired" in tried()
        authority.issue("scheduler", own)
        assert tried() == ""
        expired_leaf(authority, own)
        assert tried() == ""
    with contact(scheduler, place(good), ClusterTls(tmp_path / "none")) as tried:
        assert "cannot be read" in tried() and "stager cluster init" in tried()
    authority.issue("node/a", tmp_path / "node")
    with contact(scheduler, place(good), ClusterTls(tmp_path / "node")) as tried:
        assert "is that of stager://c1/node/a, and not of the scheduler" in tried()


def test_a_node_whose_certificate_has_expired_and_one_without_tls_are_not_spoken_to(
    net: Network, ionode: Callable[..., IoNode], authority: Authority, tmp_path: Path
) -> None:
    scheduler, host = net.host("s", private=True), net.host("p", private=True)
    plain = ionode(store=STORE, where=host, node_id="p", options=["--tcp", f"{host.address}:0", "--trust-network"])
    with contact(scheduler, place(plain), ClusterTls(tmp_path / "tls")) as tried:
        assert "it speaks no TLS" in tried()
    # By its own clock it is good.
    late = net.host("late", private=True, clock_offset_s=-3 * 86_400)
    brought(authority, "node/late", late)
    expired_leaf(authority, late.outside(TLS))
    node = ionode(store=STORE, where=late, node_id="late", options=["--tcp", f"{late.address}:0", "--tls-dir", TLS])
    with contact(scheduler, place(node), ClusterTls(tmp_path / "tls")) as tried:
        assert "its certificate has expired" in tried()


WORKFLOW = """
stager: 1
name: far
origins:
  lab: {url: "s3://bucket", endpoint: "ENDPOINT", addressing: path, allow_http: true}
jobs:
JOBS
  between:
    run: touch between
    inputs: [MARKS]
    outputs: {between: {size: 1}}
  total:
    run: cat sum* > total
    inputs: [LISTED]
    outputs: {total: {to: lab:total, on_exists: replace}}
"""
MAKER = """
  make{n}:
    run: "head -c {size} /dev/zero | tr '\\\\0' {n} > part{n}; touch mark{n}"
    outputs: {{part{n}: {{size: {size}}}, mark{n}: {{size: 1}}}}
"""
READER = """
  read{n}:
    run: "sha256sum < part{n} > sum{n}"
    inputs: [part{n}, between]
    outputs: {{sum{n}: {{size: 100}}}}
"""
PARTS, PART_BYTES = 5, 5_000_000


def test_a_run_uses_the_room_of_nodes_of_other_hosts_and_its_jobs_stay_here(
    net: Network, start: Start, authority: Authority, short_dir: Path
) -> None:
    """Its intermediates do not fit on the embedded node together."""
    first, second = start("a"), start("b")
    lab, here = net.host("lab"), net.host("s")
    stager = Stager(short_dir / "s", short_dir / "home", where=here)
    with running_s3(short_dir, lab) as s3:
        with here.inside():
            s3.make_bucket("bucket")
        named = {"STAGER_NODES": f"a={first.address} b={second.address} c={second.address}"}
        stager.env = s3.credentials() | named | {"STAGER_CAPACITY": "12 MB", "STAGER_CORES": "2"}
        stager.state_dir.mkdir(mode=0o700)
        for role, name in (("scheduler", "tls"), ("node/node0", "node-tls")):
            authority.issue(role, stager.state_dir / name)
        makers = "".join(MAKER.format(n=n, size=PART_BYTES) for n in range(PARTS))
        readers = "".join(READER.format(n=n) for n in range(PARTS))
        text = WORKFLOW.replace("ENDPOINT", s3.endpoint).replace("JOBS", makers + readers)
        text = text.replace("MARKS", ", ".join(f"mark{n}" for n in range(PARTS)))
        text = text.replace("LISTED", ", ".join(f"sum{n}" for n in range(PARTS)))
        (short_dir / "workflow.yml").write_text(text)
        try:
            stager.run("submit", short_dir / "workflow.yml")
            with here.inside():
                total = s3.client().get_object(Bucket="bucket", Key="total")["Body"].read().decode()
            expected = [hashlib.sha256(str(n).encode() * PART_BYTES).hexdigest() for n in range(PARTS)]
            assert [line.split()[0] for line in total.splitlines()] == expected
            batches = batches_of(StateDir(stager.state_dir))
            copies = [(command.source, command.node) for command in given_in(batches, cmd.CopyReplica)]
            assert {source for source, _ in copies} >= {"node0"} and {node for _, node in copies} - {"node0"} <= {"a", "b"}, copies
            assert sum(node == "node0" for _, node in copies) > 0, "they come back for the jobs that read them"
            assert {command.node for command in given_in(batches, cmd.StartAttempt)} == {"node0"}
            client = connect(stager.state_dir)
            assert client is not None
            nodes = {view.node: view for view in client.health().nodes}
            client.close()
            assert nodes["a"].connected and nodes["b"].connected and not nodes["c"].connected
            assert "its certificate is that of the node b" in nodes["c"].problem
        finally:
            stager.end()
