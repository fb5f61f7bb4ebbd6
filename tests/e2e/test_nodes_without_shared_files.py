"""I/O nodes and their clients on hosts that share no file and no Unix socket: all that they know of one another came over TCP."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from stager.adapters.node_place import NodePlace
from stager.adapters.node_remote import NodeRemote
from stager.runtime.allowances import Allowances
from stager.runtime.live_world import LiveWorld
from stager.runtime.node_link import NodeLink
from stager.runtime.outstanding import Outstanding
from stager.runtime.peering import Peering
from stager.runtime.store_owners import StoreOwners
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.testbed.ionode import API_VERSION, IoNode
from tests.testbed.network import Host, Network
from tests.testbed.places import ionode_binary

pytestmark = pytest.mark.slow
STORE, TOKEN = Path("/srv/store"), Path("/srv/token")
SIZES = (1_000, 9_000_000)


@pytest.fixture
def start(net: Network, ionode: Callable[..., IoNode]) -> Callable[[str], IoNode]:
    """A node on a private host of its name."""

    def started(name: str) -> IoNode:
        host = net.host(name, private=True)
        return ionode(store=STORE, where=host, node_id=name, options=["--tcp", f"{host.address}:0", "--trust-network"])

    return started


def client_of(net: Network, *nodes: IoNode) -> Host:
    """It has the tokens, as an administrator would have brought them."""
    client = net.host("client", private=True)
    for node in nodes:
        client.outside(f"{TOKEN}.{node.node_id}").write_bytes(node.token_file.read_bytes())
    return client


def of(node: IoNode) -> str:
    return f"{node.address}@{TOKEN}.{node.node_id}"


def told(client: Host, *argv: str | Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(client.run([ionode_binary(), *argv]).stdout)
    return said


def pushed(client: Host, size_bytes: int, to: IoNode, *words: str) -> tuple[bytes, dict[str, Any]]:
    data = os.urandom(size_bytes)
    client.outside("/srv/made").write_bytes(data)
    argv = ["push", "/srv/made", "--node", of(to), "--file", f"f{size_bytes}", "--generation", "g", *words]
    told(client, *argv)
    return data, to.get(f"/v1/replicas/f{size_bytes}/g")


def fetched(client: Host, size_bytes: int, *nodes: IoNode, generation: str = "g") -> bytes:
    target = client.outside("/srv/fetched")
    target.unlink(missing_ok=True)
    sources = ",".join(map(of, nodes))
    told(client, "fetch", "--node", sources, "--file", f"f{size_bytes}", "--generation", generation, "--to", "/srv/fetched")
    return target.read_bytes()


def ask_for_copy(node: IoNode, source: IoNode, replica: dict[str, Any]) -> str:
    """Gives the transfer's id."""
    size_bytes = replica["size_bytes"]
    expected = {"size_bytes": size_bytes, "blake3": replica["blake3"]}
    body = {"kind": "copy", "file_id": f"f{size_bytes}", "generation": "copy", "expected": expected, "priority": 5}
    node.do("PUT", f"/v1/transfers/t{size_bytes}", body | {"sources": [{"node_id": source.node_id, "generation": "g"}]})
    return f"t{size_bytes}"


def test_a_node_answers_a_client_of_another_host(net: Network, start: Callable[[str], IoNode]) -> None:
    node = start("a")
    client = client_of(net, node)
    token = client.outside(f"{TOKEN}.a").read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "X-Stager-Api": API_VERSION, "X-Stager-Incarnation": node.incarnation}
    with client.inside(), httpx.Client(base_url=f"http://{node.address}", headers=headers | {"X-Stager-Epoch": "1"}) as http:
        answer = http.get("/v1/state")
        assert answer.status_code == 200, answer.text
    for size_bytes in SIZES:
        data, replica = pushed(client, size_bytes, node)
        assert replica["size_bytes"] == size_bytes
        assert fetched(client, size_bytes, node) == data


