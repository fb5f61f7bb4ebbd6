"""Lines between hosts that go dead without a word: whoever waits on one ends soon, and what it held is given back.

A line that is mended in time is gone on with: nobody was told that it was away.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stager.adapters.ionode import IoNode as NodeClient
from stager.model.errors import Transient
from stager.wire.node import NoAnswer
from tests.testbed.ionode import IoNode
from tests.testbed.network import Host, Network
from tests.testbed.places import ionode_binary
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.slow
SIZE_BYTES = 60_000_000
RATE_MBIT_S = 60.0
# The system calls a line dead after 30 s. A client tries to connect once more then, for 10 s.
ENDS_WITHIN_S = 60.0
TOKEN = Path("/srv/token")


@pytest.fixture
def node(net: Network, ionode: Callable[..., IoNode]) -> IoNode:
    host = net.host("node", private=True)
    return ionode(store=Path("/srv/store"), where=host, node_id="node", options=["--tcp", f"{host.address}:0", "--trust-network"])


@pytest.fixture
def client(net: Network, node: IoNode) -> Host:
    """On a slow line, with a file to push."""
    client = net.host("client", rate_mbit_s=RATE_MBIT_S, private=True)
    client.outside(TOKEN).write_bytes(node.token_file.read_bytes())
    client.outside("/srv/made").write_bytes(os.urandom(SIZE_BYTES))
    return client


def pushing(client: Host, node: IoNode) -> subprocess.Popen[str]:
    """A push whose content is on its way."""
    argv = [ionode_binary(), "push", "/srv/made", "--node", f"{node.address}@{TOKEN}", "--file", "f", "--generation", "g"]
    push = subprocess.Popen(client.command(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(entry["bytes_done"] > 4_000_000 for entry in node.get("/v1/transfers")["transfers"]), "bytes of the push")
    return push


def seconds_of_a_call_without_a_timeout(client: Host, node: IoNode) -> float:
    """It waits for an answer as the stage calls do: as long as the bytes take."""

    async def main() -> float:
        host, _, port = node.address.rpartition(":")
        calls = NodeClient((host, int(port)), node.token_file.read_text().strip(), epoch=1, incarnation=node.incarnation)
        begun = time.monotonic()
        with pytest.raises(Transient):
            await calls.call(NoAnswer, "GET", "/v1/events?after=0&wait_s=300", timeout_s=None)
        return time.monotonic() - begun

    with client.inside():
        return asyncio.run(main())


def open_connections(node: IoNode) -> int:
    metrics = node.call("GET", "/metrics").text
    return sum(int(line.split()[-1]) for line in metrics.splitlines() if 'http_connections{listener="tcp"}' in line)


def test_a_push_over_a_line_that_goes_dead_ends_on_both_sides(net: Network, node: IoNode, client: Host) -> None:
    assert isinstance(node.where, Host)
    with ThreadPoolExecutor(1) as beside:
        call = beside.submit(seconds_of_a_call_without_a_timeout, client, node)
        push = pushing(client, node)
        cut_at = time.monotonic()
        net.cut(client, node.where)
        try:
            _, said = push.communicate(timeout=ENDS_WITHIN_S)
            assert push.returncode == 1 and "node" in said, said
            assert call.result(timeout=ENDS_WITHIN_S) < ENDS_WITHIN_S
            end = next(event for event in node.events() if event["kind"].startswith("transfer_"))
            assert end["kind"] == "transfer_failed" and end["error"]["class"] == "transient", end
            assert time.monotonic() - cut_at < ENDS_WITHIN_S
            assert node.get("/v1/node")["reserved_bytes"] == 0, "its space is given back"
            assert node.get("/v1/state")["replicas"] == []
            wait_until(lambda: open_connections(node) == 0, "the node to close the connections of a client that is gone")
        finally:
            push.kill()
            push.communicate()
            net.mend(client, node.where)
    again = pushing(client, node)
    out, said = again.communicate(timeout=ENDS_WITHIN_S)
    assert again.returncode == 0, said


def test_a_push_over_a_line_that_is_mended_in_time_goes_on(net: Network, node: IoNode, client: Host) -> None:
    assert isinstance(node.where, Host)
    push = pushing(client, node)
    assert node.get("/v1/state")["replicas"] == [], "what is under way counts for nobody"
    with net.parted(client, node.where):
        with pytest.raises(subprocess.TimeoutExpired):
            push.communicate(timeout=5)
    out, said = push.communicate(timeout=ENDS_WITHIN_S)
    assert push.returncode == 0, said
    assert f'"bytes_moved":{SIZE_BYTES}' in out, "all of it went once"
    (replica,) = node.get("/v1/state")["replicas"]
    assert replica["size_bytes"] == SIZE_BYTES
