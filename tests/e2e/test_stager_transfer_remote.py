"""stager-transfer between this machine and real servers: ssh, S3, web. The bytes move through `stager-ionode transfer`.

One rule: what a server holds is looked at in its own files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed.link import Link
from tests.testbed.pegasus import PLUGIN, Done, listed, ours, ours_started, transfer, url
from tests.testbed.places import ionode_binary
from tests.testbed.processes import is_alive
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd, make_key
from tests.testbed.waiting import wait_until
from tests.testbed.web import Web

LARGE_BYTES = 20_000_000


def moved(entries: list[dict[str, Any]], place: Path, *options: str, **environ: str) -> Done:
    return ours(listed(*entries), place, "-m", "1", *options, STAGER_IONODE=str(ionode_binary()), **environ)


@pytest.fixture
def lab(sshd: Sshd, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """The authority of its URLs, and what a user has set up to reach it."""
    config = tmp_path / "ssh_config"
    config.write_text(sshd.ssh_config_text("lab"))
    return "lab", {"STAGER_SSH_CONFIG": str(config)}


@pytest.mark.parametrize("protocol", ["scp", "sftp"])
def test_ssh_both_ways(sshd: Sshd, lab: tuple[str, dict[str, str]], tmp_path: Path, protocol: str) -> None:
    host, setup = lab
    contents = {"empty": b"", "with space": b"abc", "large": os.urandom(5_000_000), "50%": b"percent"}
    contents |= {name: name.encode() for name in ("f\nx", "f\u00a0x", "f\u3000x", "f\u2028x\x85", "f\tx")} | {"f": b"another file"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    far = f"{protocol}://{host}{sshd.data}"
    sent = [transfer([url(tmp_path / name)], url(f"{far}/new/dir/{name}", "remote")) for name in contents]
    done = moved(sent, tmp_path, **setup)
    assert done.code == 0, done.said
    assert {path.name: path.read_bytes() for path in (sshd.data / "new/dir").iterdir()} == contents
    back = [transfer([url(f"{far}/new/dir/{name}", "remote")], url(tmp_path / "back" / name)) for name in contents]
    done = moved(back, tmp_path, **setup)
    assert done.code == 0, done.said
    assert {path.name: path.read_bytes() for path in (tmp_path / "back").iterdir()} == contents
    entries = [{"type": "mkdir", "target": url(f"{far}/made/deep", "remote")}]
    assert moved(entries, tmp_path, **setup).code == 0 and (sshd.data / "made/deep").is_dir()
    entries = [{"type": "remove", "target": url(f"{far}/new/dir/{name}", "remote")} for name in ("empty", "not there")]
    assert moved(entries, tmp_path, **setup).code == 0 and not (sshd.data / "new/dir/empty").exists()


def test_what_is_there_is_replaced_whole_or_not_at_all(sshd: Sshd, lab: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    host, setup = lab
    (tmp_path / "s").write_bytes(b"new")
    (sshd.data / "d").write_bytes(b"old")
    assert moved([transfer([url(tmp_path / "s")], url(f"scp://{host}{sshd.data}/d"))], tmp_path, **setup).code == 0
    assert (sshd.data / "d").read_bytes() == b"new"
    (tmp_path / "kept").write_bytes(b"kept")
    sources = [url(f"scp://{host}{sshd.data}/none", priority=2), url(f"scp://{host}{sshd.data}/d", priority=1)]
    done = moved([transfer(sources[:1], url(tmp_path / "kept"))], tmp_path, **setup)
    assert done.code == 1 and (tmp_path / "kept").read_bytes() == b"kept"
    assert moved([transfer(sources, url(tmp_path / "kept"))], tmp_path, **setup).code == 0
    assert (tmp_path / "kept").read_bytes() == b"new" and not list(tmp_path.glob(".*.stager"))


def test_a_host_key_that_is_not_known_is_refused(sshd: Sshd, lab: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    """pegasus-transfer passes StrictHostKeyChecking=no."""
    host, setup = lab
    (sshd.data / "f").write_bytes(b"f")
    sshd.write_known_hosts(make_key(tmp_path / "another_key"))
    done = moved([transfer([url(f"scp://{host}{sshd.data}/f")], url(tmp_path / "f"))], tmp_path, **setup)
    assert done.code == 1 and "host key" in done.said.lower(), done.said
    assert not (tmp_path / "f").exists()


def test_the_key_of_a_site(sshd: Sshd, tmp_path: Path) -> None:
    """SSH_PRIVATE_KEY_SITE, as the planner sets it from the site catalog; the rest from the user's own ssh configuration."""
    config = tmp_path / "ssh_config"
    config.write_text(f"Host *\n  UserKnownHostsFile {sshd.known_hosts}\n  IdentityAgent none\n")
    (sshd.data / "f").write_bytes(b"f")
    entry = transfer([url(f"scp://{sshd.user}@127.0.0.1:{sshd.port}{sshd.data}/f", "my-site")], url(tmp_path / "f"))
    setup = {"STAGER_SSH_CONFIG": str(config), "SSH_PRIVATE_KEY_my_site": str(sshd.identity_file), "HOME": str(tmp_path)}
    done = moved([entry], tmp_path, **setup)
    assert done.code == 0 and (tmp_path / "f").read_bytes() == b"f", done.said