def test_a_copy_goes_from_one_host_to_another(net: Network, start: Callable[[str], IoNode]) -> None:
    first, second = start("a"), start("b")
    second.introduce(first)
    client = client_of(net, first, second)
    for size_bytes in SIZES:
        data, replica = pushed(client, size_bytes, first)
        end = second.event_of(ask_for_copy(second, first, replica))
        assert end["kind"] == "transfer_done", end
        first.do("DELETE", f"/v1/replicas/f{size_bytes}/g")
        assert fetched(client, size_bytes, second, generation="copy") == data


def test_a_chain_goes_over_three_hosts(net: Network, start: Callable[[str], IoNode]) -> None:
    nodes = [start(name) for name in ("a", "b", "c")]
    for node in nodes:
        node.introduce(*(other for other in nodes if other is not node))
    client = client_of(net, *nodes)
    for size_bytes in SIZES:
        data, _ = pushed(client, size_bytes, nodes[0], "--chain", "b,c", "--ack", "sync")
        for node in nodes:
            assert fetched(client, size_bytes, node) == data


def test_a_copy_over_a_line_that_was_cut_for_a_while_is_whole(net: Network, start: Callable[[str], IoNode]) -> None:
    first, second = start("a"), start("b")
    second.introduce(first)
    client = client_of(net, first, second)
    data, replica = pushed(client, SIZES[1], first)
    assert isinstance(first.where, Host) and isinstance(second.where, Host)
    with net.parted(first.where, second.where):
        transfer = ask_for_copy(second, first, replica)
        with pytest.raises(AssertionError, match="no event"):
            second.event_of(transfer, wait_s=1)
    assert second.event_of(transfer)["kind"] == "transfer_done"
    assert fetched(client, len(data), second, generation="copy") == data


def test_a_scheduler_on_a_third_host_tells_nodes_of_one_another_and_has_them_copy(net: Network, start: Callable[[str], IoNode]) -> None:
    first, second = start("a"), start("b")
    client = client_of(net, first, second)
    data, replica = pushed(client, SIZES[1], first)
    what: dict[str, Any] = {"file": f"f{SIZES[1]}", "lfn": "f", "run": "r", "size_bytes": SIZES[1], "blake3": replica["blake3"]}
    where: dict[str, Any] = {"node": "b", "transfer": "t1", "source": "a", "source_generation": "g"}
    copy = cmd.CopyReplica(id="c1", at=0.0, cause="e1", purpose=cmd.Purpose.DEMAND, priority=5, **what, **where)

    async def main() -> None:
        told: list[ev.Event] = []
        outstanding, peering, allowances, nothing = Outstanding(), Peering(), Allowances(lambda: 1.0), cast(Any, None)
        world = LiveWorld(nothing, nothing, outstanding, asyncio.get_running_loop(), lambda events: None)

        def put(event: ev.Event, on_durable: Callable[[], None] | None = None) -> None:
            told.append(event)
            world._carry_out([event], [], [])

        places = [NodePlace(node.node_id, node.address, client.outside(f"{TOKEN}.{node.node_id}")) for node in (first, second)]
        sources = [NodeRemote(place, epoch=2) for place in places]
        links = [
            NodeLink(source, put, outstanding, nothing, world.fatal, world.fatal, lambda: 1.0, peering, StoreOwners({}), allowances)
            for source in sources
        ]
        world.open(links, nothing)
        async with asyncio.timeout(30):
            while not all(link.up for link in links):
                await asyncio.sleep(0.01)
            world._carry_out([], [copy], [])
            while not (ended := [event for event in told if getattr(event, "transfer", "") == "t1"]):
                await asyncio.sleep(0.01)
        assert world.failure is None and isinstance(ended[0], ev.TransferDone), ended
        for link in links:
            await link.close()
            link.client.close()
        await world.tasks.close()

    with client.inside():
        asyncio.run(main())
    assert fetched(client, SIZES[1], second, generation="t1") == data
