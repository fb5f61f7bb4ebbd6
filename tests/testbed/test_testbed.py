"""The testbed does what it says: what it breaks is broken, what it serves is served, what it starts ends."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from tests.testbed import leftovers
from tests.testbed.ionode import IoNode
from tests.testbed.link import Link
from tests.testbed.processes import (
    LAST_PORT,
    Server,
    answers,
    descendants,
    free_port,
    is_alive,
    is_listening,
    own_ports,
    pid_in,
    share_ports,
)
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd, is_locked, make_key, running_agent
from tests.testbed.waiting import wait_until


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    def echo(connection: socket.socket) -> None:
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
        except OSError:
            pass
        finally:
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def connected(port: int, timeout_s: float = 10.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=timeout_s)


def receive(connection: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        more = connection.recv(65536)
        if not more:
            break
        data += more
    return data


def say(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return receive(connection, len(data))


def test_sshd_serves_its_data_and_checks_keys(sshd: Sshd) -> None:
    (sshd.data / "a.txt").write_text("hello")
    assert "a.txt" in sshd.sftp(f"ls {sshd.data}")
    stranger = make_key(sshd.directory / "stranger")
    sshd.identity_file = stranger
    with pytest.raises(subprocess.CalledProcessError):
        sshd.sftp(f"ls {sshd.data}")


def shell_answer(server: Sshd, command: str) -> subprocess.CompletedProcess[str]:
    config = server.directory / "ssh_config"
    config.write_text(server.ssh_config_text("lab"))
    return subprocess.run(
        ["ssh", "-F", config, "-oBatchMode=yes", "lab", command], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


def test_a_locked_account_is_let_in_by_pam(short_dir: Path) -> None:
    shadow = short_dir / "shadow"
    shadow.write_text("root:!*:20778:0:99999:7:::\nann:$y$j9T:20778:0:99999:7:::\nlab:!:20778::::::\n")
    assert [user for user in ("root", "ann", "lab", "nobody") if is_locked(user, shadow)] == ["root", "lab"]


def test_one_sshd_gives_a_shell_and_the_other_does_not(sshd: Sshd, sftp_only: Sshd) -> None:
    assert shell_answer(sshd, "echo $((6*7))").stdout == "42\n"
    assert "42" not in shell_answer(sftp_only, "echo $((6*7))").stdout
    assert sftp_only.sftp("pwd")


def test_a_changed_host_key_is_refused_by_the_stock_client(sshd: Sshd) -> None:
    sshd.sftp("pwd")
    sshd.change_host_key()
    with pytest.raises(subprocess.CalledProcessError):
        sshd.sftp("pwd")


def test_sshd_goes_down_with_its_sessions_and_comes_back_on_its_port(sshd: Sshd) -> None:
    port, server = sshd.port, sshd.server
    assert server
    with connected(port) as session:
        assert session.recv(4) == b"SSH-"
        sshd.drop_sessions()
        session.settimeout(10)
        try:
            while session.recv(4096):
                pass
        except ConnectionResetError:
            pass
        assert answers(port)
    sshd.stop()
    assert not answers(port)
    sshd.start()
    assert sshd.port == port
    sshd.sftp("pwd")


def test_an_agent_holds_the_key(sshd: Sshd, short_dir: Path) -> None:
    with running_agent(short_dir, sshd.identity_file) as agent:
        listed = subprocess.run(
            ["ssh-add", "-l"], env=os.environ | {"SSH_AUTH_SOCK": str(agent)}, capture_output=True, text=True, check=True
        ).stdout
    assert "user_key" in listed
    assert not is_listening(agent)


def test_s3_keeps_objects_and_checks_credentials(s3: S3, bucket: str) -> None:
    client = s3.client()
    client.put_object(Bucket=bucket, Key="a/b.txt", Body=b"hello")
    assert client.get_object(Bucket=bucket, Key="a/b.txt")["Body"].read() == b"hello"
    if s3.checks_credentials:
        s3.secret_key, right = "wrong", s3.secret_key
        try:
            with pytest.raises(ClientError):
                s3.client().list_objects_v2(Bucket=bucket)
        finally:
            s3.secret_key = right


def test_s3_refuses_a_second_object_of_one_name_if_asked_to(s3: S3, bucket: str) -> None:
    client = s3.client()
    client.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError) as refused:
        client.put_object(Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412


def test_a_link_carries_and_counts(echo_port: int, link: Callable[..., Link]) -> None:
    line = link(echo_port)
    data = os.urandom(300_000)
    with connected(line.port) as connection:
        assert say(connection, data) == data
    assert (line.up.carried_bytes, line.down.carried_bytes, line.connections) == (300_000, 300_000, 1)


def test_a_link_hands_on_the_end_of_a_stream(echo_port: int, link: Callable[..., Link]) -> None:
    with connected(link(echo_port).port) as connection:
        connection.sendall(b"abc")
        connection.shutdown(socket.SHUT_WR)
        assert receive(connection, 100) == b"abc"


def test_a_cut_resets_and_new_connections_are_welcome(echo_port: int, link: Callable[..., Link]) -> None:
    line = link(echo_port)
    with connected(line.port) as connection:
        assert say(connection, b"x") == b"x"
        line.cut()
        with pytest.raises(OSError):
            for _ in range(1000):
                connection.sendall(b"y")
                if not connection.recv(1):
                    raise ConnectionResetError
    with connected(line.port) as connection:
        assert say(connection, b"z") == b"z"


def test_a_link_that_is_down_lets_nobody_in(echo_port: int, link: Callable[..., Link]) -> None:
    line = link(echo_port)
    line.go_down()
    with pytest.raises(OSError), connected(line.port) as connection:
        if not connection.recv(1):
            raise ConnectionResetError
    line.come_up()
    with connected(line.port) as connection:
        assert say(connection, b"z") == b"z"


def test_a_cut_comes_after_just_so_many_bytes(echo_port: int, link: Callable[..., Link]) -> None:
    line = link(echo_port)
    line.cut_after(100_001)
    with connected(line.port) as connection:
        connection.sendall(bytes(150_000))
        wait_until(lambda: line.down.carried_bytes == 100_001, "the cut")
    with connected(line.port) as connection:
        assert say(connection, b"z") == b"z"


def test_one_bit_is_flipped(echo_port: int, link: Callable[..., Link]) -> None:
    line = link(echo_port)
    line.flip_after(70_000)
    data = bytes(140_000)
    with connected(line.port) as connection:
        answer = say(connection, data)
    assert [place for place, byte in enumerate(answer) if byte] == [70_000]
    assert line.down.flipped == 1


def test_a_stalled_link_says_nothing_until_it_flows(echo_port: int, link: Callable[..., Link]) -> None:
    line = link(echo_port)
    with connected(line.port) as connection:
        assert say(connection, b"x") == b"x"
        line.stall()
        connection.sendall(b"y")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        line.flow()
        connection.settimeout(10)
        assert connection.recv(1) == b"y"


def test_delay_is_latency_and_not_bandwidth(echo_port: int, link: Callable[..., Link]) -> None:
    line = link(echo_port, delay_s=0.2)
    with connected(line.port, timeout_s=60) as connection:
        begin = time.monotonic()
        say(connection, b"x")
        assert time.monotonic() - begin >= 0.4
        begin = time.monotonic()
        say(connection, bytes(4_000_000))
        # 62 chunks one after the other would take 25 s.
        assert time.monotonic() - begin < 12


def test_a_throttled_link_is_as_fast_as_told_over_all_connections(echo_port: int, link: Callable[..., Link]) -> None:
    line = link(echo_port, bytes_per_s=4_000_000)
    begin = time.monotonic()
    with connected(line.port) as one, connected(line.port) as other:
        for connection in (one, other):
            connection.sendall(bytes(400_000))
        for connection in (one, other):
            assert len(receive(connection, 400_000)) == 400_000
    # 0.8 MB up and 0.8 MB down share the line.
    assert time.monotonic() - begin >= 0.35


def test_a_tiny_disk_is_full_soon(tiny_disk: Callable[[int], Path]) -> None:
    place = tiny_disk(2)
    with pytest.raises(OSError, match="No space left"):
        (place / "big").write_bytes(bytes(3_000_000))


DETACHED = """
import os, sys
if os.fork():
    sys.exit()
