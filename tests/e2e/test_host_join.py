"""A cluster as its administrator makes one: invites, hosts that join, and everybody who should not."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.authority import Authority
from stager.client import connect
from stager.scheduler import commands as cmd
from stager.service.state_dir import StateDir
from stager.wire import NodeView
from tests.e2e.nodes_rig import batches_of, given_in
from tests.e2e.serve_rig import ADDRESS
from tests.testbed.network import Host, Network
from tests.testbed.places import PROJECT, ionode_binary
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.slow
STORE = "/srv/joined"


class Cluster:
    """A service on a host of the bed, and hosts that share nothing with it."""

    def __init__(self, net: Network, place: Path) -> None:
        self.net, self.place = net, place
        self.host = net.host("s")
        self.stager = Stager(place / "s", place / "home", where=self.host)
        self.port = self.host.free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def address(self) -> str:
        return f"{self.host.address}:{self.port}"

    @property
    def url(self) -> str:
        """Of the REST API."""
        found = ADDRESS.search(self.log.read_text())
        assert found is not None
        return found[1]

    @property
    def log(self) -> Path:
        return self.place / f"serve-{self.starts}.log"

    def start(self) -> None:
        self.starts += 1
        words = ["serve", "--listen", "127.0.0.1:0", "--storage", "0", "--capacity", "200 MB", "--cluster-listen", self.address]
        argv = self.host.command([sys.executable, "-m", "stager.cli", *words])
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, env=self.stager.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._ready, "the service to be ready")

    def _ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()
        return "hosts join this cluster at" in self.log.read_text() and bool(self.nodes().get("node0"))

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(120)

    def end(self) -> None:
        self.stop()
        self.stager.end()

    def nodes(self) -> dict[str, NodeView]:
        with contextlib.suppress(Exception):
            client = connect(self.stager.state_dir)
            if client is not None:
                with client:
                    return {view.node: view for view in client.health().nodes}
        return {}

    def invite(self, *words: str) -> str:
        return self.stager.run("cluster", "invite", *words).stdout.strip()

    def is_up(self, node: str) -> bool:
        view = self.nodes().get(node)
        return view is not None and view.connected


@pytest.fixture
def cluster(net: Network, short_dir: Path) -> Iterator[Cluster]:
    made = Cluster(net, short_dir)
    made.stager.run("cluster", "init", "--name", "c1")
    made.start()
    yield made
    made.end()


def ran(host: Host, *words: str) -> subprocess.CompletedProcess[str]:
    return ran_stager(host, "host", "join", *words)


def ran_stager(host: Host, *words: str) -> subprocess.CompletedProcess[str]:
    """On that host, however it ends."""
    env = {"HOME": "/srv", "PYTHONPATH": str(PROJECT), "STAGER_IONODE": str(ionode_binary()), "PATH": "/usr/bin:/bin"}
    argv = host.command([sys.executable, "-m", "stager.cli", *words])
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)


def joined(host: Host, *words: str) -> dict[str, Any]:
    done = ran(host, *words, "--json")
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def refused(host: Host, *words: str) -> str:
    done = ran(host, *words)
    assert done.returncode != 0, done.stdout
    return done.stderr


def ended(host: Host) -> None:
    """Its node, and what would start that again."""
    done = ran_stager(host, "host", "stop", "--store", STORE)
    assert done.returncode == 0, done.stderr


def test_a_host_joins_a_service_that_runs_and_is_there_after_restarts_of_both(cluster: Cluster) -> None:
    a, b = (cluster.net.host(name, private=True) for name in ("a", "b"))
    first = joined(a, cluster.invite(), "--store", STORE, "--node-id", "a", "--capacity", "100 MB")
    assert first["worker"]["pid"] is None and "has no pool of hosts" in first["worker_problem"]
    wait_until(lambda: cluster.is_up("a"), "the node to be taken up")
    joined(b, cluster.invite("--ttl", "2 min"), "--store", STORE, "--node-id", "b", "--capacity", "100 MB")
    wait_until(lambda: cluster.is_up("b"), "the second one to be taken up")
    assert cluster.process is not None and cluster.process.poll() is None and cluster.starts == 1
    views = cluster.nodes()
    assert views["a"].capacity_bytes == 100_000_000 and views["a"].store_id
    # Again with the same store: the same node, which goes on.
    again = joined(a, cluster.invite(), "--store", STORE)
    assert (again["node"], again["pid"], again["address"]) == ("a", first["pid"], first["address"])
    # The scheduler is started again.
    cluster.stop()
    cluster.start()
    wait_until(lambda: cluster.is_up("a") and cluster.is_up("b"), "both to be there again")
    # The host is: no invite is needed then.
    ended(a)
    wait_until(lambda: not cluster.is_up("a"), "the node to be missed")
    after = joined(a, "--store", STORE)
    assert after["pid"] != first["pid"] and after["address"] == first["address"]
    wait_until(lambda: cluster.is_up("a"), "the node to be there again")
    moved = joined(a, "--store", STORE, "--listen", f"{a.address}:{a.free_port()}")
    assert moved["address"] != after["address"]
    wait_until(lambda: cluster.is_up("a") and cluster.nodes()["a"].pid == moved["pid"], "the node to be found where it is now")


def test_invites_are_for_one_host_in_time_and_for_this_cluster(cluster: Cluster, net: Network) -> None:
    a, b = (net.host(name, private=True) for name in ("a", "b"))
    invite = cluster.invite()
    fingerprint, secret = invite.partition("#")[2].split(".")
    wrong = invite.replace(secret, "x" * len(secret))
    assert "none of this cluster's" in refused(a, wrong, "--store", STORE, "--node-id", "a")
    other = invite.replace(fingerprint, "0" * 64)
    said = refused(a, other, "--store", STORE, "--node-id", "a")
    assert "another fingerprint" in said and "was not sent" in said
    assert not cluster.nodes().get("a")
    joined(a, invite, "--store", STORE, "--node-id", "a", "--capacity", "50 MB")
    assert "used already" in refused(b, invite, "--store", STORE, "--node-id", "b")
    short = cluster.invite("--ttl", "1 s")
    time.sleep(1.5)
    assert "has expired" in refused(b, short, "--store", STORE, "--node-id", "b")
    # The name of another host cannot be taken, and a store has one name.
    good = cluster.invite()
    assert "another host has joined as the node a" in refused(b, good, "--store", STORE, "--node-id", "a")
    assert "starts itself" in refused(b, cluster.invite(), "--store", STORE, "--node-id", "node0")
    assert "is that of the node a" in refused(a, cluster.invite(), "--store", STORE, "--node-id", "z")
    assert "this is no invite" in refused(b, "https://10.0.0.1:1/", "--store", STORE)
    assert "name the URL" in refused(b, "--store", STORE)
    # No secret is in any log or file, nor in what a process list shows of the service.
    for path in [*cluster.place.rglob("*"), *a.outside(STORE).rglob("*")]:
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_two_nodes_with_one_store_and_a_store_that_was_made_anew_are_refused(cluster: Cluster, net: Network) -> None:
    a, b = (net.host(name, private=True) for name in ("a", "b"))
    joined(a, cluster.invite(), "--store", STORE, "--node-id", "a", "--capacity", "50 MB")
    wait_until(lambda: cluster.is_up("a"), "the node to be taken up")
    ended(a)
    b.outside(STORE).mkdir(mode=0o700)
    subprocess.run(["cp", "-a", str(a.outside(STORE) / "node"), str(b.outside(STORE))], check=True)
    said = refused(b, cluster.invite(), "--store", STORE, "--node-id", "b")
    assert "is that of the node a: one of the two is a copy" in said, said
    assert "b" not in cluster.nodes()
    subprocess.run(["rm", "-r", str(a.outside(STORE) / "node")], check=True)
    assert "another store than when it joined" in refused(a, "--store", STORE)


def test_what_comes_in_between_gets_no_secret_and_no_certificate_speaks_for_another(cluster: Cluster, net: Network, tmp_path: Path) -> None:
    a = net.host("a", private=True)
    joined(a, cluster.invite(), "--store", STORE, "--node-id", "a", "--capacity", "50 MB")
    tls = a.outside(STORE) / "tls"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(tls / "ca.pem")

    def asked(method: str, path: str, body: bytes) -> str:
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        with a.connect(cluster.host.address, cluster.port) as plain, context.wrap_socket(plain) as secured:
            secured.sendall(head.encode() + body)
            parts = []
            while part := secured.recv(65_536):
                parts.append(part)
        return b"".join(parts).decode()

    node = json.dumps({"address": "10.0.0.1:1", "store_id": "", "incarnation": "i", "capacity_bytes": 1, "version": "0.1.0"}).encode()
    # Nobody.
    assert "needs the certificate of a node" in asked("PUT", "/api/v1/cluster/nodes/a", node)
    assert "none of this cluster's" in asked(
        "POST", "/api/v1/cluster/join", json.dumps({"secret": "", "role": "node/x", "csr": csr(tmp_path), "version": "0.1.0"}).encode()
    )
    assert "request for a certificate" in asked(
        "POST", "/api/v1/cluster/join", json.dumps({"secret": "", "role": "node/x", "csr": "", "version": "0.1.0"}).encode()
    )
    assert "not what docs/formats" in asked("POST", "/api/v1/cluster/join", b"[" * 10_000)
    assert "larger than" in asked("POST", "/api/v1/cluster/join", b"x" * 17_000)
    # A node for another, one that is too old, and one whose certificate was made behind the registry's back.
    context.load_cert_chain(tls / "cert.pem", tls / "key.pem")
    assert "does not speak for b" in asked("PUT", "/api/v1/cluster/nodes/b", node)
    assert "do not fit" in asked("PUT", "/api/v1/cluster/nodes/a", node.replace(b"0.1.0", b"0.0.9"))
    made = tmp_path / "made"
    cluster.stager.run("cluster", "certify", "node/a", "--out", str(made))
    context.load_cert_chain(made / "cert.pem", made / "key.pem")
    assert "not in the registry" in asked("PUT", "/api/v1/cluster/nodes/a", node)
    assert wait_until(lambda: cluster.nodes()["a"].connected, "the node is where it was")


def csr(place: Path) -> str:
    from stager.adapters.authority import kept_key, request_by

    return request_by(kept_key(place / "k" / "key.pem"))


def answered(caller: Host, address: str) -> str:
    """What a node says to another that shows the certificate of this host."""
    tls, (host, _, port) = caller.outside(STORE) / "tls", address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(tls / "ca.pem")
    context.load_cert_chain(tls / "cert.pem", tls / "key.pem")
    with caller.connect(host, int(port)) as plain, context.wrap_socket(plain) as secured:
        secured.sendall(b"GET /v1/node HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-stager-api: 1\r\n\r\n")
        return b"".join(iter(lambda: secured.recv(65_536), b"")).decode()


FORGOTTEN = "its certificate is that of the node a, which the scheduler has forgotten"


def test_a_forgotten_node_is_let_in_again_by_an_invite_only(cluster: Cluster, net: Network) -> None:
    a, b = (net.host(name, private=True) for name in ("a", "b"))
    first = joined(a, cluster.invite(), "--store", STORE, "--node-id", "a", "--capacity", "50 MB")
    other = joined(b, cluster.invite(), "--store", STORE, "--node-id", "b", "--capacity", "50 MB")["address"]
    wait_until(lambda: cluster.is_up("a") and cluster.is_up("b"), "the nodes to be taken up")
    assert '"node_id":"b"' in answered(a, other)
    cluster.stager.run("node", "forget", "a", "--why", "tried")
    wait_until(lambda: FORGOTTEN in answered(a, other), "the other node to refuse it")
    ended(b)
    joined(b, "--store", STORE)
    assert FORGOTTEN in answered(a, other), "over a restart, and before the scheduler is there"
    assert "not in the registry" in refused(a, "--store", STORE)
    # Another incarnation, which the scheduler would have taken for one that comes back. It may have been ended already.
    subprocess.run(["kill", "-9", str(first["pid"])], check=False)
    log = a.outside(STORE) / "host.log"
    wait_until(lambda: "not in the registry" in log.read_text(), "what keeps the node running to give it up")
    assert "not in the registry" in refused(a, "--store", STORE)
    wait_until(lambda: "was forgotten" in cluster.nodes()["a"].problem, "the scheduler to leave it alone")
    cluster.stop()
    cluster.start()
    assert "a" not in cluster.nodes(), "nor does it come back with the scheduler"
    joined(a, cluster.invite(), "--store", STORE)
    wait_until(lambda: cluster.is_up("a"), "the node to be taken up again")
    wait_until(lambda: '"node_id":"b"' in answered(a, other), "the other node to let it in")


def test_a_certificate_past_two_thirds_of_its_life_is_renewed_and_the_node_goes_on(cluster: Cluster, net: Network, tmp_path: Path) -> None:
    from cryptography import x509

    a = net.host("a", private=True)
    first = joined(a, cluster.invite(), "--store", STORE, "--node-id", "a", "--capacity", "50 MB")
    held = a.outside(STORE) / "tls" / "cert.pem"
    good = held.read_bytes()
    assert joined(a, "--store", STORE)["pid"] == first["pid"] and held.read_bytes() == good
    # The same key, in a certificate that ends soon.
    authority = Authority(cluster.stager.state_dir / "cluster")
    near_its_end(authority, held)
    assert joined(a, "--store", STORE)["pid"] == first["pid"]
    renewed = x509.load_pem_x509_certificate(held.read_bytes())
    before = x509.load_pem_x509_certificate(good)
    assert renewed.not_valid_after_utc >= before.not_valid_after_utc and renewed.public_key() == before.public_key()
    wait_until(lambda: cluster.is_up("a"), "the node to be taken up")


def near_its_end(authority: Authority, path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    signer = serialization.load_pem_private_key((authority.root / "ca-key.pem").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    good = x509.load_pem_x509_certificate(path.read_bytes())
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(good.issuer, good.subject, good.public_key(), good.serial_number)
    builder = builder.not_valid_before(now - timedelta(days=61)).not_valid_after(now + timedelta(days=29))
    for extension in good.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    path.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


WORKFLOW = """
stager: 1
name: near
jobs:
JOBS
  read:
    run: cat part* | wc -c > count
    inputs: [PARTS]
    outputs: {count: {to: here:out/count, on_exists: replace}}
"""
JOB = """
  make{n}:
    run: "sleep 0.5; head -c 100000 /dev/zero > part{n}"
    outputs: {{part{n}: {{size: 100 kB}}}}
"""
JOBS = 8


def test_jobs_stay_beside_the_scheduler_when_nodes_have_joined(cluster: Cluster, net: Network) -> None:
    a = net.host("a", private=True)
    joined(a, cluster.invite(), "--store", STORE, "--node-id", "a", "--capacity", "100 MB")
    wait_until(lambda: cluster.is_up("a"), "the node to be taken up")
    text = WORKFLOW.replace("JOBS", "".join(JOB.format(n=n) for n in range(JOBS)))
    (cluster.place / "workflow.yml").write_text(text.replace("PARTS", ", ".join(f"part{n}" for n in range(JOBS))))
    for _ in range(2):
        cluster.stager.run("submit", cluster.place / "workflow.yml")
        assert (cluster.place / "out" / "count").read_text() == f"{JOBS * 100_000}\n"
        cluster.stop()
        cluster.start()
    started = given_in(batches_of(StateDir(cluster.stager.state_dir)), cmd.StartAttempt)
    assert len(started) == 2 * (JOBS + 1) and {command.node for command in started} == {"node0"}
