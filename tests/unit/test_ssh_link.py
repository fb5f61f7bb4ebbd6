"""Which keys and hosts `stager ionode up` takes, beside what OpenSSH's own programs say."""

from __future__ import annotations

import ast
import inspect
import subprocess
from pathlib import Path

import pytest

from stager.adapters import far_side
from stager.adapters.far_host import OLDEST
from stager.adapters.ssh_link import Endpoint, KeyRing, SshLink, SshTarget, Way, check_host_key, known_keys, public_blob
from stager.model.errors import Denied, InvalidInput, Refused
from stager.service.far_stager import record_of
from stager.service.host_node import Record, Wanted, WorkerRecord
from stager.service.settings import default_state_dir
from stager.service.up_by_ssh import is_as_said
from tests.testbed.places import needed_program
from tests.testbed.sshd import make_key, running_agent

pytest.importorskip("paramiko")
HOST = Endpoint("Lab", "10.0.0.7", 2222, "me", "[10.0.0.7]:2222")


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("ssh://Lab", SshTarget("Lab")),
        ("ssh://me@lab:2222/srv/a%20b/", SshTarget("lab", 2222, "me", "/srv/a b")),
        ("ssh://[::1]:22/srv", SshTarget("::1", 22, None, "/srv")),
    ],
)
def test_addresses(url: str, target: SshTarget) -> None:
    assert SshTarget.of(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "lab",
        "https://lab",
        "ssh://",
        "ssh://-oProxyCommand=x",
        "ssh://me:secret@lab:x",
        "ssh://lab:x",
        "ssh://lab/a%0Ab",
        "ssh://a;b",
        "ssh://$(id)@lab",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SshTarget.of(url)
    assert "secret" not in caught.value.message


def test_host_keys_are_found_as_ssh_finds_them(tmp_path: Path) -> None:
    right, other, old = (make_key(tmp_path / name) for name in ("right", "other", "old"))
    kind, text = right.with_name("right.pub").read_text().split()[:2]
    lines = tmp_path / "known_hosts"
    lines.write_text(f"[10.0.0.7]:2222,elsewhere {kind} {text}\n@cert-authority * {other.with_name('other.pub').read_text()}")
    subprocess.run([needed_program("ssh-keygen", "openssh-client"), "-q", "-H", "-f", lines], check=True, capture_output=True)
    assert "10.0.0.7" not in lines.read_text()
    pattern = tmp_path / "patterns"
    pattern.write_text(f"[10.0.0.*]:2222 {old.with_name('old.pub').read_text()}")
    files = [lines, tmp_path / "none", pattern]
    known = known_keys(HOST.name, files)
    assert [key.blob for key in known] == [public_blob(right), public_blob(old)]
    assert known_keys("10.0.0.7", files) == []

    check_host_key(HOST, kind, public_blob(right), known, files)
    for keys, told in ((known, "is not the one"), ([], "is unknown")):
        with pytest.raises(Denied, match=told) as caught:
            check_host_key(HOST, kind, public_blob(other), keys, files)
        said = subprocess.run(["ssh-keygen", "-lf", other.with_name("other.pub")], check=True, capture_output=True, text=True).stdout
        assert said.split()[1] in caught.value.message
    pattern.write_text(f"@revoked {pattern.read_text()}")
    with pytest.raises(Denied, match="revoked"):
        check_host_key(HOST, kind, public_blob(old), known_keys(HOST.name, files), files)


def test_keys_are_those_of_the_configuration_first(short_dir: Path) -> None:
    plain, other = make_key(short_dir / "plain"), make_key(short_dir / "other", "rsa")
    locked = make_key(short_dir / "locked")
    words = [str(needed_program("ssh-keygen", "openssh-client")), "-q", "-p", "-f", str(locked), "-N", "a phrase"]
    held = make_key(short_dir / "held")
    with running_agent(short_dir, held, other) as socket:
        held.write_text("")  # its public half alone is on the disk, as with a key on a card
        subprocess.run(words, check=True, capture_output=True)
        said = {"identityfile": [str(path) for path in (locked, plain, held, short_dir / "none")], "identityagent": ["SSH_AUTH_SOCK"]}
        for only, more in (("yes", []), ("no", ["key 1 of the agent"])):
            ring = KeyRing({**said, "identitiesonly": [only]}, {"SSH_AUTH_SOCK": str(socket)})
            assert [label for label, _ in ring.keys()] == [str(plain), f"{held} (agent)", *more]
            assert ring.locked == [str(locked)]
            ring.close()
        assert [label for label, _ in KeyRing({**said, "identityagent": ["none"]}, {"SSH_AUTH_SOCK": str(socket)}).keys()] == [str(plain)]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"proxyjump": ["none"], "proxycommand": ["none"]}, None),
        ({"proxyjump": ["a,me@b:22"]}, ["ssh", "-o", "BatchMode=yes", "-J", "a", "-W", "[10.0.0.7]:2222", "--", "ssh://me@b:22"]),
        ({"proxycommand": ["nc -X %% %h %p # %n %r"]}, ["/bin/sh", "-c", "exec nc -X % 10.0.0.7 2222 # Lab me"]),
    ],
)
def test_the_way_there_is_that_of_the_configuration(said: dict[str, list[str]], words: list[str] | None) -> None:
    assert Way(HOST, said, {}).program() == words


def test_a_host_is_as_it_was_said_where_nothing_differs() -> None:
    record = Record("10.0.0.5:7435", "a", 100, "10.0.0.7:4000", True, WorkerRecord("a", "tls://10.0.0.5:8786", 2))
    assert is_as_said(Wanted("", has_node=True), record)
    assert is_as_said(Wanted("a", 100, "10.0.0.7:4000", None, True, "a", 2), record)
    others = (
        Wanted("b"),
        Wanted("", 99),
        Wanted("", has_worker=False),
        Wanted("", cores=3),
        Wanted("", scratch="/scratch"),
        Wanted("", beside="b"),
    )
    assert not any(is_as_said(wanted, record) for wanted in others)


def test_a_host_of_another_cluster_is_left_alone() -> None:
    link = SshLink(HOST, None)
    record = {"scheduler": "10.0.0.5:7435", "node_id": "a", "capacity_bytes": 1, "listen": ""}
    assert record_of(link, {"root": "/srv", "record": None, "ca_sha256": ""}, "c1") is None
    found = record_of(link, {"root": "/srv", "record": record, "ca_sha256": "c1"}, "c1")
    assert found is not None and found.node_id == "a"
    with pytest.raises(Refused, match="in another cluster, at 10.0.0.5:7435"):
        record_of(link, {"root": "/srv", "record": record, "ca_sha256": "c2"}, "c1")


def test_what_is_sent_ahead_is_read_by_older_pythons() -> None:
    ast.parse(inspect.getsource(far_side), feature_version=OLDEST)


@pytest.mark.parametrize("environ", [{"HOME": "/home/me"}, {"HOME": "/home/me", "XDG_STATE_HOME": "/var/state"}])
def test_the_directory_there_is_that_of_host_join(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert Path(far_side.default_root()) == default_state_dir(environ).with_name("stager-node")
