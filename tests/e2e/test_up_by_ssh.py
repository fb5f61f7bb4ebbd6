"""`stager ionode up` and `stager worker up`: hosts that have an ssh server and a Python, and share no files with the scheduler's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.authority import Authority
from stager.adapters.far_host import far_host
from stager.adapters.ssh_link import SshTarget, ssh_link
from stager.model.errors import Denied, Transient
from stager.scheduler import commands as cmd
from stager.service.state_dir import StateDir
from tests.e2e.nodes_rig import batches_of, given_in
from tests.e2e.test_cluster_in_ten_minutes import PooledCluster
from tests.testbed.network import Network
from tests.testbed.processes import all_pids
from tests.testbed.sshd import Sshd, make_key, running_agent
from tests.testbed.waiting import wait_until
from tests.testbed.workflows import copied_workflow

pytest.importorskip("paramiko")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
DIR = "/srv/io"
# Whatever Python runs the tests: the system's may be another version.
PYTHON = str(Path(sys.executable).resolve())
SECRET = re.compile(rb"#[0-9a-f]{64}\.[A-Za-z0-9_-]{16}")


class SshHost:
    """A private host whose start files are slow, print something, and leave a line open."""

    def __init__(self, net: Network, name: str) -> None:
        self.host = net.host(name, private=True)
        place = self.host.outside("/srv/sshd")
        place.mkdir()
        (place / ".bashrc").write_text("echo 'welcome to this host'\nsleep 0.5\nprintf 'mind the'\n")
        self.sshd = Sshd(place, place / "data", where=self.host)

    def config(self, name: str, *more: str) -> str:
        return self.sshd.ssh_config_text(name) + "".join(f"  {line}\n" for line in more)


class Bed:
    """A cluster, a host `a`, and another one by which alone ssh reaches it."""

    def __init__(self, net: Network, place: Path) -> None:
        self.cluster = PooledCluster(net, place)
        self.a, self.jump = SshHost(net, "a"), SshHost(net, "jump")
        (self.jump.host.outside("/srv/sshd") / ".bashrc").unlink()
        self.config = place / "ssh_config"

    def begin(self) -> None:
        for each in (self.a, self.jump):
            each.sshd.start()
        self.config.write_text(self.a.config("near-a") + self.a.config("A", "ProxyJump jump") + self.jump.config("jump"))
        self.cluster.begin()
        self.cluster.stager.env = {**self.cluster.stager.env, "STAGER_SSH_CONFIG": str(self.config)}

    def end(self) -> None:
        self.cluster.end()
        for each in (self.a, self.jump):
            each.sshd.stop()

    def up(self, what: str, url: str, *words: str) -> dict[str, Any]:
        done = self.cluster.stager.run(what, "up", url, "--python", PYTHON, "--json", *words)
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts

    def down(self, what: str, url: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.cluster.stager.run(what, "down", url, "--python", PYTHON, "--json").stdout)
        return facts

    def refused(self, url: str, *words: str, what: str = "ionode", to: str = "up") -> str:
        done = self.cluster.stager.run(what, to, url, *words, code=None)
        assert done.returncode not in (0, 1) and "Traceback" not in done.stderr, done.stdout + done.stderr
        return done.stderr


@pytest.fixture
def bed(net: Network, short_dir: Path) -> Iterator[Bed]:
    made = Bed(net, short_dir)
    made.begin()
    yield made
    made.end()


@contextlib.contextmanager
def seen_in_command_lines(text: str) -> Iterator[list[bytes]]:
    """Those of all processes, again and again, that have it in them."""
    found: list[bytes] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.002):
            for pid in all_pids():
                with contextlib.suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if text.encode() in line:
                        found.append(line)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        is_over.set()
        watcher.join()


def files_with_a_secret(*places: Path) -> list[Path]:
    paths = [path for place in places for path in place.rglob("*") if path.is_file() and "site-packages" not in path.parts]
    return [path for path in paths if SECRET.search(path.read_bytes())]


def test_a_host_is_brought_up_by_ssh_and_runs_jobs(bed: Bed, net: Network, tmp_path: Path) -> None:
    cluster, store = bed.cluster, bed.a.host.outside(DIR)
    fingerprint = Authority(StateDir(cluster.stager.state_dir).authority).fingerprint()
    with seen_in_command_lines(fingerprint) as shown:
        first = bed.up("ionode", f"ssh://A{DIR}", "--node-id", "a", "--capacity", "100 MB")
    assert (first["done"], first["node"], first["store"]) == ("joined", "a", DIR), first
    assert not shown
    # By the jump host of the configuration.
    assert f"from {bed.jump.host.address}" in bed.a.sshd.log.read_text()
    assert not files_with_a_secret(store, cluster.place, bed.a.sshd.directory, bed.jump.sshd.directory)
    wait_until(lambda: cluster.is_up("a"), "the node to be taken up")
    assert "a" not in cluster.hosts()

    again = bed.up("ionode", f"ssh://A{DIR}")
    assert (again["done"], again["sent_files"]) == ("nothing", 0)
    assert cluster.nodes()["a"].pid == first["joined"]["pid"]

    worker = bed.up("worker", f"ssh://near-a{DIR}", "--cores", "2", "--memory", "1 GB")
    assert (worker["done"], worker["sent_files"], worker["joined"]["worker_problem"]) == ("changed", 0, ""), worker
    assert worker["joined"]["pid"] == first["joined"]["pid"]
    wait_until(lambda: cluster.hosts() == {"a": ("open", "a", 2)}, "the worker")
    assert bed.up("worker", f"ssh://near-a{DIR}")["done"] == "nothing"

    # What is not as it was sent is sent again, and only that.
    program = store / "software" / first["software"] / "bin" / "stager-ionode"
    whole = program.read_bytes()
    program.unlink()
    program.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    program.chmod(0o755)
    mended = bed.up("ionode", f"ssh://near-a{DIR}")
    assert (mended["done"], mended["sent_files"]) == ("replaced", 1), mended
    assert program.read_bytes() == whole
    wait_until(lambda: cluster.is_up("a") and cluster.nodes()["a"].pid == mended["joined"]["pid"], "the node to be there again")

    run_quickstart(bed, tmp_path)
    take_down_and_up_again(bed)


def take_down_and_up_again(bed: Bed) -> None:
    cluster, url, store = bed.cluster, f"ssh://near-a{DIR}", bed.a.host.outside(DIR)
    assert "stager worker down" in bed.refused(url, "--python", PYTHON, to="down")
    pid = cluster.nodes()["a"].pid
    assert bed.down("worker", url)["ended"] and not bed.down("worker", url)["ended"]
    assert cluster.is_up("a") and cluster.nodes()["a"].pid == pid
    wait_until(lambda: cluster.hosts().get("a", ("",))[0] != "open", "the worker to be missed")
    assert bed.down("ionode", url)["ended"]
    wait_until(lambda: not cluster.is_up("a"), "the node to be missed")
    assert cluster.nodes()["a"].state == "draining"
    # There is no systemd on hosts of the bed: what was not done is said.
    said = bed.refused(url, "--python", PYTHON, "--systemd", "user")
    assert "systemctl --user daemon-reload" in said and "Nothing runs there" in said, said
    unit = store.parent / "sshd" / ".config" / "systemd" / "user" / "stager-host.service"
    assert f'"{DIR}"' in unit.read_text()
    unit.unlink()
    assert bed.up("ionode", url)["done"] == "started"
    wait_until(lambda: cluster.is_up("a") and cluster.nodes()["a"].state == "up", "the node to take work again")
    # One that was forgotten is drained of nothing, and comes again with another invite.
    cluster.stager.run("node", "forget", "a", "--force")
    assert bed.down("ionode", url)["ended"]
    assert bed.up("ionode", url)["done"] == "joined"
    wait_until(lambda: cluster.is_up("a"), "the node to be taken up anew")
    # What is said to run there is another version.
    current = store / "software" / "current"
    name = current.readlink()
    current.unlink()
    current.symlink_to("0.0.9-000000000000")
    said = bed.refused(url, "--python", PYTHON)
    assert f"runs stager 0.0.9-000000000000, and here is {name}; with --replace" in said, said
    assert bed.up("ionode", url, "--replace")["done"] == "replaced"
    assert current.readlink() == name


def run_quickstart(bed: Bed, place: Path) -> None:
    cluster = bed.cluster
    cluster.stager.run("submit", copied_workflow("quickstart", place))
    started = given_in(batches_of(StateDir(cluster.stager.state_dir)), cmd.StartAttempt)
    assert {(command.host, command.node) for command in started} == {("a", "a")}


RELAY = """
import os, socket, sys, threading
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def send():
    while block := os.read(0, 65536):
        line.sendall(block)
