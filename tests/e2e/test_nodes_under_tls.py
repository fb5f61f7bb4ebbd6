"""I/O nodes on hosts of their own that trust certificates alone: copies, a line that is cut, and everybody who should not be let in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.authority import Authority
from tests.testbed.ionode import IoNode
from tests.testbed.network import Host, Network
from tests.testbed.places import ionode_binary

pytestmark = pytest.mark.slow
SIZE_BYTES = 9_000_000
STORE, TLS = Path("/srv/store"), "/srv/tls"
Start = Callable[..., IoNode]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "cluster")
    made.make("c1")
    return made


@pytest.fixture
def start(net: Network, ionode: Callable[..., IoNode], authority: Authority) -> Start:
    """A node on a private host of its name, with the certificate that its cluster made for it."""

    def started(name: str, of: Authority = authority) -> IoNode:
        host = net.host(name, private=True)
        brought(of, f"node/{name}", host)
        return ionode(store=STORE, where=host, node_id=name, options=["--tcp", f"{host.address}:0", "--tls-dir", TLS])

    return started


def brought(authority: Authority, role: str, host: Host, to: str = TLS) -> None:
    """As an administrator brings it: a directory of three files."""
    authority.issue(role, host.outside(to))


def introduced(*nodes: IoNode) -> None:
    for node in nodes:
        for other in nodes:
            if other is not node:
                node.do("PUT", f"/v1/peers/{other.node_id}", {"address": other.address})


def push(client: Host, node: IoNode, file_id: str, tls: str = TLS, *words: str) -> subprocess.CompletedProcess[str]:
    argv: list[str | Path] = [
        ionode_binary(),
        "push",
        "/srv/made",
        "--node",
        f"{node.address}@{tls}",
        "--file",
        file_id,
        "--generation",
        "g",
        *words,
    ]
    return ended(client, argv)


def ended(client: Host, argv: Sequence[str | Path], said: str = "") -> subprocess.CompletedProcess[str]:
    """However it ends."""
    return subprocess.run(client.command(argv), input=said, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def client(net: Network, authority: Authority) -> Host:
    """The scheduler's host."""
    host = net.host("client", private=True)
    brought(authority, "scheduler", host)
    host.outside("/srv/made").write_bytes(os.urandom(SIZE_BYTES))
    return host


def copied(node: IoNode, source: IoNode, replica: dict[str, Any], transfer_id: str) -> str:
    expected = {"size_bytes": replica["size_bytes"], "blake3": replica["blake3"]}
    body = {"kind": "copy", "file_id": replica["file_id"], "generation": transfer_id, "expected": expected, "priority": 5}
    node.do("PUT", f"/v1/transfers/{transfer_id}", body | {"sources": [{"node_id": source.node_id, "generation": "g"}]})
    return transfer_id


def content(client: Host, node: IoNode, file_id: str, generation: str) -> bytes:
    target = client.outside("/srv/fetched")
    target.unlink(missing_ok=True)
    argv = ["fetch", "--node", f"{node.address}@{TLS}", "--file", file_id, "--generation", generation, "--to", "/srv/fetched"]
    client.run([ionode_binary(), *argv])
    return target.read_bytes()


def test_files_go_between_three_hosts_under_tls_and_over_a_cut(net: Network, start: Start, client: Host) -> None:
    nodes = [start(name) for name in ("a", "b", "c")]
    introduced(*nodes)
    data = client.outside("/srv/made").read_bytes()
    pushed = push(client, nodes[0], "f1", TLS, "--chain", "b,c", "--ack", "sync")
    assert pushed.returncode == 0, pushed.stderr
    assert json.loads(pushed.stdout)["replication"]["held_by"] == ["a", "b", "c"]
    for node in nodes:
        assert content(client, node, "f1", "g") == data
    assert push(client, nodes[0], "f2").returncode == 0
    replica = nodes[0].get("/v1/replicas/f2/g")
    first, second = nodes[0].where, nodes[1].where
    assert isinstance(first, Host) and isinstance(second, Host)
    with net.parted(first, second):
        transfer = copied(nodes[1], nodes[0], replica, "t1")
        with pytest.raises(AssertionError, match="no event"):
            nodes[1].event_of(transfer, wait_s=1)
    assert nodes[1].event_of(transfer)["kind"] == "transfer_done"
    assert content(client, nodes[1], "f2", "t1") == data


