"""tenants.toml: what it may say, whose file it must be, and which URLs lie below a registered one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stager.model.errors import Denied, InvalidInput
from stager.model.tenants import Tenant, path_below
from stager.model.workflow import OriginKind
from stager.readers.tenants import read_tenants

WHOLE = """
[tenants.alice]
native_jobs = true
file_roots = ["/data/alice"]

[[tenants.alice.origins]]
url = "sftp://me@lab:2222/data/"
credentials = "key:/etc/stager/alice"
known_hosts = "/etc/stager/known_hosts"
connections_max = 4

[[tenants.alice.origins]]
url = "s3://bucket/in"
credentials = "env:LAB"
endpoint = "http://minio:9000"
allow_http = true

[tenants.bob]

[tenants.carol]
weight = 2.5
quota_cores = 8
quota_runs = 3
quota_bytes = "500 GB"

[tenants.dora]
pool = "10.0.0.1:8787"
"""


def written(place: Path, text: str) -> Path:
    path = place / "tenants.toml"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    tenants = read_tenants(written(tmp_path, WHOLE))
    alice = tenants.get("alice")
    assert alice is not None and alice.native_jobs and alice.file_roots == ("/data/alice",)
    lab, bucket = alice.origins
    assert (lab.kind, lab.url, lab.credentials) == (OriginKind.SFTP, "sftp://me@lab:2222/data", "key:/etc/stager/alice")
    assert dict(lab.options) == {"known_hosts": "/etc/stager/known_hosts", "connections_max": "4"}
    assert dict(bucket.options) == {"endpoint": "http://minio:9000", "allow_http": "true"}
    assert tenants.get("bob") == Tenant("bob") and tenants.get("dave") is None
    assert tenants.get("dora") == Tenant("dora", pool="10.0.0.1:8787")
    assert [name for name, tenant in tenants.by_name.items() if tenant.runs_programs] == ["alice", "dora"]
    assert tenants.get("carol") == Tenant("carol", weight=2.5, quota_cores=8, quota_runs=3, quota_bytes=500 * 10**9)


def test_without_a_file_there_are_no_tenants(tmp_path: Path) -> None:
    assert read_tenants(tmp_path / "tenants.toml").by_name == {}


WRONG = {
    "[tenants.alice]\nnative_jobs = true\n[tenants.bob]\nnative_jobs = true\n": r"tenants\.bob\.native_jobs 'alice' has native_jobs too",
    "[tenants.alice]\npool = '10.0.0.1'\n": "where the gateway of its pool listens",
    "[tenants.alice]\npool = 'tls://10.0.0.1:1'\n": "where the gateway of its pool listens",
    "[tenants.alice]\npool = '10.0.0.1:70000'\n": "where the gateway of its pool listens",
    "[tenants.alice]\npool = ''\n": "where the gateway of its pool listens",
    "[tenants.alice]\npool = 'a..b:1'\n": "where the gateway of its pool listens",
    "[tenants.alice]\npool = 'h:1'\nnative_jobs = true\n": "does not go with native_jobs",
    "[tenants.alice]\npool = 'h:1'\n[tenants.bob]\npool = 'h:1'\n": r"tenants\.bob\.pool is that of 'alice' too",
    "[tenants.owner]\npool = 'h:1'\n": "cannot be of a tenant 'owner'",
    "[tenants.alice]\nfile_root = ['/x']\n": r"tenants\.alice\.file_root is not a key here \(did you mean 'file_roots'\?\)|file_roots",
    "[tenants.alice]\nfile_roots = ['data']\n": "absolute directories",
    "[tenants.Alice]\n": "no name of a tenant",
    "[tenants]\nalice = 3\n": "should be a table",
    "tenants = 3\n": "should be tables",
    "[tenants.alice]\nnative_jobs = 'yes'\n": "true or false",
    "[[tenants.alice.origins]]\ncredentials = 'agent'\n": r"origins\[0\]\.url is missing",
    "[[tenants.alice.origins]]\nurl = 'file:///data'\n": "file_roots",
    "[[tenants.alice.origins]]\nurl = 'ftp://lab/data'\n": "no kind of origin",
    "[[tenants.alice.origins]]\nurl = 'sftp://me:secret@lab/data'\n": "secret|password",
    "[[tenants.alice.origins]]\nurl = 'sftp://lab/data'\ncredentials = 'env:LAB'\n": "does not fit a sftp origin; use agent or key",
    "[[tenants.alice.origins]]\nurl = 'sftp://lab/data'\ncredentials = 'hunter2'\n": "no reference to credentials",
    "[[tenants.alice.origins]]\nurl = 's3://b/p'\nendpoint = 'http://minio'\n": "endpoint is http",
    "[[tenants.alice.origins]]\nurl = 'sftp://lab/data'\nendpoint = 'https://x'\n": "endpoint is not a key here",
    "[[tenants.alice.origins]]\nurl = 'sftp://lab/data'\nconnections_max = 0\n": "connections_max",
    "[tenants.alice]\nweight = 0\n": r"tenants\.alice\.weight should be a number from 0\.001 to 1000",
    "[tenants.alice]\nweight = true\n": r"tenants\.alice\.weight should be",
    "[tenants.alice]\nquota_cores = 0\n": r"quota_cores should be a whole number above 0",
    "[tenants.alice]\nquota_runs = '3'\n": r"quota_runs should be a whole number",
    "[tenants.alice]\nquota_bytes = 'much'\n": r"quota_bytes 'much' is not a size",
    "[tenants.alice]\nquota_bytes = '0 GB'\n": r"quota_bytes should be a size above 0",
    "[tenants.alice\n": "not valid TOML",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named_with_its_key(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match=WRONG[text]) as caught:
        read_tenants(written(tmp_path, text))
    assert "tenants.toml" in caught.value.message and "hunter2" not in caught.value.message


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_may_read_or_write_counts_for_nothing(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, WHOLE)
    path.chmod(mode)
    with pytest.raises(Denied, match="chmod 600"):
        read_tenants(path)


def test_a_link_and_a_directory_count_for_nothing(tmp_path: Path) -> None:
    real = written(tmp_path, WHOLE)
    (tmp_path / "link").symlink_to(real)
    for path in (tmp_path / "link", tmp_path):
        with pytest.raises(Denied):
            read_tenants(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_counts_for_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)
    os.chown(path, 1234, 1234)
    with pytest.raises(Denied, match="another user"):
        read_tenants(path)


BELOW = [
    ("sftp://me@lab/data", "sftp://me@lab/data", ""),
    ("sftp://me@lab/data", "sftp://me@LAB:22//data/./a/b/", "a/b"),
    ("sftp://me@lab/data", "sftp://lab/data/a", "a"),
    ("sftp://me@lab/data", "sftp://me@lab/da%74a/a%20b", "a b"),
    ("sftp://me@lab/", "sftp://me@lab/etc", "etc"),
    ("https://host/a", "https://host:443/a/b", "b"),
    ("s3://bucket/in", "s3://bucket/in/x", "x"),
    ("sftp://me@lab/~/data", "sftp://me@lab/~/data/x", "x"),
    ("sftp://me@lab/data", "sftp://you@lab/data/a", None),
    ("sftp://me@lab/data", "sftp://me@lab/data-secret", None),
    ("sftp://me@lab/data", "sftp://me@lab/data/../etc", None),
    ("sftp://me@lab/data", "sftp://me@lab/data/%2e%2e/etc", None),
    ("sftp://me@lab/data", "sftp://me@lab/data/a%2f..%2f../etc", None),
    ("sftp://me@lab/data", "sftp://me@lab/data/a%00b", None),
    ("sftp://me@lab/data", "sftp://me@lab/~/data", None),
    ("sftp://me@lab/data", "sftp://me@lab:2222/data", None),
    ("sftp://me@lab/data", "sshfs://me@lab/data", None),
    ("sftp://me@lab/data", "sftp://me@lab.evil.org/data", None),
    ("https://host/a", "http://host/a", None),
    ("https://host/a", "https://host:8443/a", None),
    ("s3://bucket/in", "s3://Bucket/in", None),
    ("s3://bucket/in", "s3://bucket/inner", None),
]


@pytest.mark.parametrize(("prefix", "url", "below"), BELOW)
def test_a_url_lies_below_another_by_whole_names_on_the_same_server(prefix: str, url: str, below: str | None) -> None:
    assert path_below(prefix, url) == below


def test_the_nearest_registered_origin_comes_first(tmp_path: Path) -> None:
    text = "".join(f"[[tenants.alice.origins]]\nurl = 'sftp://lab{path}'\n" for path in ("/data", "/data/deep", "/"))
    alice = read_tenants(written(tmp_path, text)).get("alice")
    assert alice is not None
    found = [(each.url, path) for each, path in alice.registered(OriginKind.SFTP, "sftp://lab/data/deep/x")]
    assert found == [("sftp://lab/data/deep", "x"), ("sftp://lab/data", "deep/x"), ("sftp://lab", "data/deep/x")]
    assert alice.registered(OriginKind.SSHFS, "sshfs://lab/data") == []
