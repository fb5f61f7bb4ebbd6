"""Origins from a workflow to the node's configuration: what OpenSSH would do, where credentials come from, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.adapters.origin_config import needs_secrets, resolve
from stager.model.errors import Denied, InvalidInput, Refused, Transient
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.runtime.credentials import CredentialBook
from tests.testbed.places import needed_program


def sftp(url: str = "sftp://lab/data", credentials: str = "", **options: str) -> Origin:
    return Origin("lab", OriginKind.SFTP, url, credentials, tuple(options.items()))


def s3(credentials: str = "", **options: str) -> Origin:
    return Origin("lab", OriginKind.S3, "s3://bucket/pre/fix", credentials, tuple(options.items()))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    needed_program("ssh", "openssh-client")
    config = tmp_path / "ssh_config"
    key = tmp_path / "key"
    key.write_text("")
    config.write_text(
        f"Host lab\n  HostName lab.example.org\n  Port 2222\n  User ana\n  IdentityFile {key}\n"
        "  IdentitiesOnly yes\n  HostKeyAlias lab-alias\n"
        f"  UserKnownHostsFile {tmp_path}/known {tmp_path}/known2\n  GlobalKnownHostsFile none\n"
        "Host behind\n  ProxyJump gate\nHost piped\n  ProxyCommand nc %h %p\n"
    )
    return {"STAGER_SSH_CONFIG": str(config), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}


def test_the_ssh_configuration_is_honoured(environ: dict[str, str], tmp_path: Path) -> None:
    said = resolve(sftp(), environ)
    assert said == {
        "kind": "sftp",
        "host": "lab.example.org",
        "port": 2222,
        "user": "ana",
        "base_path": "/data",
        "known_hosts": [f"{tmp_path}/known", f"{tmp_path}/known2"],
        "host_key_alias": "lab-alias",
        "identity_files": [str(tmp_path / "key")],
        "identities_only": True,
        "agent_socket": None,
        "connections_max": None,
        "shell_checksum": True,
        "verify_source": False,
    }


def test_the_urls_user_and_port_and_the_origins_own_settings_win(environ: dict[str, str]) -> None:
    said = resolve(sftp("sftp://bob@lab:2022/~/here", known_hosts="/k", connections_max="3", shell_checksum="false"), environ)
    assert (said["user"], said["port"], said["base_path"], said["known_hosts"]) == ("bob", 2022, "here", ["/k"])
    assert (said["connections_max"], said["shell_checksum"]) == (3, False)


@pytest.mark.parametrize(("host", "word"), [("behind", "proxyjump"), ("piped", "proxycommand")])
def test_hosts_behind_others_are_refused_by_name(host: str, word: str, environ: dict[str, str]) -> None:
    with pytest.raises(Refused, match=word):
        resolve(sftp(f"sftp://{host}/data"), environ)


def test_a_key_that_is_not_there_and_an_agent_that_does_not_run_are_denied(environ: dict[str, str]) -> None:
    with pytest.raises(Denied, match="no key file /nowhere"):
        resolve(sftp(credentials="key:/nowhere"), environ)
    with pytest.raises(Denied, match="ssh-add"):
        resolve(sftp(credentials="agent"), environ)


def test_a_credentials_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_bytes(b"[default]\n# Schl\xfcssel\naws_access_key_id = a\n")
    with pytest.raises(InvalidInput, match=r"credentials is not a valid AWS file \(UnicodeDecodeError\)"):
        resolve(s3("profile:default"), {"HOME": str(tmp_path)})


def test_a_named_key_or_the_agent_alone(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    said = resolve(sftp(credentials="key:~/other"), environ)
    assert (said["identity_files"], said["identities_only"]) == ([str(tmp_path / "other")], True)
    said = resolve(sftp(credentials="agent"), {**environ, "SSH_AUTH_SOCK": "/run/agent"})
    assert (said["identity_files"], said["agent_socket"]) == ([], "/run/agent")


@pytest.mark.parametrize("url", ["sftp:///data", "sftp://ana:pw@lab/data", "sftp://-oProxyCommand=x/data"])
def test_urls_that_are_no_ssh_origin(url: str, environ: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve(sftp(url), environ)
    assert "pw" not in caught.value.message.replace(url, "")


def test_s3_credentials_from_a_prefix() -> None:
    said = resolve(s3("env:LAB"), {"LAB_ACCESS_KEY_ID": "k", "LAB_SECRET_ACCESS_KEY": "s", "LAB_SESSION_TOKEN": "t"})
    assert (said["access_key_id"], said["secret_access_key"], said["session_token"]) == ("k", "s", "t")
    assert (said["bucket"], said["prefix"], said["region"], said["addressing"]) == ("bucket", "pre/fix", "us-east-1", "virtual")
    with pytest.raises(Denied, match="LAB_SECRET_ACCESS_KEY not set"):
        resolve(s3("env:LAB"), {"LAB_ACCESS_KEY_ID": "k"})


def test_s3_credentials_from_profiles(tmp_path: Path) -> None:
    aws = tmp_path / ".aws"
    aws.mkdir()
    (aws / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n[lab]\naws_access_key_id=k\naws_secret_access_key=s%x\n"
    )
    (aws / "config").write_text("[profile lab]\nregion = eu-west-1\nendpoint_url = https://s3.lab\n")
    environ = {"HOME": str(tmp_path)}
    said = resolve(s3("profile:lab"), environ)
    assert (said["access_key_id"], said["secret_access_key"], said["region"], said["endpoint"]) == (
        "k",
        "s%x",
        "eu-west-1",
        "https://s3.lab",
    )
    assert resolve(s3(), environ)["access_key_id"] == "d"
    assert resolve(s3(), {**environ, "AWS_PROFILE": "lab"})["access_key_id"] == "k"
    assert resolve(s3(), {**environ, "AWS_ACCESS_KEY_ID": "e", "AWS_SECRET_ACCESS_KEY": "es"})["access_key_id"] == "e"
    with pytest.raises(Denied, match="'gone'"):
        resolve(s3("profile:gone"), environ)


def test_a_broken_aws_file_is_named_without_its_content(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("aws_secret_access_key = hush\n")
    with pytest.raises(InvalidInput) as caught:
        resolve(s3(), {"HOME": str(tmp_path)})
    assert "credentials" in caught.value.message and "hush" not in str(caught.value) and caught.value.__cause__ is None


def web(url: str = "https://example.org/dr 17", credentials: str = "", **options: str) -> Origin:
    return Origin("web", OriginKind.HTTP, url, credentials, tuple(sorted(options.items())))


def test_http_credentials_are_a_token_or_a_user_with_a_password() -> None:
    def keys(environ: dict[str, str], credentials: str = "env:WEB") -> tuple[object, ...]:
        said = resolve(web(credentials=credentials), environ)
        return said["bearer_token"], said["user"], said["password"]

    assert keys({"WEB_TOKEN": "t"}) == ("t", None, None)
    assert keys({"WEB_USER": "u", "WEB_PASSWORD": "p"}) == (None, "u", "p")
    assert keys({"WEB_TOKEN": "t"}, "") == (None, None, None), "nobody said to use it"
    for half in ({}, {"WEB_USER": "u"}, {"WEB_PASSWORD": "hush"}, {"WEB_TOKEN": "hush", "WEB_USER": "u", "WEB_PASSWORD": "hush"}):
        with pytest.raises(Denied, match="WEB_TOKEN, or WEB_USER and WEB_PASSWORD") as caught:
            keys(half)
        assert "hush" not in caught.value.message
    with pytest.raises(InvalidInput, match="env:PREFIX"):
        keys({}, "profile:x")


def test_http_origins_are_described_as_written() -> None:
    said = resolve(web(ca_file="~/ca.pem", queries="true", connections_max="3", bandwidth="1 MB"), {"HOME": "/home/ana"})
    assert (said["base_url"], said["ca_file"], said["queries"], said["connections_max"]) == (
        "https://example.org/dr 17",
        "/home/ana/ca.pem",
        True,
        3,
    )
    assert said["bandwidth_bytes_per_s_max"] == 1_000_000
    with pytest.raises(InvalidInput, match="not absolute"):
        resolve(web(ca_file="ca.pem"), {})
    for url in ("https://me:hush@h/", "https://h/?k=hush", "https://h/#hush"):
        with pytest.raises(InvalidInput) as caught:
            resolve(web(url), {})
        assert "hush" not in caught.value.message


def test_http_credentials_do_not_go_in_the_clear_unless_told() -> None:
    environ = {"WEB_TOKEN": "t"}
    with pytest.raises(InvalidInput, match="allow_http: true"):
        resolve(web("http://h/d", "env:WEB"), environ)
    assert resolve(web("http://h/d", "env:WEB", allow_http="true"), environ)["bearer_token"] == "t"
    assert resolve(web("http://h/d"), environ)["allow_http"] is False


@pytest.mark.parametrize("url", ["file://elsewhere/data", "data"])
def test_file_origins_are_absolute_and_here(url: str) -> None:
    with pytest.raises(InvalidInput):
        resolve(Origin("lab", OriginKind.FILE, url), {})


WEB = {"web": web(credentials="env:WEB"), "open": web("http://h/d")}
WORKFLOW = Workflow("w", {}, {}, {**WEB, "lab": s3("env:LAB"), "disk": Origin("disk", OriginKind.FILE, "file:///d")})


def test_after_a_restart_only_the_submitter_can_say_secrets() -> None:
    book = CredentialBook(lambda run, origin: resolve(origin, {}), lambda run, origin: needs_secrets(origin))
    assert book.work_out("w-1", "disk", WORKFLOW)[1] == {"kind": "file", "base_path": "/d"}
    assert book.work_out("w-1", "open", WORKFLOW)[1]["bearer_token"] is None
    for name in ("lab", "web"):
        with pytest.raises(Denied, match="stager resume w-1"):
            book.work_out("w-1", name, WORKFLOW)
    book.bring("w-1", {"lab": {"kind": "s3", "secret_access_key": "s"}}, {})
    assert book.known("w-1", "lab") is not None


def test_equal_configurations_share_an_id_and_new_credentials_get_a_new_one() -> None:
    book = CredentialBook(lambda run, origin: {}, lambda run, origin: False)
    book.bring("a", {"lab": {"kind": "s3", "secret_access_key": "one"}}, {})
    book.bring("b", {"store": {"secret_access_key": "one", "kind": "s3"}}, {})
    first, second = book.known("a", "lab"), book.known("b", "store")
    assert first is not None and second is not None and first[0] == second[0] and "one" not in first[0]
    book.bring("a", {"lab": {"kind": "s3", "secret_access_key": "two"}}, {})
    assert book.known("a", "lab") != first


def test_what_can_be_said_later_is_no_denial() -> None:
    def away(run: str, origin: Origin) -> dict[str, object]:
        raise Transient("the host is not known here", code="origin_unreachable")

    with pytest.raises(Transient):
        CredentialBook(away, lambda run, origin: False).work_out("w-1", "disk", WORKFLOW)