def test_nobody_gets_in_by_a_wrong_certificate(net: Network, start: Start, client: Host, authority: Authority, tmp_path: Path) -> None:
    node = start("a")
    foreign = Authority(tmp_path / "foreign")
    foreign.make("c1")
    # The attacker knows the authority's certificate, as everybody may.
    brought(foreign, "scheduler", client, "/srv/foreign")
    shutil.copy(authority.root / "ca.pem", client.outside("/srv/foreign/ca.pem"))
    brought(authority, "node/b", client, "/srv/stolen")
    brought(authority, "pool/p", client, "/srv/pool")
    for tls in ("/srv/stolen", "/srv/pool"):
        refused = push(client, node, "f1", tls)
        assert refused.returncode != 0 and "may not do that" in refused.stderr, refused
    # Our programs do not load what nobody would accept, so an attacker's program shows it.
    told = s_client(client, node, "/srv/foreign")
    # Either word is right: the foreign authority may have the name of ours.
    assert "unknown ca" in told or "decrypt error" in told, told
    brought(authority, "scheduler", client, "/srv/expired")
    expired = expired_leaf(authority, client.outside("/srv/expired"))
    assert expired < datetime.now(UTC)
    told = s_client(client, node, "/srv/expired")
    assert "certificate expired" in told, told
    told = client.run(["curl", "-sS", "-m", "20", f"http://{node.address}/v1/node", "-H", f"Authorization: Bearer {token(node)}"]).stdout
    assert "tls_required" in told
    for words in ("certificate has expired", "it speaks no TLS", "not of this cluster's authority"):
        node.wait_for_log(words)
    assert node.get("/v1/state")["replicas"] == []
    assert push(client, node, "f1").returncode == 0


def token(node: IoNode) -> str:
    return node.token_file.read_text().strip()


def expired_leaf(authority: Authority, into: Path) -> datetime:
    """The same key, in a certificate that was good until yesterday."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    signer = serialization.load_pem_private_key((authority.root / "ca-key.pem").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    good = x509.load_pem_x509_certificate((into / "cert.pem").read_bytes())
    until = datetime.now(UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder(good.issuer, good.subject, good.public_key(), good.serial_number)
    builder = builder.not_valid_before(until - timedelta(days=5)).not_valid_after(until)
    for extension in good.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    (into / "cert.pem").write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return until


def s_client(client: Host, node: IoNode, tls: str) -> str:
    argv = ["openssl", "s_client", "-quiet", "-connect", node.address, "-CAfile", f"{tls}/ca.pem"]
    argv += ["-cert", f"{tls}/cert.pem", "-key", f"{tls}/key.pem"]
    end = ended(client, argv, "GET /v1/node HTTP/1.1\r\nhost: a\r\n\r\n")
    return end.stdout + end.stderr


def test_a_node_copies_from_nobody_who_is_not_the_peer_that_it_was_told(start: Start, client: Host, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign")
    foreign.make("c1")
    good, other, stranger = start("a"), start("b"), start("x", foreign)
    assert push(client, other, "f1").returncode == 0
    replica = other.get("/v1/replicas/f1/g")
    for n, (named, address, words) in enumerate(
        [("c", other.address, "that of the node b"), ("x", stranger.address, "not of this cluster's authority")]
    ):
        good.do("PUT", f"/v1/peers/{named}", {"address": address})
        expected = {"size_bytes": replica["size_bytes"], "blake3": replica["blake3"]}
        body = {"kind": "copy", "file_id": "f1", "generation": f"w{n}", "expected": expected, "priority": 5}
        good.do("PUT", f"/v1/transfers/w{n}", body | {"sources": [{"node_id": named, "generation": "g"}]})
        ended = good.event_of(f"w{n}")
        assert ended["error"]["code"] == "peer_refused" and words in ended["error"]["message"], ended


def test_no_key_and_no_token_is_in_a_file_of_another(net: Network, start: Start, client: Host) -> None:
    nodes = [start(name) for name in ("a", "b")]
    introduced(*nodes)
    assert push(client, nodes[0], "f1", TLS, "--chain", "b").returncode == 0
    secrets = {}
    for host in (client, *(node.where for node in nodes)):
        assert isinstance(host, Host)
        secrets[host.outside(f"{TLS}/key.pem")] = host.outside(f"{TLS}/key.pem").read_text().split("\n")[1].encode()
    secrets |= {node.token_file: token(node).encode() for node in nodes}
    looked = 0
    for host in (client, *(node.where for node in nodes)):
        assert isinstance(host, Host)
        for path in host.outside("/srv").rglob("*"):
            if path.is_file():
                looked += 1
                text = path.read_bytes()
                assert [str(place) for place, secret in secrets.items() if secret in text and place != path] == [], path
    assert looked > 10


def test_no_process_gathers_randomness_beside_the_kernels() -> None:
    """It took 45 ms of each process that spoke TLS. The library's symbols say how it was built."""
    symbols = ionode_binary().read_bytes()
    assert b"opt_out_cpu_jitter_initialize" in symbols and b"jent_entropy" not in symbols