threading.Thread(target=send, daemon=True).start()
while block := line.recv(65536):
    os.write(1, block)
"""


def test_an_agent_and_a_proxy_command_are_used_as_by_ssh(sshd: Sshd, short_dir: Path) -> None:
    relay, config, key = short_dir / "relay.py", short_dir / "config", make_key(short_dir / "key", "rsa")
    relay.write_text(RELAY)
    sshd.allow(key)
    own = sshd.ssh_config_text("far").replace("IdentitiesOnly yes", f"ProxyCommand {PYTHON} {relay} %h %p")
    config.write_text(own.replace(str(sshd.identity_file), str(short_dir / "none")))
    environ = {"STAGER_SSH_CONFIG": str(config), "PATH": os.environ["PATH"]}
    with running_agent(short_dir, key) as agent:
        key.unlink()
        with ssh_link(SshTarget("far"), {**environ, "SSH_AUTH_SOCK": str(agent)}) as link, far_host(link, PYTHON) as far:
            said = far.ask("look", root=str(short_dir / "io"), software="x", files=[["bin/stager", 1, "", 0o755]])
    assert (said["lacks"], said["record"], said["root"]) == ([0], None, str(short_dir / "io"))
    with pytest.raises(Denied, match="there is no key to show"), ssh_link(SshTarget("far"), environ):
        pass
    relay.write_text("raise SystemExit('no way there')")
    with pytest.raises(Transient, match="no way there"), ssh_link(SshTarget("far"), environ):
        pass


def test_what_is_in_the_way_is_said(bed: Bed) -> None:
    url = f"ssh://near-a{DIR}"
    host, sshd = bed.a.host, bed.a.sshd
    known = sshd.known_hosts.read_text()
    sshd.known_hosts.write_text("")
    said = bed.refused(url)
    assert "is unknown: it shows" in said and "ssh-keyscan" in said and "SHA256:" in said
    sshd.known_hosts.write_text(known)
    sshd.change_host_key()
    assert "is not the one in" in bed.refused(url)
    sshd.write_known_hosts(sshd.host_key)
    sshd.known_hosts.write_text(f"@revoked {sshd.known_hosts.read_text()}")
    assert "marked as revoked" in bed.refused(url)
    sshd.write_known_hosts(sshd.host_key)
    # Nothing of these came so far that a key of ours was shown.
    assert "Accepted" not in sshd.log.read_text() and "Failed publickey" not in sshd.log.read_text()

    assert "there is no /opt/none/python3" in bed.refused(url, "--python", "/opt/none/python3")
    assert "letters, digits" in bed.refused(url, "--python", "python3; true")
    said = bed.refused("ssh://near-a/usr/io", "--python", PYTHON)
    assert "Read-only file system" in said and "may write" in said
    host.outside("/srv/small").mkdir()
    host.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", "/srv/small"])
    assert "free some space there" in bed.refused("ssh://near-a/srv/small/io", "--python", PYTHON)
    assert "name the node that its jobs read from with --beside" in bed.refused(url, "--python", PYTHON, what="worker")
    assert not host.outside(DIR).exists()
    own = sshd.directory / "authorized_keys"
    allowed = own.read_text()
    own.write_text("")
    said = bed.refused(url)
    assert "does not let us in: it took none of" in said and str(sshd.identity_file) in said
    own.write_text(allowed)
    sshd.stop()
    assert "nothing answers at" in bed.refused(url)
    with bed.config.open("a") as config:
        # It hangs up on what is on the way to it.
        config.write("Host nowhere\n  ProxyCommand sh -c 'head -c 1 >/dev/null; echo no way there >&2'\n")
    assert "no ssh server answers" in (said := bed.refused("ssh://nowhere/srv/io")) and "no way there" in said
    # Nothing was invited for all that.
    assert not list((StateDir(bed.cluster.stager.state_dir).authority / "invites").glob("*"))
