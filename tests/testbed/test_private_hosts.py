"""Hosts with files and clocks of their own, and lines that are cut: what one host does another one sees over the network or not at all."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from tests.testbed import faked_clock, network
from tests.testbed.ionode import IoNode
from tests.testbed.network import Host, Network, Wan, own_places, program_places
from tests.testbed.places import PROJECT, ionode_binary
from tests.testbed.processes import Server, is_alive, is_listening, started_at
from tests.testbed.waiting import wait_until

AHEAD_S = 7200
LISTEN = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(eval(sys.argv[1])); s.listen(); time.sleep(600)"
# By the call that libfaketime knows. Python's own is another one.
TELL_TIMES = """
import ctypes, os, time
open('/srv/a', 'w').close()
fields = (ctypes.c_long * 32)()
ctypes.CDLL(None).stat(b'/srv/a', fields)
print(time.time(), time.monotonic(), fields[11])
"""
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(eval(sys.argv[1])); print('connected')"


@pytest.fixture
def pair(net: Network) -> tuple[Host, Host]:
    return net.host("one", private=True), net.host("other", private=True)


def python(host: Host, text: str, *words: str) -> str:
    return host.run([sys.executable, "-I", "-S", "-c", text, *words]).stdout.strip()


def sees(host: Host, path: str) -> bool:
    return python(host, "import os, sys; print(os.path.lexists(sys.argv[1]))", path) == "True"


def test_a_private_host_sees_its_own_files_and_no_others_and_the_test_sees_all(pair: tuple[Host, Host], short_dir: Path) -> None:
    one, other = pair
    (short_dir / "of the test").touch()
    assert {os.path.realpath(place) for place in ("/tmp", "/srv", "/run", "/dev/shm", Path.home())} <= set(own_places())
    for place in own_places():
        path = f"{place}/st-written-by-one"
        python(one, "import sys; open(sys.argv[1], 'x').write('by one')", path)
        assert one.outside(path).read_text() == "by one"
        assert not other.outside(path).exists() and not Path(path).exists(), f"{path} is shared"
        assert sees(one, path) and not sees(other, path)
        other.outside(path).write_text("placed")
        assert python(other, "import sys; print(open(sys.argv[1]).read())", path) == "placed"
        assert one.outside(path).read_text() == "by one"
    assert not sees(one, str(short_dir / "of the test"))


def mounts() -> set[str]:
    return set(Path("/proc/self/mountinfo").read_text().splitlines())


def leaked(before: set[str]) -> list[str]:
    """Mounts since then where a host has its own. Other tests mount at other places meanwhile."""
    places = {"/", *own_places(), *program_places()}
    return [line for line in mounts() - before if line.split()[4] in places]


SHARED = """
import subprocess, sys
from tests.testbed.test_private_hosts import leaked, mounts
before = mounts()
assert any("shared:" in line for line in before)
keeper = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(keeper.stdout.readline().decode().strip(), leaked(before))
keeper.communicate()
"""


def test_the_mounts_of_a_host_stay_there_where_the_machine_shares_its_mounts() -> None:
    """As systemd has it on most machines."""
    network.needs_network()
    argv = [sys.executable, "-I", "-S", network.HOST_FILES, "--own", *own_places(), "--keep", *program_places()]
    shared = ["unshare", "--mount", "--propagation=shared", sys.executable, "-c", SHARED, *map(str, argv)]
    assert subprocess.run(shared, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split() == ["ready", "[]"]


def test_a_host_that_is_not_private_shares_files_as_it_did(net: Network, short_dir: Path) -> None:
    host = net.host("open")
    assert host.outside(short_dir / "a") == short_dir / "a"
    host.run(["touch", short_dir / "a"])
    assert (short_dir / "a").exists()


def test_a_private_host_reads_the_programs_and_writes_nothing_that_is_shared(pair: tuple[Host, Host]) -> None:
    one, _ = pair
    for argv in ([ionode_binary(), "--version"], [sys.executable, "-c", "import stager.cli.main, tests.testbed.network"]):
        one.run(["env", f"PYTHONPATH={PROJECT}", *argv])
    for kept in program_places():
        assert set(one.run(["ls", "-A", kept]).stdout.splitlines()) == set(os.listdir(kept))
    for place in (PROJECT, Path(sys.prefix), ionode_binary().parent, Path("/usr"), Path("/etc"), Path("/var"), Path("/")):
        with pytest.raises(AssertionError, match="Read-only file system"):
            one.run(["touch", place / "st-written"])
    # Point, options, and behind a dash the kind.
    mounts = [line.split() for line in one.run(["cat", "/proc/self/mountinfo"]).stdout.splitlines()]
    kinds = {words[4]: words[words.index("-") + 1 :] for words in mounts if "rw" in words[5].split(",")}
    shared = [point for point, (kind, source, *_) in kinds.items() if source != "host-files" and not point.startswith("/proc")]
    assert not shared, "others see what is written there"


@pytest.mark.parametrize("address", ["'/srv/socket'", "'/run/socket'", "'/tmp/socket'", "'\\0st-socket'"])
def test_a_unix_socket_of_a_host_is_reached_from_there_alone_and_by_the_test(
    pair: tuple[Host, Host], short_dir: Path, address: str
) -> None:
    one, other = pair
    name = eval(address)
    server = Server([sys.executable, "-I", "-S", "-c", LISTEN, address], short_dir / "log", where=one)
    server.start()
    wait_until(lambda: answered(one, address), f"{address} to be listened at")
    with pytest.raises(AssertionError, match=r"ConnectionRefusedError|FileNotFoundError"):
        python(other, CONNECT, address)
    is_a_file = not name.startswith("\0")
    assert not is_a_file or is_listening(one.outside(name))
    server.stop()


def answered(host: Host, address: str) -> bool:
    with contextlib.suppress(AssertionError):
        return python(host, CONNECT, address) == "connected"
    return False


def connection(client: Host, server: Host) -> tuple[socket.socket, socket.socket]:
    with server.inside(), socket.create_server((server.address, 0)) as listener:
        out = client.connect(server.address, listener.getsockname()[1])
        incoming = listener.accept()[0]
    out.settimeout(10)
    incoming.settimeout(10)
    return out, incoming


def is_silent(connection: socket.socket, seconds: float) -> bool:
    """No byte, no end, no error."""
    connection.settimeout(seconds)
    try:
        got = connection.recv(100)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(20)
    raise AssertionError(f"not silent: {got!r}")


def is_carried(sender: socket.socket, receiver: socket.socket) -> bool:
    sender.sendall(b"word")
    return receiver.recv(100) == b"word"


@pytest.mark.slow
@pytest.mark.parametrize("wan", [None, Wan(rtt_s=0.01, rate_mbit_s=100)])
def test_a_cut_is_silent_both_ways_and_what_was_sent_meanwhile_arrives_after_it(net: Network, wan: Wan | None) -> None:
    one, other, third = net.host("one", wan=wan), net.host("other"), net.host("third")
    out, incoming = connection(one, other)
    beside, beside_incoming = connection(one, third)
    with contextlib.ExitStack() as stack:
        for each in (out, incoming, beside, beside_incoming):
            stack.enter_context(each)
        assert is_carried(out, incoming) and is_carried(incoming, out)
        with net.parted(one, other):
            out.sendall(b"from one")
            incoming.sendall(b"from the other")
            assert is_silent(incoming, 0.8) and is_silent(out, 0.2)
            assert is_carried(beside, beside_incoming) and is_carried(beside_incoming, beside)
        assert (incoming.recv(100), out.recv(100)) == (b"from one", b"from the other")
        assert is_carried(out, incoming) and is_carried(incoming, out)


@pytest.mark.slow
def test_who_calls_over_a_line_that_is_cut_hears_nothing_and_is_heard_after_it(pair: tuple[Host, Host], net: Network) -> None:
    """Not even of a host that cannot be reached, which the system tells after three seconds where nobody has the address."""
    one, other = pair
    with other.inside():
        listener = socket.create_server((other.address, 0))
    with listener, net.parted(one, other), pytest.raises(TimeoutError):
        one.connect(other.address, listener.getsockname()[1], timeout_s=4)
    for ends in (connection(one, other), connection(other, one)):
        with ends[0], ends[1]:
            assert is_carried(*ends)


def test_a_line_that_is_cut_one_way_carries_the_other(net: Network) -> None:
    deaf, mute = net.host("deaf"), net.host("mute")
    with contextlib.ExitStack() as stack:
        ends = []
        for host in (deaf, mute):
            with host.inside():
                ends.append(stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            ends[-1].bind((host.address, 9000))
            ends[-1].settimeout(10)
        net.cut(mute, deaf, one_way=True)
        ends[1].sendto(b"lost", (deaf.address, 9000))
        ends[0].sendto(b"arrives", (mute.address, 9000))
        assert ends[1].recv(100) == b"arrives" and is_silent(ends[0], 0.3)
        net.mend(deaf, mute)
        ends[1].sendto(b"arrives now", (deaf.address, 9000))
        assert ends[0].recv(100) == b"arrives now"
    with pytest.raises(AssertionError, match="nothing is cut"):
        net.mend(deaf, mute)


def test_the_wall_clock_of_a_host_is_ahead_and_nothing_else(net: Network) -> None:
    ahead, right = net.host("ahead", private=True, clock_offset_s=AHEAD_S), net.host("right", private=True)
    for host, offset_s in ((ahead, AHEAD_S), (right, 0)):
        before, began = time.time(), time.monotonic()
        wall, monotonic, changed = map(float, python(host, TELL_TIMES).split())
        took_s = time.monotonic() - began
        assert -0.1 <= wall - before - offset_s <= took_s + 0.1
        assert began <= monotonic <= began + took_s
        # A file has the time of the last tick of the kernel.
        assert -1.1 <= changed - before <= took_s + 0.1
        assert -0.1 <= host.outside("/srv/a").stat().st_mtime - before <= took_s + 0.1


@pytest.mark.slow
def test_an_io_node_runs_on_a_clock_that_is_wrong(net: Network, ionode: Callable[..., IoNode]) -> None:
    """It is written in Rust, and its release allocates by jemalloc: it starts, answers, and dates what it says by that clock."""
    for offset_s in (AHEAD_S, -AHEAD_S):
        host = net.host(f"by{offset_s}", private=True, clock_offset_s=offset_s)
        node = ionode(store=Path("/srv/store"), where=host)
        answer = node.call("GET", "/v1/state")
        assert answer.status_code == 200
        off_s = (parsedate_to_datetime(answer.headers["date"]) - datetime.now(UTC)).total_seconds()
        assert abs(off_s - offset_s) < 60
        logged = datetime.fromisoformat(node.log_text().split('"timestamp":"')[1].split('"')[0])
        assert abs((logged - datetime.now(UTC)).total_seconds() - offset_s) < 60
        node.kill()
        node.start()
        assert node.get("/v1/state")


def test_without_what_a_private_host_needs_a_test_is_skipped_by_name(
    net: Network, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faked_clock, "LIBRARIES", ())
    with pytest.raises(pytest.skip.Exception, match="libfaketime is not installed .*apt-get install faketime"):
        net.host("ahead", private=True, clock_offset_s=AHEAD_S)
    (short_dir / "refusing.py").write_text("print('refused: this machine gives no mount namespaces')")
    monkeypatch.setattr(network, "HOST_FILES", short_dir / "refusing.py")
    with pytest.raises(pytest.skip.Exception, match="the bed of hosts: bare gets no files of its own: this machine gives no mount"):
        net.host("bare", private=True)


KILLED = """
import os, signal, subprocess, sys
from tests.testbed import network
from tests.testbed.network import Network
network.PREFIX = sys.argv[1]
with Network() as bed:
    one, other = bed.host("one", private=True), bed.host("other", private=True)
    bed.cut(one, other)
    one.outside("/dev/shm/st-left").write_text("left")
    quiet = {"start_new_session": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    left = subprocess.Popen(one.command(["sleep", "600"]), **quiet)
    while not os.path.samefile(f"/proc/{left.pid}/ns/mnt", f"/proc/{one.files.pid}/ns/mnt"):
        pass
    spaces = [os.stat(f"/proc/{host.files.pid}/ns/mnt").st_ino for host in bed.hosts]
    print(bed.prefix, left.pid, *(host.files.pid for host in bed.hosts), *spaces, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def inside(space: int) -> set[tuple[int, int]]:
    """(pid, when it began) of the processes in this mount namespace: its number is given anew as soon as it is gone."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and network.inode_of(Path(f"/proc/{name}/ns/mnt")) == space]
    return {(pid, started_at(pid)) for pid in found}


def test_nothing_stays_of_the_private_hosts_of_a_killed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """By names of its own, as in test_network.py. Without a process a mount namespace and its memory file systems are gone."""
    network.needs_network()
    name = f"{network.PREFIX}f{os.getpid()}"
    monkeypatch.setattr(network, "OWNED", network.owned_by_name(name))
    before = mounts()
    killed = subprocess.run([sys.executable, "-c", KILLED, name], cwd=PROJECT, capture_output=True, text=True, timeout=240)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    prefix, *numbers = killed.stdout.split()
    left, *keepers = map(int, numbers[:3])
    wait_until(lambda: not any(map(is_alive, keepers)), "what keeps the files to end with its owner")
    # That of the other host is gone with its keeper, and another test's may have its number by now.
    space = int(numbers[3])
    were_inside = inside(space)
    assert (left, started_at(left)) in were_inside and started_at(left)
    assert network.sweep() == [f"{prefix}-hub", f"{prefix}-one", f"{prefix}-other"]
    assert not is_alive(left)
    assert not inside(space) & were_inside
    assert not leaked(before) and not any(prefix in line for line in mounts())
    assert not Path("/dev/shm/st-left").exists()


def test_nothing_stays_of_private_hosts_when_their_bed_ends() -> None:
    network.needs_network()
    with Network() as bed:
        host = bed.host("one", private=True)
        assert host.files is not None
        keeper, space = host.files.pid, network.inode_of(Path(f"/proc/{host.files.pid}/ns/mnt"))
        left = subprocess.Popen(host.command(["sleep", "600"]))
        wait_until(lambda: network.inode_of(Path(f"/proc/{left.pid}/ns/mnt")) == space, "what is left to be on the host")
        were_inside = inside(space)
    assert left.wait() == -signal.SIGKILL
    assert not is_alive(keeper) and not inside(space) & were_inside