@pytest.fixture
def credentials(s3: S3, tmp_path: Path) -> dict[str, str]:
    """As of pegasus-s3."""
    place = tmp_path / "credentials.conf"
    place.write_text(
        f"[tests]\nendpoint = http://127.0.0.1:{s3.port}\nregion = {s3.region}\n\n"
        f"[me@tests]\naccess_key = {s3.access_key}\nsecret_key = {s3.secret_key}\n"
    )
    place.chmod(0o600)
    return {"PEGASUS_CREDENTIALS": str(place)}


def test_s3_both_ways(bucket: str, credentials: dict[str, str], tmp_path: Path) -> None:
    contents = {"small": b"abc", "large": os.urandom(9_000_000), "with space": b"x"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    far = f"s3://me@tests/{bucket}/dir"
    sent = [transfer([url(tmp_path / name)], url(f"{far}/{name}", "s3-site"), lfn=name) for name in contents]
    done = moved(sent, tmp_path, **credentials)
    assert done.code == 0, done.said
    (tmp_path / "m").mkdir()
    back = [transfer([url(f"{far}/{name}", "s3-site")], url(tmp_path / "b" / name), lfn=name, generate_checksum=True) for name in contents]
    done = moved(back, tmp_path, PEGASUS_MULTIPART_DIR=f"{tmp_path}/m", KICKSTART_INTEGRITY_DATA=f"{tmp_path}/ks", **credentials)
    assert done.code == 0, done.said
    assert {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()} == contents
    blocks = yaml.safe_load((tmp_path / "ks").read_text())
    assert {name: block["sha256"] for name, block in blocks.items()} == {
        name: hashlib.sha256(data).hexdigest() for name, data in contents.items()
    }
    (report,) = (tmp_path / "m").iterdir()
    attempts = yaml.safe_load(report.read_text())[0]["transfer_attempts"]
    assert sorted(attempt["bytes"] for attempt in attempts) == sorted(map(len, contents.values()))
    assert "secret" not in done.said.lower()


def test_a_checksum_is_checked_at_the_server(bucket: str, credentials: dict[str, str], tmp_path: Path) -> None:
    """verify_checksum_remote: pegasus-transfer 5.1.0 to 5.1.2 pulled the file back and then ignored what that said."""
    (tmp_path / "a").write_bytes(b"abc")
    for lfn, content in (("right", b"abc"), ("wrong", b"xyz")):
        sha256 = hashlib.sha256(content).hexdigest()
        (tmp_path / f"{lfn}.meta").write_text(f'[{{"_id": "{lfn}", "_attributes": {{"checksum.value": "{sha256}"}}}}]')
        entry = transfer([url(tmp_path / "a")], url(f"s3://me@tests/{bucket}/a"), lfn=lfn, verify_checksum_remote=True)
        assert moved([entry], tmp_path, **credentials).code == (0 if lfn == "right" else 1)


def test_wrong_keys_are_said_and_not_shown(bucket: str, s3: S3, credentials: dict[str, str], tmp_path: Path) -> None:
    if not s3.checks_credentials:
        pytest.skip("this S3 server lets everybody in")
    place = Path(credentials["PEGASUS_CREDENTIALS"])
    place.write_text(place.read_text().replace(s3.secret_key, "a-wrong-one"))
    (tmp_path / "a").write_bytes(b"abc")
    done = moved([transfer([url(tmp_path / "a")], url(f"s3://me@tests/{bucket}/a"))], tmp_path, **credentials)
    assert done.code == 1 and "a-wrong-one" not in done.said


def test_the_web(web: Callable[..., Web], tmp_path: Path) -> None:
    server = web()
    (server.data / "d").mkdir()
    (server.data / "d" / "f a").write_bytes(os.urandom(3_000_000))
    (server.data / "empty").write_bytes(b"")
    far = server.url()
    entries = [
        transfer([url(f"{far}/d/f%20a", "web")], url(tmp_path / "f")),
        transfer([url(f"{far}/none", "web", priority=9), url(f"{far}/empty", "web", priority=1)], url(tmp_path / "e")),
    ]
    done = moved(entries, tmp_path)
    assert done.code == 0, done.said
    assert (tmp_path / "f").read_bytes() == (server.data / "d" / "f a").read_bytes() and (tmp_path / "e").read_bytes() == b""
    done = moved([transfer([url(f"{far}/none", "web")], url(tmp_path / "n"))], tmp_path)
    assert done.code == 1 and "/none" in done.said and not (tmp_path / "n").exists()


def test_headers_of_a_server_are_left_to_pegasus_transfer(web: Callable[..., Web], tmp_path: Path) -> None:
    """PEGASUS_CREDENTIALS may hold them; a file that is for other servers changes nothing."""
    server = web()
    (server.data / "f").write_bytes(b"f")
    place = tmp_path / "credentials.conf"
    for host, code in (("elsewhere", 0), (server.url().removeprefix("http://"), 1), (server.url(), 1)):
        place.write_text(f"[{host}]\nheader.X-Key = top-secret\n")
        done = moved([transfer([url(f"{server.url()}/f")], url(tmp_path / "d"))], tmp_path, PEGASUS_CREDENTIALS=str(place))
        assert done.code == code and "top-secret" not in done.said, done.said


def test_a_line_that_breaks_is_gone_on_with(web: Callable[..., Web], link: Callable[..., Link], tmp_path: Path) -> None:
    """Without another round: what came is kept, and only the rest is fetched."""
    server = web()
    (server.data / "f").write_bytes(os.urandom(LARGE_BYTES))
    line = link(server.port)
    line.cut_after(LARGE_BYTES // 2)
    done = moved([transfer([url(f"{server.url(line.port)}/f")], url(tmp_path / "f"))], tmp_path)
    assert done.code == 0, done.said
    assert (tmp_path / "f").read_bytes() == (server.data / "f").read_bytes()
    assert line.down.cut_at is None, "the line was not cut"
    assert line.down.carried_bytes < LARGE_BYTES * 1.4


def test_ended_while_it_fetches(web: Callable[..., Web], link: Callable[..., Link], tmp_path: Path) -> None:
    server = web()
    (server.data / "f").write_bytes(os.urandom(LARGE_BYTES))
    line = link(server.port, bytes_per_s=LARGE_BYTES / 60)
    (tmp_path / "d").write_bytes(b"old")
    given = listed(transfer([url(f"{server.url(line.port)}/f")], url(tmp_path / "d")))
    running = ours_started(given, tmp_path, STAGER_IONODE=str(ionode_binary()))
    wait_until(lambda: list(tmp_path.glob(".d.*.stager")), "the copy to begin")
    running.send_signal(signal.SIGTERM)
    running.communicate()
    assert running.returncode == -signal.SIGTERM
    assert (tmp_path / "d").read_bytes() == b"old" and not list(tmp_path.glob(".d.*"))


@pytest.mark.parametrize(
    "setup", [{"STAGER_TRANSFER_LEAVES": "http"}, {"http_proxy": "http://127.0.0.1:1"}, {"PEGASUS_CREDENTIALS": "/none"}]
)
def test_what_is_set_up_otherwise_is_left_to_pegasus_transfer(tmp_path: Path, setup: dict[str, str]) -> None:
    done = moved([transfer([url("http://127.0.0.1:1/x")], url(tmp_path / "x"))], tmp_path, **setup)
    assert done.code == 1 and next(iter(setup)) in done.said and "PEGASUS_TRANSFER_FALLBACK" in done.said


def test_a_transfer_agent_that_dies_is_no_success(tmp_path: Path) -> None:
    program = tmp_path / "stager-ionode"
    program.write_text("#!/bin/sh\nread order\nexit 7\n")
    program.chmod(0o755)
    entries = [transfer([url(f"http://127.0.0.1:1/{name}")], url(tmp_path / "d" / name)) for name in "abc"]
    done = ours(listed(*entries), tmp_path, "-m", "1", STAGER_IONODE=str(program))
    assert done.code == 1 and "exit code 7" in done.said and not list((tmp_path / "d").iterdir())


# A program has begun to run before whoever starts it knows its number, and on a busy machine long before.
SLOW_STARTS = """
import os, subprocess, time
begin = subprocess.Popen._execute_child
def slow(*words):
    begin(*words)
    while not os.path.exists(os.environ["KNOWN"]):
        time.sleep(0.05)
subprocess.Popen._execute_child = slow
"""


@pytest.mark.parametrize(("variable", "source"), [("STAGER_IONODE", "http://127.0.0.1:1/f"), ("PEGASUS_TRANSFER_FALLBACK", "gsiftp://h/f")])
def test_ended_while_it_starts_a_program_it_leaves_none_behind(tmp_path: Path, variable: str, source: str) -> None:
    program, told, known = tmp_path / "program", tmp_path / "pid", tmp_path / "known"
    program.write_text(f"#!/bin/sh\necho $$ > {told}.new; mv {told}.new {told}\nexec sleep 600 > /dev/null 2>&1\n")
    program.chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text(SLOW_STARTS)
    given = listed(transfer([url(source)], url(tmp_path / "d")))
    environ = {variable: str(program), "PYTHONPATH": f"{PLUGIN}:{tmp_path}", "KNOWN": str(known)}
    running = ours_started(given, tmp_path, **environ)
    wait_until(told.exists, "the program to begin")
    pid = int(told.read_text())
    try:
        running.send_signal(signal.SIGTERM)
        known.touch()
        running.communicate()
        assert running.returncode == -signal.SIGTERM
        wait_until(lambda: not is_alive(pid), "the program to be gone")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_ended_it_leaves_no_transfer_agent_behind_that_does_not_hear_the_end(tmp_path: Path) -> None:
    program, told = tmp_path / "stager-ionode", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {told}.new; mv {told}.new {told}\nexec sleep 600 > /dev/null 2>&1\n")
    program.chmod(0o755)
    given = listed(transfer([url("http://127.0.0.1:1/f")], url(tmp_path / "d")))
    running = ours_started(given, tmp_path, STAGER_IONODE=str(program))
    wait_until(told.exists, "the transfer agent to begin")
    pid = int(told.read_text())
    try:
        running.send_signal(signal.SIGTERM)
        running.communicate()
        assert running.returncode == -signal.SIGTERM
        wait_until(lambda: not is_alive(pid), "the transfer agent to be gone")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