os.setsid()
os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
"""


def test_a_process_that_detached_and_cleared_its_environment_is_found(short_dir: Path) -> None:
    subprocess.run([sys.executable, "-c", DETACHED], check=True, cwd=short_dir)
    # It has no words in the instant in which it becomes another program.
    found = wait_until(lambda: leftovers.left_processes("no such session", [short_dir]), "the detached process to show")
    try:
        assert len(found) == 1
        assert "time.sleep(600)" in found[0].command
    finally:
        leftovers.clean(found, [])
    wait_until(lambda: not leftovers.left_processes("no such session", [short_dir]), "the detached process to end")


def test_a_process_elsewhere_is_found_by_the_mark_it_inherited(short_dir: Path) -> None:
    mine = f"of {short_dir}"
    server = Server(["sleep", "600"], short_dir / "log", env={leftovers.MARK: mine, "PYTEST_CURRENT_TEST": "tests/a.py::b"}, cwd=Path("/"))
    server.start()
    try:
        found = wait_until(
            lambda: [item for item in leftovers.left_processes(mine, []) if item.command == "sleep 600"], "the process to show"
        )
        assert (found[0].pid, found[0].test) == (server.pid, "tests/a.py::b")
        assert leftovers.left_processes("another", []) == []
    finally:
        server.stop()


def test_a_mount_is_found(short_dir: Path, tiny_disk: Callable[[int], Path]) -> None:
    place = tiny_disk(1)
    assert leftovers.left_mounts([short_dir]) == [str(place)]
    assert leftovers.left_mounts([short_dir / "elsewhere"]) == []


def test_a_server_that_ends_at_its_start_says_why(short_dir: Path) -> None:
    server = Server(["sh", "-c", "echo out of luck; exit 3"], short_dir / "log")
    with pytest.raises(AssertionError, match="(?s)ended at its start with 3.*out of luck"):
        server.start_on(free_port())


@pytest.mark.slow
def test_stopping_a_server_ends_what_it_started(short_dir: Path) -> None:
    server = Server(["sh", "-c", "trap '' TERM; setsid sleep 600 & wait; wait"], short_dir / "log")
    server.start()
    below = wait_until(lambda: descendants(server.pid), "a child")
    server.stop()
    wait_until(lambda: not any(is_alive(pid) for pid in below), "the child to end")


def test_an_ionode_fetches_and_comes_back_after_a_kill(ionode: Callable[..., IoNode], short_dir: Path) -> None:
    (short_dir / "origin").mkdir()
    (short_dir / "origin" / "a").write_bytes(bytes(10_000))
    node = ionode(capacity_bytes=1_000_000)
    node.do("PUT", "/v1/origins/o", {"kind": "file", "base_path": str(short_dir / "origin")})
    wanted = {"size_bytes": 10_000, "token": None, "blake3": None, "sha256": None}
    fetch = {"kind": "fetch", "file_id": "f", "generation": "g", "source": {"origin_id": "o", "path": "a"}, "expected": wanted}
    node.do("PUT", "/v1/transfers/t", fetch | {"priority": 5, "executable": False})
    event = node.event_of("t")
    assert (event["kind"], event["size_bytes"]) == ("transfer_done", 10_000)
    before = node.incarnation
    node.kill()
    node.start()
    assert node.incarnation != before
    assert [replica["file_id"] for replica in node.get("/v1/state")["replicas"]] == ["f"]


@pytest.mark.slow
def test_workers_of_a_session_look_for_ports_apart_and_none_is_given_twice() -> None:
    shares = []
    for number in range(3):
        environ = {"PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": "3"}
        share_ports(environ)
        shares.append(set(own_ports(LAST_PORT, environ)))
    assert not shares[0] & shares[1] | shares[1] & shares[2] | shares[0] & shares[2]
    assert set.union(*shares) == set(own_ports(LAST_PORT, {}))
    given = [free_port() for _ in range(300)]
    assert len(set(given)) == len(given) and set(given) <= set(own_ports(LAST_PORT))


def test_a_throttled_link_makes_up_for_what_others_took_of_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Being late for each chunk would be a rate of its own; having been idle gives nothing."""
    line, now_s = Link(0, bytes_per_s=1_000_000), [1000.0]
    line._loop = SimpleNamespace(time=lambda: now_s[0])

    async def late(delay_s: float) -> None:
        now_s[0] += max(0.0, delay_s) + 0.03

    async def carry(chunks: int) -> float:
        begin_s = now_s[0]
        for _ in range(chunks):
            await line._take_turn(100_000)
        return now_s[0] - begin_s

    monkeypatch.setattr(asyncio, "sleep", late)
    assert asyncio.run(carry(20)) == pytest.approx(2.03)
    now_s[0] += 5
    assert asyncio.run(carry(20)) == pytest.approx(2.03)


def test_a_pid_in_a_file_is_that_of_the_process_which_wrote_it(short_dir: Path) -> None:
    file = short_dir / "pid"
    file.write_text("")
    assert pid_in(file, os.getpid()) == os.getpid()
    os.utime(file, (time.time() - 3600,) * 2)
    sleeping = subprocess.Popen(["sleep", "600"])
    try:
        assert pid_in(file, sleeping.pid) is None, "it began long after the file was written"
        file.touch()
        assert pid_in(file, sleeping.pid) == sleeping.pid
    finally:
        sleeping.kill()
        sleeping.wait()
    assert pid_in(file, sleeping.pid) is None


def test_a_process_lives_until_the_last_of_its_threads_has_ended() -> None:
    """It holds its files and its locks as long."""
    words = "import ctypes, sys, threading; threading.Thread(target=sys.stdin.read).start(); ctypes.CDLL(None).pthread_exit(None)"
    with subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the first thread to end")
        assert is_alive(process.pid)
        process.kill()
        wait_until(lambda: not is_alive(process.pid), "the others to end")
